package baton.rt;

/**
 * A setting for real-time work. It belongs to the thread that has made it, and ends with
 * {@link #close}, with that thread, or with the process, however that ends.
 *
 * <p>Constructors throw a SecurityException that says what to do if the process has not the right,
 * and an IllegalStateException if the machine cannot do it, or others need something else.
 */
public abstract class Setting implements AutoCloseable {
    static final int PRIORITY = 0;
    static final int FREQUENCY = 1;
    static final int MEMORY = 2;
    static final int OOM = 3;

    private long number;

    Setting(int kind, int value) {
        number = hold(kind, value);
    }

    /**
     * Undoes the setting. A second call does nothing.
     *
     * @throws IllegalStateException on another thread than the one that has made the setting
     */
    @Override
    public final void close() {
        if (number != 0 && !release(number)) {
            throw new IllegalStateException("another thread has made this setting");
        }
        number = 0;
    }

    private static native long hold(int kind, int value);

    private static native boolean release(long number);
}
