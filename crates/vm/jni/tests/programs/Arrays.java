import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Arrays of all types: copies and their modes, ranges, in place; and buffers. The C++ part. */
public class Arrays {
    static native Object[] types();
    static native int twice(int[] array, int mode);
    static native void twiceAll(boolean[] z, byte[] b, char[] c, short[] s, int[] i, long[] j,
        float[] f, double[] d);
    static native void regions(boolean[] z, byte[] b, char[] c, short[] s, int[] i, long[] j,
        float[] f, double[] d);
    static native int[] region(int[] array, int start, int count);
    static native long sumInPlace(long[] array);
    static native Object get(Object[] array, int index);
    static native void set(Object[] array, int index, Object value);
    static native Object[] filled(int length, Object value);
    static native int[] made(int length);
    static native ByteBuffer buffer(int capacity);
    static native String look(Object buffer);
    static native void freeBuffer(ByteBuffer buffer);

    interface Action { void run(); }

    static void caught(Action action) {
        try {
            action.run();
            System.out.println("nothing was thrown");
        } catch (RuntimeException exception) {
            System.out.println(exception.getClass().getName());
        }
    }

    public static void main(String[] args) {
        System.loadLibrary("jnitest");
        System.loadLibrary("jnitestcpp");
        for (Object array : types()) {
            System.out.println(array.getClass().getName() + " "
                + java.lang.reflect.Array.getLength(array));
        }
        for (int mode : new int[] {0, 1, 2}) {
            int[] array = {1, 2, 3};
            System.out.println(twice(array, mode) + " " + array[0] + " " + array[2]);
        }
        boolean[] z = {true, false};
        byte[] b = {1, -2};
        char[] c = {3, 4};
        short[] s = {5, -6};
        int[] i = {7, -8};
        long[] j = {9, -10};
        float[] f = {11, -12.5f};
        double[] d = {13, -14.5};
        twiceAll(z, b, c, s, i, j, f, d);
        System.out.println(z[0] + " " + z[1] + " " + b[1] + " " + (int) c[1] + " " + s[1] + " "
            + i[1] + " " + j[1] + " " + f[1] + " " + d[1]);
        regions(z, b, c, s, i, j, f, d);
        System.out.println(z[0] + " " + z[1] + " " + b[0] + " " + (int) c[0] + " " + s[0] + " "
            + i[0] + " " + j[0] + " " + f[0] + " " + d[0]);
        System.out.println(region(new int[] {1, 2, 3, 4}, 1, 2)[1]);
        System.out.println(region(new int[] {1, 2, 3, 4}, 4, 0).length);
        int[][] wrong = {{-1, 2}, {3, 2}, {5, 0}, {0, -1}, {Integer.MAX_VALUE, 1}};
        for (int[] range : wrong) {
            caught(() -> region(new int[4], range[0], range[1]));
        }
        long[] longs = new long[1000];
        java.util.Arrays.fill(longs, 1L << 33);
        System.out.println(sumInPlace(longs) + " " + longs[999]);
        Object[] objects = new String[] {"a", null};
        System.out.println(get(objects, 0) + " " + get(objects, 1));
        set(objects, 1, "b");
        System.out.println(objects[1]);
        caught(() -> get(objects, 2));
        caught(() -> get(objects, -1));
        caught(() -> set(objects, 2, "c"));
        caught(() -> set(objects, 0, 1));
        System.out.println(filled(3, "x")[2] + " " + filled(0, null).length);
        caught(() -> filled(-1, null));
        caught(() -> made(-1));
        System.out.println(made(5).length);

        ByteBuffer buffer = buffer(100);
        System.out.println(buffer.isDirect() + " " + buffer.capacity() + " " + buffer.get(99));
        buffer.put(3, (byte) 77);
        System.out.println(look(buffer));
        System.out.println(look(ByteBuffer.allocateDirect(64).put(3, (byte) 5)));
        buffer.order(ByteOrder.nativeOrder()).position(4);
        System.out.println(look(buffer.slice().order(ByteOrder.nativeOrder()).asIntBuffer()));
        System.out.println(look(ByteBuffer.allocate(8)) + " " + look("no buffer"));
        freeBuffer(buffer);
    }
}
