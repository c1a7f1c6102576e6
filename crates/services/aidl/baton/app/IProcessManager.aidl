package baton.app;

import baton.app.IApplication;
import baton.app.ProcessInfo;

interface IProcessManager {
    /** Starts an activity or a service, PACKAGE/CLASS, and returns its process's pid. */
    int start(String component);

    void stop(String component);

    /** Binds the caller's process to a service or a provider, and returns the pid of that one's. */
    int bind(String component);

    void unbind(String component);

    /** All processes, the most important first. */
    ProcessInfo[] processes();

    /** The activities, the topmost first. */
    String[] stack();

    /** From -12 (persistent) to 15 (empty). Below 0: root, and packages with the right to it. */
    void setAdjustment(int pid, int adjustment);

    void clearAdjustment(int pid);

    /** Asks an attached process to give memory back: a TRIM_MEMORY level of Android. */
    void trim(int pid, int level);

    /** Kills a package's background processes, and returns their number. */
    int kill(String packageName);

    /** Kills a package's processes, and starts none before somebody asks for one. */
    int forceStop(String packageName);

    void setBackup(String packageName, boolean running);

    /** The caller's process is told of its components' states from now on. */
    void attach(IApplication application);
}
