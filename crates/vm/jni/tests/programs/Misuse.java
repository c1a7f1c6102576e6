/** What C may not do: the process ends, and a message says what was wrong. */
public class Misuse {
    String text = "text";
    int number;

    static native void stale(Object object);
    static native String returned();
    static native void misuse(String what, Misuse object, String text, int[] numbers,
        int[] others);

    static void take(String text) {}
    int give() { return 1; }
    static void fail() { throw new RuntimeException("on purpose"); }

    public static void main(String[] args) {
        System.loadLibrary("jnitest");
        stale(new Object());
        if (args[0].equals("other returned")) {
            returned();
        }
        misuse(args[0], new Misuse(), "a text", new int[] {1, 2}, new int[] {3, 4});
        System.out.println("nothing happened");
    }
}
