package baton.app;

parcelable ProcessInfo {
    /** 0 while it is being started. */
    int pid;
    int uid;
    String packageName;
    String name;
    int adjustment;
    long rssBytes;
    /** Its components, and the state of each. */
    String[] components;
    String[] states;
}
