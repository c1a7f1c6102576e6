import java.lang.ref.*;

/** References, finalizers and a heap that is full. */
public class References {
    static volatile int fin;
    static Object keep;
    protected void finalize() {
        fin++;
    }
    static WeakReference<Object> weak(ReferenceQueue<Object> q) {
        return new WeakReference<Object>(new Object(), q);
    }
    static PhantomReference<Object> phantom(ReferenceQueue<Object> q) {
        return new PhantomReference<Object>(new Object(), q);
    }
    /** A field of the name that the library's class has. */
    static class Shadowing extends WeakReference<Object> {
        ReferenceQueue<Object> queue;
        Shadowing(ReferenceQueue<Object> q) {
            super(new Object(), q);
        }
    }
    static WeakReference<Object> shadowing(ReferenceQueue<Object> q) {
        return new Shadowing(q);
    }
    static void make() {
        for (int i = 0; i < 10; i++) new References();
    }
    public static void main(String[] a) throws Exception {
        ReferenceQueue<Object> q = new ReferenceQueue<Object>();
        WeakReference<Object> w = weak(q);
        keep = new Object();
        WeakReference<Object> k = new WeakReference<Object>(keep);
        SoftReference<Object> s = new SoftReference<Object>(new Object());
        make();
        System.gc();
        System.out.println(w.get() + " " + (k.get() == keep) + " " + (s.get() != null));
        System.out.println(q.remove(5000) == w);
        System.runFinalization();
        System.out.println(fin);
        PhantomReference<Object> ph = phantom(q);
        System.gc();
        System.out.println(q.remove(5000) == ph);
        WeakReference<Object> sh = shadowing(q);
        System.gc();
        System.out.println(q.remove(5000) == sh);
        byte[][] b = new byte[100][];
        for (int i = 0; i < 2000; i++) b[i % 100] = new byte[50000];
        System.out.println("gc ok");
        try {
            long[][] all = new long[1000][];
            for (int i = 0; i < 1000; i++) all[i] = new long[1 << 20];
        } catch (OutOfMemoryError e) {
            System.out.println("OOME");
        }
    }
}
