/** Strings: UTF-16, modified UTF-8, ranges, and the characters in place. */
public class Text {
    static native String utf(String text);
    static native String utf16(String text);
    static native String critical(String text);
    static native int[] lengths(String text);
    static native String region(String text, int start, int count);
    static native String utfRegion(String text, int start, int count);
    static native String make(int what);

    static void show(String text) {
        StringBuilder units = new StringBuilder();
        for (char unit : text.toCharArray()) {
            units.append(Integer.toHexString(unit)).append(' ');
        }
        System.out.println(units);
    }

    public static void main(String[] args) {
        System.loadLibrary("jnitest");
        String[] texts = {"", "plain", "gr\u00fcn \u20ac", "zero\0in it", "\ud83d\ude00 pair",
            "\ud83d alone", "part of one".substring(5, 7)};
        for (String text : texts) {
            show(utf(text));
            show(utf16(text));
            show(critical(text));
            int[] lengths = lengths(text);
            System.out.println(lengths[0] + " " + lengths[1]);
            show(region(text, 0, text.length()));
        }
        show(region("0123456789", 3, 4));
        show(utfRegion("\u20ac123456789", 0, 4));
        int[][] wrong = {{-1, 2}, {8, 3}, {11, 0}, {0, -1}};
        for (int[] range : wrong) {
            try {
                region("0123456789", range[0], range[1]);
            } catch (StringIndexOutOfBoundsException exception) {
                System.out.println("out of bounds");
            }
            try {
                utfRegion("0123456789", range[0], range[1]);
            } catch (StringIndexOutOfBoundsException exception) {
                System.out.println("out of bounds");
            }
        }
        show(region("0123456789", 10, 0));
        System.out.println(make(0));
        show(make(1));
        show(make(2));
    }
}
