/**
 * What a call from Java to C takes: prints how many nanoseconds 1,000 calls took, for each of some
 * thousands of them. `java` is a call of an empty Java method, which the others contain as well.
 */
public class Native {
    private static final int N_CALLS = 1000;
    private static final int[] INTS = new int[31];

    static native void empty();
    static native int copied(int[] ints);
    static native int inPlace(int[] ints);
    static void inJava() {}

    interface Calls {
        int run();
    }

    static int java() {
        for (int nth = 0; nth < N_CALLS; nth++) {
            inJava();
        }
        return 0;
    }

    static int nothing() {
        for (int nth = 0; nth < N_CALLS; nth++) {
            empty();
        }
        return 0;
    }

    static int copies() {
        int sum = 0;
        for (int nth = 0; nth < N_CALLS; nth++) {
            sum += copied(INTS);
        }
        return sum;
    }

    static int places() {
        int sum = 0;
        for (int nth = 0; nth < N_CALLS; nth++) {
            sum += inPlace(INTS);
        }
        return sum;
    }

    public static void main(String[] args) {
        System.loadLibrary("vm-native");
        for (int index = 0; index < INTS.length; index++) {
            INTS[index] = index;
        }
        Calls calls;
        int expected = 0;
        switch (args[0]) {
            case "java": calls = Native::java; break;
            case "empty": calls = Native::nothing; break;
            case "copied": calls = Native::copies; expected = N_CALLS * 465; break;
            case "in-place": calls = Native::places; expected = N_CALLS * 465; break;
            default: throw new IllegalArgumentException(args[0]);
        }
        int nTimes = Integer.parseInt(args[1]);
        // The first half warms up.
        for (int nth = -nTimes; nth < nTimes; nth++) {
            long before = System.nanoTime();
            int result = calls.run();
            long after = System.nanoTime();
            if (result != expected) {
                throw new AssertionError("a wrong sum: " + result);
            }
            if (nth >= 0) {
                System.out.println(after - before);
            }
        }
    }
}
