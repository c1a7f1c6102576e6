/** The end of the VM, of libraries, and of threads that C has not detached. */
public class Ends {
    static native int destroy();
    static native void destroyElsewhere();
    static native void end(Object lock);

    static volatile Thread foreign;

    static void ending() {
        foreign = Thread.currentThread();
        throw new IllegalStateException("nobody catches it");
    }

    public static void main(String[] args) throws Exception {
        System.loadLibrary("jnitest");
        if (args[0].equals("elsewhere")) {
            destroyElsewhere();
            System.out.println("main ends");
            return;
        }
        System.loadLibrary("jniunload");
        Object lock = new Object();
        Thread.setDefaultUncaughtExceptionHandler(
            (thread, exception) -> System.out.println(exception + " " + (thread == foreign)));
        end(lock);
        synchronized (lock) {
            System.out.println("the lock is free, and the thread " + foreign.getState());
        }
        foreign.join();
        // The VM's end waits for this thread, and not for the daemon.
        Thread worker = new Thread(() -> {
            for (int nth = 0; nth < 1000; nth++) {
                Thread.yield();
            }
            System.out.println("the worker ends");
        });
        Thread daemon = new Thread(() -> {
            synchronized (Ends.class) {
                System.out.println("never");
            }
        });
        daemon.setDaemon(true);
        synchronized (Ends.class) {
            daemon.start();
            worker.start();
            System.out.println("destroyed: " + destroy() + " " + worker.isAlive());
            System.out.println("again: " + destroy());
            Runtime.getRuntime().halt(3);
        }
    }
}
