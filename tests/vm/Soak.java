import baton.rt.Heap;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * Allocates many objects, of which few stay, and checks that none is freed while it is in use, that
 * none stays for ever, and that the heap does not fall to pieces.
 *
 * Each object has a number and a check value made of it. Objects lie in a table, at random places,
 * until others take these; then all of them are checked. At the end of a phase the table is
 * cleared: what is live has to be what was live at first.
 *
 * Arguments: objects, and rounds. Exit code 1 if something is wrong.
 */
public class Soak {
    /** Objects of a cluster: a list, or a ring. */
    private static final int CLUSTER = 100;
    /** Places of the table. */
    private static final int PLACES = 1000;
    /** Of so many clusters one stays for a while. */
    private static final int KEPT = 8;
    private static final int THREADS = 3;
    /** Blocks of threads that allocate, and what the library keeps. */
    private static final long SLACK_BYTES = 384 << 10;

    private static final AtomicReferenceArray<Object> table = new AtomicReferenceArray<>(PLACES);
    private static final AtomicInteger finalized = new AtomicInteger();
    private static volatile String wrong;
    private static int toFinalize;

    static class Node {
        Node next;
        Node other;
        int number;
        int check;
    }

    /** The first node of a cluster that is to be finalized. */
    static final class Last extends Node {
        @Override
        protected void finalize() {
            if (check != checkOf(number)) {
                wrong = "an object that is finalized was overwritten";
            }
            finalized.incrementAndGet();
        }
    }

    private static int checkOf(int number) {
        return number * 0x9e3779b1 ^ 0x5bd1e995;
    }

    /** One thread's work. */
    private static final class Worker {
        private int random;
        private int number;

        Worker(int seed) {
            random = seed * 0x9e3779b1 | 1;
            number = random;
        }

        int below(int bound) {
            random ^= random << 13;
            random ^= random >>> 17;
            random ^= random << 5;
            return (random >>> 1) % bound;
        }

        private Node cluster(Node first, boolean isRing) {
            int number = this.number;
            Node last = first;
            first.number = number;
            first.check = checkOf(number);
            for (int i = 1; i < CLUSTER; i++) {
                number++;
                Node node = new Node();
                node.next = first;
                node.number = number;
                node.check = checkOf(number);
                first = node;
            }
            if (isRing) {
                last.next = first;
            }
            this.number = number + 1;
            return first;
        }

        private Object put(Object object) {
            return table.getAndSet(below(PLACES), object);
        }

        void clusters(long count, boolean areRings) {
            for (long i = 0; i < count; i += CLUSTER) {
                Node first = cluster(new Node(), areRings);
                if (below(KEPT) == 0) {
                    check(put(first));
                }
            }
        }

        /** Lists and rings; those that stay refer to others that stay. */
        void mixed(long count) {
            for (long i = 0; i < count; i += CLUSTER) {
                Node first = cluster(new Node(), i / CLUSTER % 2 == 0);
                if (below(KEPT) != 0) {
                    continue;
                }
                Object other = table.get(below(PLACES));
                if (other instanceof Node) {
                    // No chain of clusters becomes long.
                    ((Node) other).other = null;
                    first.other = (Node) other;
                }
                check(put(first));
            }
        }

        /** Arrays of 16 bytes to some hundred KiB. */
        void sizes(long count) {
            byte[] before = new byte[2];
            for (long i = 0; i < count; i += 2) {
                int kind = below(10_000);
                int size = 2 + below(kind == 0 ? 200_000 : kind < 100 ? 4000 : kind < 2000 ? 500 : 60);
                byte[] bytes = new byte[size];
                bytes[0] = bytes[size - 1] = (byte) (size * 31);
                Object[] pair = new Object[1 + size % 7];
                pair[0] = bytes;
                pair[pair.length - 1] = bytes;
                if (below(KEPT) == 0) {
                    check(put(pair));
                }
            }
        }

        /** Weak references, and finalizers. */
        void references(long count) {
            ReferenceQueue<Node> queue = new ReferenceQueue<>();
            for (long i = 0; i < count; i += CLUSTER) {
                boolean hasFinalizer = i / CLUSTER % 64 == 0;
                if (hasFinalizer) {
                    toFinalize++;
                }
                Node first = hasFinalizer ? new Last() : new Node();
                first = cluster(first, i / CLUSTER % 2 == 0);
                if (below(KEPT) == 0) {
                    check(put(below(2) == 0 ? new WeakReference<Node>(first, queue) : first));
                }
                Object seen = table.get(below(PLACES));
                if (seen instanceof WeakReference) {
                    check(((WeakReference<?>) seen).get());
                }
                for (Object it = queue.poll(); it != null; it = queue.poll()) {
                    if (((WeakReference<?>) it).get() != null) {
                        wrong = "a reference in a queue still has its referent";
                    }
                }
            }
        }
    }

