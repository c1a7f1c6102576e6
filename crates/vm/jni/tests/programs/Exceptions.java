/** Exceptions from C to Java, from Java to C, and through both. */
public class Exceptions {
    static class Own extends RuntimeException {
        Own(String message) { super(message); }
    }

    static native void throwNew(Class<?> of, String message);
    static native void throwIt(Throwable exception);
    static native String catchIt(int depth);
    static native int pass(int depth);
    static native int occurred();
    static native String lookUp(int what);
    static native void describe();

    static int fail(int depth) {
        if (depth > 0) {
            return pass(depth - 1);
        }
        throw new Own("from below");
    }

    interface Action { void run() throws Throwable; }

    static void caught(Action action) {
        try {
            action.run();
            System.out.println("nothing was thrown");
        } catch (Throwable exception) {
            System.out.println(exception.getClass().getName() + " " + exception.getMessage());
        }
    }

    public static void main(String[] args) throws Throwable {
        System.loadLibrary("jnitest");
        caught(() -> throwNew(Own.class, "a message"));
        caught(() -> throwNew(IllegalStateException.class, "g\u00fcltig"));
        caught(() -> throwNew(Error.class, null));
        Own own = new Own("one and the same");
        caught(() -> throwIt(own));
        System.out.println(catchIt(0) + " " + catchIt(5));
        caught(() -> pass(0));
        caught(() -> pass(7));
        try {
            pass(3);
        } catch (Own exception) {
            int frames = 0;
            for (StackTraceElement element : exception.getStackTrace()) {
                if (element.getMethodName().equals("pass") && element.isNativeMethod()) {
                    frames++;
                }
            }
            System.out.println("native frames " + frames);
        }
        System.out.println(occurred());
        for (int what = 0; what < 8; what++) {
            System.out.println(lookUp(what));
        }
        describe();
        for (int nth = 0; nth < 3000; nth++) {
            try {
                pass(2);
                System.out.println("nothing was thrown");
            } catch (Own exception) {
                continue;
            }
        }
        try {
            Object monitor = new Object();
            synchronized (monitor) {
                throwNew(Own.class, "inside");
            }
        } finally {
            System.out.println("finally");
            System.exit(0);
        }
    }
}
