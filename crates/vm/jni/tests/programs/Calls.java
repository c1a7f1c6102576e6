/** C calls Java: all types, in the forms with ..., va_list and an array, three ways to choose. */
public class Calls {
    static class Base {
        String name() { return "base"; }
    }

    static class Derived extends Base {
        @Override String name() { return "derived"; }
    }

    interface Shape {
        double area();
        default String describe(String unit) { return area() + unit; }
    }

    static class Square implements Shape {
        final double side;
        Square(double side) { this.side = side; }
        Square(boolean z, byte b, char c, short s, int i, long j, float f, double d, String l) {
            side = d;
            System.out.println(z + " " + b + " " + c + " " + s + " " + i + " " + j + " " + f + " "
                + d + " " + l);
        }
        public double area() { return side * side; }
    }

    boolean z(boolean z, byte b, char c, short s, int i, long j, float f, double d, String l) {
        show(z, b, c, s, i, j, f, d, l);
        return !z;
    }
    byte b(byte value) { return (byte) -value; }
    char c(char value) { return (char) (value + 1); }
    short s(short value) { return (short) -value; }
    int i(int value) { return -value; }
    long j(long value) { return -value; }
    float f(float value) { return -value; }
    double d(double value) { return -value; }
    String l(String value) { return value + "!"; }
    void v(boolean value) { System.out.println("void " + value); }

    static boolean sz(boolean z, byte b, char c, short s, int i, long j, float f, double d,
        String l) {
        show(z, b, c, s, i, j, f, d, l);
        return !z;
    }
    static byte sb(byte value) { return (byte) -value; }
    static char sc(char value) { return (char) (value + 1); }
    static short ss(short value) { return (short) -value; }
    static int si(int value) { return -value; }
    static long sj(long value) { return -value; }
    static float sf(float value) { return -value; }
    static double sd(double value) { return -value; }
    static String sl(String value) { return value + "!"; }
    static void sv(boolean value) { System.out.println("static void " + value); }

    static void show(Object... values) {
        StringBuilder all = new StringBuilder();
        for (Object value : values) {
            all.append(value).append(' ');
        }
        System.out.println(all);
    }

    static class Fields {
        boolean z = true;
        byte b = -2;
        char c = '\u20ac';
        short s = -4;
        int i = -5;
        long j = -6L << 40;
        float f = 7.5f;
        double d = -8.25;
        String l = "instance";
        static boolean sz = true;
        static byte sb = -12;
        static char sc = '\u00e9';
        static short ss = -14;
        static int si = -15;
        static long sj = -16L << 40;
        static float sf = 17.5f;
        static double sd = -18.25;
        static String sl = "static";
    }

    static class Inherited extends Fields {}

    static boolean isInitialized;

    static class Late {
        static { isInitialized = true; }
        static int answer() { return 42; }
    }

    static native void all(Calls object, String text);
    static native void fields(Fields object, String text);
    static native String virtualName(Base object);
    static native String baseName(Base object);
    static native String describe(Shape shape);
    static native Object make(Class<?> of, double side);
    static native Object makeOfAll(Class<?> of, String text);
    static native Object allocate(Class<?> of);
    static native int late();
    static native int depth(int n);
    static int deeper(int n) { return n == 0 ? 0 : 1 + depth(n - 1); }

    public static void main(String[] args) {
        System.loadLibrary("jnitest");
        all(new Calls(), "text");
        Fields fields = new Inherited();
        fields(fields, "new");
        show(fields.z, fields.b, fields.c, fields.s, fields.i, fields.j, fields.f, fields.d,
            fields.l);
        show(Fields.sz, Fields.sb, Fields.sc, Fields.ss, Fields.si, Fields.sj, Fields.sf,
            Fields.sd, Fields.sl);
        System.out.println(virtualName(new Derived()) + " " + baseName(new Derived()));
        System.out.println(describe(new Square(3)) + " " + describe(() -> 2.5));
        System.out.println(((Square) make(Square.class, 4)).area());
        System.out.println(((Square) makeOfAll(Square.class, "of all")).area());
        System.out.println(((Square) allocate(Square.class)).side);
        System.out.println(isInitialized);
        System.out.println(late() + " " + isInitialized + " " + depth(100));
        try {
            depth(Integer.MAX_VALUE);
        } catch (StackOverflowError error) {
            System.out.println("overflow");
        }
        System.out.println(depth(10));
    }
}