    /** Whether an object of the table is as it was made. */
    private static void check(Object object) {
        if (object instanceof Node) {
            Node first = (Node) object;
            Node node = first;
            int number = first.number;
            for (int i = 0; i < CLUSTER; i++) {
                if (node == null || node.number != number - i || node.check != checkOf(number - i)) {
                    wrong = "node " + i + " of a cluster is not as it was made";
                    return;
                }
                node = node.next;
            }
            if (node != null && node != first) {
                wrong = "a cluster has no end";
            }
        } else if (object instanceof Object[]) {
            Object[] pair = (Object[]) object;
            byte[] bytes = (byte[]) pair[0];
            byte expected = (byte) (bytes.length * 31);
            boolean isRight = bytes[0] == expected && bytes[bytes.length - 1] == expected;
            if (!isRight || pair.length != 1 + bytes.length % 7 || pair[pair.length - 1] != bytes) {
                wrong = "an array is not as it was made";
            }
        }
    }

    interface Work {
        void run(Worker worker, long count);
    }

    private static void threads(long count) {
        Thread[] threads = new Thread[THREADS];
        for (int i = 0; i < THREADS; i++) {
            Worker worker = new Worker(100 + i);
            threads[i] = new Thread(() -> {
                worker.clusters(count / THREADS / 2, true);
                worker.clusters(count / THREADS / 2, false);
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            while (thread.isAlive()) {
                try {
                    thread.join();
                } catch (InterruptedException ignored) {
                    // Nobody interrupts this thread.
                }
            }
        }
    }

    private static void collect() {
        for (int i = 0; i < 3; i++) {
            System.gc();
            System.runFinalization();
        }
    }

    private static long kib(long bytes) {
        return bytes >> 10;
    }

    private static void fail(String what) {
        System.out.println("soak: " + what);
        System.exit(1);
    }

    /** Of 100 bytes in use how many are in free cells, with the table full; -1 in a warm-up. */
    private static long phase(int round, String name, long count, long base, Work work) {
        work.run(new Worker(round + 1), count);
        collect();
        long used = Heap.usedBytes();
        long live = Heap.liveBytes();
        for (int i = 0; i < PLACES; i++) {
            check(table.getAndSet(i, null));
        }
        if (wrong != null) {
            fail(name + ": " + wrong);
        }
        collect();
        long left = Heap.liveBytes();
        if (base > 0) {
            long pieces = (used - live) * 100 / used;
            System.out.println("round " + round + ", " + name + ": " + count + " objects; "
                    + kib(live) + " KiB live, " + kib(used) + " KiB in use (" + pieces
                    + "% free in cells); then " + kib(left) + " KiB live, "
                    + kib(Heap.usedBytes()) + " KiB in use, longest free run "
                    + kib(Heap.longestFreeBytes()) + " KiB");
            if (left > base + SLACK_BYTES) {
                fail(name + ": objects stay for ever: at first " + kib(base) + " KiB were live");
            }
            return pieces;
        }
        return -1;
    }

    /** Returns the largest share of free cells. */
    private static long round(int round, long count, long base) {
        long each = count / 6;
        long most = 0;
        most = Math.max(most, phase(round, "lists", each, base, (w, n) -> w.clusters(n, false)));
        most = Math.max(most, phase(round, "rings", each, base, (w, n) -> w.clusters(n, true)));
        most = Math.max(most, phase(round, "mixed", each, base, Worker::mixed));
        most = Math.max(most, phase(round, "sizes", each, base, Worker::sizes));
        most = Math.max(most, phase(round, "threads", each, base, (w, n) -> threads(n)));
        most = Math.max(most, phase(round, "references", each, base, Worker::references));
        return most;
    }

    public static void main(String[] arguments) {
        long count = Long.parseLong(arguments[0]);
        int rounds = Integer.parseInt(arguments[1]);
        // Classes are loaded, and strings made.
        round(0, 60_000, -1);
        collect();
        long base = Heap.liveBytes();
        System.out.println("at first " + kib(base) + " KiB are live, "
                + kib(Heap.usedBytes()) + " KiB in use");
        long first = 0;
        long most = 0;
        for (int i = 1; i <= rounds; i++) {
            most = round(i, count / rounds, base);
            first = i == 1 ? most : first;
        }
        collect();
        if (finalized.get() != toFinalize) {
            fail(finalized.get() + " objects of " + toFinalize + " were finalized");
        }
        System.out.println(count + " objects; " + toFinalize + " finalized; at most " + first
                + "% free in cells in the first round, " + most + "% in the last");
        if (most > first + 10) {
            fail("the heap falls to pieces");
        }
    }
}
