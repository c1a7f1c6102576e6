package baton.rt;

/** Keeps all memory of the process from being paged out, what it takes later included. */
public final class MemoryLock extends Setting {
    private static final int STACK_BYTES = 256 << 10;

    public MemoryLock() {
        super(MEMORY, STACK_BYTES);
    }
}
