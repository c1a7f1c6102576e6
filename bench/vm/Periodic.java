import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.util.concurrent.locks.LockSupport;

/**
 * A real-time thread beside a thread that makes garbage: each 10 ms it allocates objects of 16
 * bytes, at SCHED_FIFO 80. Prints for each period how late its work was done, in nanoseconds.
 *
 * Arguments: periods, objects in a period, megabytes of garbage a second or 0 for none, and the
 * garbage's shape: acyclic, cyclic or mixed.
 */
public class Periodic {
    private static final long PERIOD_NS = 10_000_000;
    private static final int PRIORITY = 80;
    /** Objects of a cluster of garbage: a list, or a ring. */
    private static final int CLUSTER = 100;
    /** The size of a node on both machines. */
    private static final int NODE_BYTES = 24;

    private static volatile boolean isDone;
    /** What is allocated is used. */
    static Object sink;

    static final class Node {
        Node next;
        int value;
    }

    /** 16 bytes on both machines: a header of 12, and an int. */
    static final class Small {
        int value;
    }

    private static Node cluster(boolean isCyclic) {
        Node last = new Node();
        Node first = last;
        for (int i = 1; i < CLUSTER; i++) {
            Node node = new Node();
            node.next = first;
            first = node;
        }
        if (isCyclic) {
            last.next = first;
        }
        return first;
    }

    private static void load(int megabytes, String shape) {
        long began = System.nanoTime();
        long clusters = 0;
        while (!isDone) {
            boolean isCyclic = shape.equals("cyclic") || shape.equals("mixed") && clusters % 2 == 0;
            sink = cluster(isCyclic);
            clusters++;
            long due = clusters * CLUSTER * NODE_BYTES * 1000 / megabytes;
            long ahead = due - (System.nanoTime() - began);
            if (ahead > 1_000_000) {
                LockSupport.parkNanos(ahead);
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        System.err.println("load: "
                + Math.round(clusters * CLUSTER * NODE_BYTES / 1e6 / seconds) + " MB/s");
    }

    /** Gives the calling thread its priority: by this project's class, or by chrt from outside. */
    private static void becomeRealTime() throws Exception {
        if (System.getProperty("java.vm.name").equals("Dalvik")) {
            baton.rt.RealTime.setPriority(PRIORITY);
            return;
        }
        String name = Thread.currentThread().getName();
        for (File task : new File("/proc/self/task").listFiles()) {
            try (BufferedReader comm = new BufferedReader(new FileReader(new File(task, "comm")))) {
                if (comm.readLine().equals(name)) {
                    Process chrt = new ProcessBuilder(
                            "chrt", "-f", "-p", Integer.toString(PRIORITY), task.getName())
                            .inheritIO().start();
                    if (chrt.waitFor() != 0) {
                        throw new IllegalStateException("chrt refuses");
                    }
                    return;
                }
            }
        }
        throw new IllegalStateException("no thread " + name);
    }

    private static void work(long[] late, int objects) {
        for (int period = -100; period < late.length; period++) {
            // Not a multiple of when the program began: periods start afresh after a delay.
            long due = System.nanoTime() + PERIOD_NS;
            LockSupport.parkNanos(PERIOD_NS);
            for (int i = 0; i < objects; i++) {
                Small small = new Small();
                small.value = i;
                sink = small;
            }
            if (period >= 0) {
                late[period] = System.nanoTime() - due;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        long[] late = new long[Integer.parseInt(arguments[0])];
        int objects = Integer.parseInt(arguments[1]);
        int megabytes = Integer.parseInt(arguments[2]);
        Thread periodic = new Thread(() -> {
            try {
                becomeRealTime();
                work(late, objects);
            } catch (Exception error) {
                error.printStackTrace();
                System.exit(1);
            }
        }, "periodic");
        Thread load = new Thread(() -> load(megabytes, arguments[3]), "load");
        if (megabytes > 0) {
            load.start();
        }
        periodic.start();
        periodic.join();
        isDone = true;
        load.join();
        StringBuilder text = new StringBuilder();
        for (long it : late) {
            text.append(it).append('\n');
        }
        System.out.print(text);
    }
}
