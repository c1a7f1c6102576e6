package baton.rt;

/**
 * Runs the thread before all ordinary threads of the machine (SCHED_FIFO). No collector stops it,
 * and memory is reserved for what it allocates. The thread gets its earlier priority back.
 */
public final class ThreadPriority extends Setting {
    /**
     * @param priority from 1 to 99
     * @throws IllegalArgumentException if there is no such priority
     */
    public ThreadPriority(int priority) {
        super(PRIORITY, priority);
    }
}
