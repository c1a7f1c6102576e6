package baton.rt;

/** How the memory of the heap is used. Threads that allocate meanwhile may have changed it. */
public final class Heap {
    private Heap() {}

    /** The memory in blocks that are in use. */
    public static native long usedBytes();

    /** The memory of objects, and of cells that threads have taken. */
    public static native long liveBytes();

    /** The longest run of free blocks: the largest object that fits. */
    public static native long longestFreeBytes();
}
