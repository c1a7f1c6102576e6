import java.util.concurrent.atomic.AtomicInteger;

/** Threads that C starts and attaches, which call Java; and Java's threads that are in C for long. */
public class Threads {
    static final AtomicInteger calls = new AtomicInteger();
    static volatile Object shared;

    static String called(String from, int number) {
        calls.incrementAndGet();
        Thread own = Thread.currentThread();
        byte[] garbage = new byte[number * 10];
        shared = garbage;
        return from + (own.isDaemon() ? " daemon " : " ") + (own.getThreadGroup() != null);
    }

    static native int run(int nThreads, int nCalls);
    static native String named();
    static native int detached();
    static native int own();
    static native void hold(Object lock);
    static native boolean isHeld(Object lock);
    static native void blockUntil(int[] flag);
    static native void release();

    static void failing() {
        throw new IllegalStateException("nobody catches it");
    }
    static native void endWithException();
    static native void detachWithMonitor(Object lock);

    static Throwable uncaught;

    public static void main(String[] args) throws Exception {
        System.loadLibrary("jnitest");
        System.out.println(run(4, 300) + " " + calls.get());
        System.out.println(named());
        System.out.println(detached() + " " + own());

        // A thread that waits in C stops no collection.
        Thread waiting = new Thread(() -> blockUntil(null));
        waiting.start();
        for (int nth = 0; nth < 20; nth++) {
            System.gc();
            byte[] garbage = new byte[100000];
        }
        release();
        waiting.join();
        System.out.println("joined");

        Object lock = new Object();
        hold(lock);
        System.out.println(Thread.holdsLock(lock) + " " + isHeld(lock));
        Thread other = new Thread(() -> {
            synchronized (lock) {
                System.out.println("the other has it");
            }
        });
        other.start();
        isHeld(null);
        other.join();
        detachWithMonitor(lock);
        synchronized (lock) {
            System.out.println("a thread that is detached has no monitor");
        }
        Thread.setDefaultUncaughtExceptionHandler((thread, exception) -> uncaught = exception);
        endWithException();
        System.out.println(uncaught);
    }
}
