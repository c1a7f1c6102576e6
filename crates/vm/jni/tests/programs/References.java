import java.lang.ref.WeakReference;

/** Local references with frames, global and weak global ones, while garbage is collected. */
public class References {
    static native boolean locals(Object object);
    static native Object frames(Object object);
    static native Object many(int count);
    static native void keep(Object object);
    static native Object kept();
    static native void release();
    static native void watch(Object object);
    static native Object watched();
    static native boolean isGone();
    static native void stopWatching();
    static native String kinds(Object object);
    static native Object link(int count, Class<?> of);

    static class Node {
        Node next;
        int number;
    }

    static void collect() {
        System.gc();
        byte[][] garbage = new byte[100][];
        for (int nth = 0; nth < 2000; nth++) {
            garbage[nth % 100] = new byte[1000];
        }
    }

    public static void main(String[] args) throws InterruptedException {
        System.loadLibrary("jnitest");
        System.out.println(locals(new Object()));
        System.out.println(frames("framed"));
        System.out.println(((Object[]) many(3000)).length);
        keep(new String("kept"));
        collect();
        System.out.println(kept());
        release();
        System.out.println(kept());
        String text = new String("watched");
        watch(text);
        collect();
        System.out.println(watched() + " " + isGone() + " " + text);
        text = null;
        for (int nth = 0; nth < 1000 && !isGone(); nth++) {
            collect();
        }
        System.out.println(watched() + " " + isGone());
        stopWatching();
        System.out.println(kinds("kinds"));
        Node node = (Node) link(5000, Node.class);
        int sum = 0, count = 0;
        for (; node != null; node = node.next) {
            sum += node.number;
            count++;
        }
        System.out.println(count + " " + sum);
        for (int nth = 0; nth < 2000; nth++) {
            if (((Object[]) many(20)).length != 20) {
                System.out.println("lost");
            }
        }
    }
}
