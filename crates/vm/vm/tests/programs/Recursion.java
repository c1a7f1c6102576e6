/** Recursions without an end: of frames with few registers and with many. */
public class Recursion {
    static int depth;

    static void small() {
        depth++;
        small();
    }

    static long large(long a, long b, long c, long d, long e, long f, long g) {
        return large(b, c, d, e, f, g, a) + a * b + c * d + e * f + g;
    }

    static int counted(int n) {
        return n == 0 ? 0 : 1 + counted(n - 1);
    }

    static void overflow(String what, Runnable recursion) {
        try {
            recursion.run();
        } catch (StackOverflowError e) {
            System.out.println(what);
        }
    }

    public static void main(String[] a) throws Exception {
        for (int i = 0; i < 3; i++) {
            depth = 0;
            overflow("small", () -> small());
            System.out.println(depth > 1000);
            overflow("large", () -> large(1, 2, 3, 4, 5, 6, 7));
            System.out.println(counted(1000));
        }
        Thread other = new Thread(() -> overflow("another thread", () -> small()));
        other.start();
        other.join();
        // The size of a thread's stack is its constructor's argument.
        Runnable deep = () -> System.out.println(counted(100_000));
        Thread large = new Thread(null, deep, "large", 64 << 20);
        large.start();
        large.join();
    }
}
