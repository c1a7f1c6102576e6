package baton.app;

/** What the process manager tells a process that has attached. */
oneway interface IApplication {
    /** state: created, started, resumed, paused, stopped, destroyed. */
    void enter(String component, String state);

    void trim(int level);
}
