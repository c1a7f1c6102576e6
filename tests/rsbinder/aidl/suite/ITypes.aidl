package suite;

import suite.IEcho;

/** Every type that AIDL's Rust side knows: each comes back as it went, arrays reversed as well. */
interface ITypes {
    @Backing(type="byte")
    enum Level { LOW = -1, MIDDLE = 0, HIGH = 1 }

    @Backing(type="int")
    enum Colour { RED = 0x70ff0000, GREEN = 0x0000ff00, BLUE = -1 }

    @Backing(type="long")
    enum Wide { SMALLEST = 1, LARGEST = 0x7fffffffffffffff }

    @RustDerive(Clone=true, PartialEq=true)
    parcelable Point {
        int x;
        int y;
        String label = "origin";
    }

    @RustDerive(Clone=true, PartialEq=true)
    union Value {
        int number = 0;
        String text;
        long[] list;
        Point point;
        Level level;
    }

    @RustDerive(Clone=true, PartialEq=true)
    parcelable Everything {
        boolean flag;
        byte octet;
        char letter;
        int number;
        long large;
        float single;
        double twice;
        String text = "";
        @nullable String absent;
        byte[] octets;
        int[] numbers;
        String[] texts;
        List<String> list;
        int[2][3] table;
        Level level = Level.MIDDLE;
        Colour[] colours;
        Wide wide = Wide.SMALLEST;
        Point point;
        @nullable Point noPoint;
        Point[] points;
        Value value;
        @nullable IBinder binder;
    }

    parcelable Wrapped {
        int number;
        ParcelableHolder holder;
    }

    /** Descriptors cannot be cloned, so they travel in a parcelable of their own. */
    parcelable Files {
        ParcelFileDescriptor[] files;
        @nullable ParcelFileDescriptor noFile;
    }

    boolean repeatBoolean(boolean v);
    byte repeatByte(byte v);
    char repeatChar(char v);
    int repeatInt(int v);
    long repeatLong(long v);
    float repeatFloat(float v);
    double repeatDouble(double v);
    String repeatString(String v);
    Level repeatLevel(Level v);
    Colour repeatColour(Colour v);
    Wide repeatWide(Wide v);

    boolean[] reverseBooleans(in boolean[] v, out boolean[] copy);
    byte[] reverseBytes(in byte[] v, out byte[] copy);
    char[] reverseChars(in char[] v, out char[] copy);
    int[] reverseInts(in int[] v, out int[] copy);
    long[] reverseLongs(in long[] v, out long[] copy);
    float[] reverseFloats(in float[] v, out float[] copy);
    double[] reverseDoubles(in double[] v, out double[] copy);
    String[] reverseStrings(in String[] v, out String[] copy);
    Level[] reverseLevels(in Level[] v, out Level[] copy);
    Colour[] reverseColours(in Colour[] v, out Colour[] copy);
    Wide[] reverseWides(in Wide[] v, out Wide[] copy);

    @nullable String repeatNullableString(@nullable String v);
    @nullable int[] repeatNullableInts(in @nullable int[] v);
    @nullable Point repeatNullablePoint(in @nullable Point v);
    @nullable List<String> repeatNullableList(in @nullable List<String> v);
    @nullable IBinder repeatNullableBinder(@nullable IBinder v);
    @nullable IEcho repeatNullableEcho(@nullable IEcho v);

    List<String> reverseList(in List<String> v, out List<String> copy);
    int[2][3] repeatTable(in int[2][3] v);
    Point movePoint(in Point v, int dx, int dy);
    void growList(inout List<String> v);
    Value repeatValue(in Value v);
    Everything repeatEverything(in Everything v);
    Files repeatFiles(in Files v);
    ParcelFileDescriptor repeatFile(in ParcelFileDescriptor v);
    /** Sets `number` to that of the point in the holder, and puts a point twice as far into it. */
    void unwrap(inout Wrapped v);

    IBinder repeatBinder(IBinder v);
    IBinder[] reverseBinders(in IBinder[] v, out IBinder[] copy);
    IEcho repeatEcho(IEcho v);
    IEcho[] reverseEchoes(in IEcho[] v);
    List<IEcho> reverseEchoList(in List<IEcho> v);
    /** An object of the service's own; the same one for the same name. */
    IEcho make(String name);

    /** Fails with this service-specific code. */
    void fail(int code, String message);
    /** Answers as a service does that does not know the method. */
    void missing();
}
