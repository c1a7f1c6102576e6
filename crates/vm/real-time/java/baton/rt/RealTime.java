package baton.rt;

/** A thread's place among the system's real-time threads. */
public final class RealTime {
    private RealTime() {}

    /**
     * Runs the calling thread before all ordinary threads of the machine (SCHED_FIFO): no collector
     * stops it, and memory is reserved for what it allocates.
     *
     * @param priority from 1 to 99, or 0 for an ordinary thread
     * @throws SecurityException if the process has not the right (CAP_SYS_NICE or RLIMIT_RTPRIO)
     * @throws IllegalArgumentException if there is no such priority
     */
    public static native void setPriority(int priority);
}
