import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * A real-time thread beside a thread that makes garbage: in each period it allocates objects of 16
 * bytes, at SCHED_FIFO 80, bound to one processor. Periods begin at multiples of their length on
 * the monotonic clock, and a phase: so a thread outside knows when. A period that comes while an
 * earlier one is late is late itself.
 *
 * Prints the number of the first period on that clock, the minor faults and the preemptions of the
 * thread, and then for each period how late its work was done, in nanoseconds.
 *
 * Arguments: periods, their length and phase in microseconds, the processor, objects in a period,
 * megabytes of garbage a second or 0 for none, and the garbage's shape: acyclic, cyclic or mixed.
 */
public class Periodic {
    private static final int PRIORITY = 80;
    /** Time before the first period that counts. */
    private static final long WARM_UP_NS = 1_000_000_000;
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

    /** The kernel's number of the calling thread. */
    private static String tid() throws IOException {
        String name = Thread.currentThread().getName();
        for (File task : new File("/proc/self/task").listFiles()) {
            if (words(new File(task, "comm"))[0].equals(name)) {
                return task.getName();
            }
        }
        throw new IllegalStateException("no thread " + name);
    }

    private static String[] words(File file) throws IOException {
        try (BufferedReader lines = new BufferedReader(new FileReader(file))) {
            return lines.readLine().split(" ");
        }
    }

    /** Minor faults of a thread so far. */
    private static long faults(String tid) throws IOException {
        return Long.parseLong(words(new File("/proc/self/task/" + tid + "/stat"))[9]);
    }

    /** How often the scheduler has preempted a thread so far. */
    private static long preemptions(String tid) throws IOException {
        File file = new File("/proc/self/task/" + tid + "/status");
        try (BufferedReader lines = new BufferedReader(new FileReader(file))) {
            String name = "nonvoluntary_ctxt_switches:";
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith(name)) {
                    return Long.parseLong(line.substring(name.length()).trim());
                }
            }
        }
        throw new IllegalStateException("the kernel counts no preemptions");
    }

    private static void run(String... command) throws Exception {
        Process process = new ProcessBuilder(command).start();
        if (process.waitFor() != 0) {
            throw new IllegalStateException(command[0] + " refuses");
        }
    }

    /**
     * Gives the calling thread its priority: by this project's class, or by chrt from outside.
     * Locked memory is there, too; the JDK's machine has an option that touches its heap.
     */
    private static void becomeRealTime(String tid) throws Exception {
        if (System.getProperty("java.vm.name").equals("Dalvik")) {
            // After the last fork, which shares the memory until it is written to.
            new baton.rt.MemoryLock();
            baton.rt.RealTime.setPriority(PRIORITY);
        } else {
            run("chrt", "-f", "-p", Integer.toString(PRIORITY), tid);
        }
    }

    /** The number of the first period that counts. */
    private static long work(long[] late, long periodNs, long phaseNs, int objects) {
        int warmUp = (int) (WARM_UP_NS / periodNs);
        long first = (System.nanoTime() - phaseNs) / periodNs + 1 + warmUp;
        for (int period = -warmUp; period < late.length; period++) {
            long due = (first + period) * periodNs + phaseNs;
            for (long wait = due - System.nanoTime(); wait > 0; wait = due - System.nanoTime()) {
                LockSupport.parkNanos(wait);
            }
            for (int i = 0; i < objects; i++) {
                Small small = new Small();
                small.value = i;
                sink = small;
            }
            if (period >= 0) {
                late[period] = System.nanoTime() - due;
            }
        }
        return first;
    }

    public static void main(String[] arguments) throws Exception {
        long[] late = new long[Integer.parseInt(arguments[0])];
        long periodNs = Long.parseLong(arguments[1]) * 1000;
        long phaseNs = Long.parseLong(arguments[2]) * 1000;
        int objects = Integer.parseInt(arguments[4]);
        int megabytes = Integer.parseInt(arguments[5]);
        StringBuilder text = new StringBuilder();
        CountDownLatch ready = new CountDownLatch(1);
        Thread load = new Thread(() -> load(megabytes, arguments[6]), "load");
        Thread periodic = new Thread(() -> {
            try {
                String tid = tid();
                run("taskset", "-p", "-c", arguments[3], tid);
                becomeRealTime(tid);
                ready.countDown();
                long faults = faults(tid);
                long preemptions = preemptions(tid);
                long first = work(late, periodNs, phaseNs, objects);
                text.append(first).append('\n');
                text.append(faults(tid) - faults).append('\n');
                text.append(preemptions(tid) - preemptions).append('\n');
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        }, "periodic");
        periodic.start();
        ready.await();
        // By this thread: one that the other starts would have its priority.
        if (megabytes > 0) {
            load.start();
        }
        periodic.join();
        isDone = true;
        load.join();
        for (long it : late) {
            text.append(it).append('\n');
        }
        System.out.print(text);
    }
}
