/** Natives of all types of arguments and results, in registers and on the stack, and their names. */
public class Types {
    static native boolean not(boolean value);
    static native byte negateByte(byte value);
    static native char nextChar(char value);
    static native short negateShort(short value);
    static native int negateInt(int value);
    static native long negateLong(long value);
    static native float halfFloat(float value);
    static native double halfDouble(double value);
    static native Object same(Object value);
    static native void nothing();
    static native boolean isClass(Class<?> own);

    static native String many(boolean z, byte b, char c, short s, int i, long j, float f, double d,
        String l, long j2, float f2, int i2, double d2, byte b2, double d3, float f3, double d4,
        float f4, float f5, double d5, char c2, String l2);

    native int instance(int value);
    native synchronized int locked(int value);

    // Namesakes have their parameters in the functions' names.
    static native String named(int value);
    static native String named(long[] value, String text);
    static native String under_score(int value);
    static native String grün$(int value);

    static class Inner {
        static native String where();
    }

    int base = 7;

    // Results that C leaves wider than they are.
    static native boolean wideBoolean();
    static native byte wideByte();
    static native char wideChar();
    static native short wideShort();

    static native int sum(int... numbers);
    static native int missing(int value, String text);

    public static void main(String[] args) {
        System.loadLibrary("jnitest");
        System.out.println(not(true) + " " + not(false));
        System.out.println(negateByte((byte) -128) + " " + negateByte((byte) 5));
        System.out.println((int) nextChar('a') + " " + (int) nextChar('\uffff'));
        System.out.println(negateShort((short) -32768) + " " + negateShort((short) 5));
        System.out.println(negateInt(Integer.MIN_VALUE) + " " + negateInt(5));
        System.out.println(negateLong(Long.MIN_VALUE) + " " + negateLong(1L << 40));
        System.out.println(halfFloat(3) + " " + halfFloat(Float.NaN));
        System.out.println(halfDouble(3) + " " + halfDouble(-0.0));
        String text = new String("text");
        System.out.println((same(text) == text) + " " + same(null) + " " + isClass(Types.class));
        nothing();
        System.out.println(many(true, (byte) -1, '\u20ac', (short) -2, -3, -4L << 33, 1.5f, 2.5,
            "first", Long.MAX_VALUE, -0.25f, Integer.MIN_VALUE, 1e300, (byte) 100, -7.5, 3.25f,
            4.125, 5.5f, 6.5f, 7.75, 'z', "last"));
        Types types = new Types();
        System.out.println(types.instance(5) + " " + types.locked(6));
        System.out.println(named(1) + " " + named(new long[3], "text"));
        System.out.println(under_score(1) + " " + grün$(2) + " " + Inner.where());
        System.out.println(wideBoolean() + " " + wideByte() + " " + (int) wideChar() + " "
            + wideShort());
        System.out.println(sum(1, 2, 3));
        try {
            missing(1, "");
        } catch (UnsatisfiedLinkError error) {
            System.out.println("missing");
        }
        for (String name : new String[] {"jnitest", "there-is-none"}) {
            try {
                System.loadLibrary(name);
                System.out.println("loaded");
            } catch (UnsatisfiedLinkError error) {
                System.out.println("no " + name);
            }
        }
        try {
            System.load("/there/is/none.so");
        } catch (UnsatisfiedLinkError error) {
            System.out.println("no file");
        }
        try {
            System.load(System.getProperty("java.library.path") + "/libjniversion.so");
        } catch (UnsatisfiedLinkError error) {
            System.out.println("no version");
        }
        long sum = 0;
        for (int nth = 0; nth < 100000; nth++) {
            sum += negateInt(nth) + (same(text) == text ? 1 : 0);
        }
        System.out.println(sum);
    }
}
