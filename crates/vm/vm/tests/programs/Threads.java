import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** Threads, monitors, interrupts and java.util.concurrent. */
public class Threads {
    /** Fields of the names that the library's class has. */
    static class Shadowing extends Thread {
        Object lock = new Object();
        ThreadGroup group;
        String name;
        int priority;
        boolean daemon = true;
        long stackSize = -1;
        long threadPtr = -1;
        long id = -1;
        @Override
        public void run() {
            System.out.println("shadowing " + getName().startsWith("Thread-") + lock.equals(group)
                    + name + priority + daemon + stackSize + threadPtr + id);
        }
    }
    static int n;
    static final Object lock = new Object();

    /** How often of 300 times a thread may not notify at an object that others lock and leave. */
    static int refused(Object shared) throws Exception {
        synchronized (shared) {
            shared.hashCode();
        }
        AtomicBoolean ends = new AtomicBoolean();
        Thread[] owners = new Thread[3];
        for (int i = 0; i < owners.length; i++) {
            owners[i] = new Thread(() -> {
                while (!ends.get()) synchronized (shared) {
                    shared.hashCode();
                }
            });
            owners[i].start();
        }
        int refused = 0;
        for (int i = 0; i < 300; i++) {
            try {
                shared.notify();
            } catch (IllegalMonitorStateException e) {
                refused++;
            }
        }
        ends.set(true);
        for (Thread owner : owners) owner.join();
        return refused;
    }

    public static void main(String[] a) throws Exception {
        Thread[] ts = new Thread[4];
        for (int i = 0; i < 4; i++) {
            ts[i] = new Thread() {
                public void run() {
                    for (int j = 0; j < 1000; j++) synchronized (lock) {
                        n++;
                    }
                }
            };
            ts[i].start();
        }
        for (Thread t : ts) t.join();
        System.out.println(n);
        final boolean[] ready = {false};
        Thread w = new Thread(() -> {
            synchronized (lock) {
                try {
                    while (!ready[0]) lock.wait();
                    System.out.println("notified");
                } catch (InterruptedException e) {
                }
            }
        });
        w.start();
        synchronized (lock) {
            ready[0] = true;
            lock.notifyAll();
        }
        w.join();
        Thread sl = new Thread(() -> {
            try {
                Thread.sleep(100000);
            } catch (InterruptedException e) {
                System.out.println("interrupted " + Thread.currentThread().isInterrupted());
            }
        });
        sl.start();
        sl.interrupt();
        sl.join();
        System.out.println(sl.isAlive() + " " + sl.getState());
        try {
            lock.notify();
        } catch (IllegalMonitorStateException e) {
            System.out.println("IMSE");
        }
        System.out.println(refused(new Object()));
        ExecutorService ex = Executors.newFixedThreadPool(3);
        Future<Integer> f = ex.submit(() -> 6 * 7);
        System.out.println(f.get());
        ex.shutdown();
        System.out.println(ex.awaitTermination(10, TimeUnit.SECONDS));
        AtomicInteger ai = new AtomicInteger();
        AtomicLong al = new AtomicLong(5);
        ai.incrementAndGet();
        al.compareAndSet(5, 6);
        AtomicReference<String> ar = new AtomicReference<String>("x");
        ar.compareAndSet("x", "y");
        System.out.println(ai + " " + al + " " + ar);
        ConcurrentHashMap<String,Integer> ch = new ConcurrentHashMap<String,Integer>();
        ch.put("a", 1);
        System.out.println(ch.putIfAbsent("a", 2) + " " + ch);
        CountDownLatch cl = new CountDownLatch(2);
        for (int i = 0; i < 2; i++) new Thread(() -> cl.countDown()).start();
        cl.await();
        System.out.println("latched");
        BlockingQueue<Integer> q = new LinkedBlockingQueue<Integer>();
        new Thread(() -> {
            for (int i = 0; i < 3; i++) q.add(i);
        }).start();
        System.out.println(q.take() + q.take() + q.take());
        ThreadLocal<String> tl = new ThreadLocal<String>() {
            protected String initialValue() {
                return "init";
            }
        };
        System.out.println(tl.get());
        Thread u = new Thread(() -> {
            throw new RuntimeException("boom");
        });
        u.setUncaughtExceptionHandler((t, e) -> System.out.println("handler " + e.getMessage()));
        u.start();
        u.join();
        System.out.println(Thread.holdsLock(lock) + " " + Thread.currentThread().getName()
                + " " + Thread.currentThread().getPriority());
        Object o = new Object();
        int h = o.hashCode();
        synchronized (o) {
            System.out.println(h == o.hashCode());
        }
        System.out.println(h == System.identityHashCode(o));
        Shadowing shadowing = new Shadowing();
        shadowing.start();
        shadowing.join();
        System.out.println(shadowing.getPriority() + " " + shadowing.isDaemon() + " "
                + shadowing.getState() + " " + shadowing.isAlive());
        Thread d = new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(1000);
                } catch (InterruptedException e) {
                }
            }
        });
        d.setDaemon(true);
        d.start();
        System.out.println("end");
    }
}
