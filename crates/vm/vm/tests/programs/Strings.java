import java.util.*;

/** Strings, numbers as text, and arrays. */
public class Strings {
    public static void main(String[] a) throws Exception {
        System.out.println("abc".toUpperCase() + "ÄÖß".toLowerCase() + "straße".toUpperCase()
                + "x".hashCode());
        System.out.println(Arrays.toString("a,b,,c".split(","))
                + Arrays.toString("a1b22c".split("\\d+")));
        System.out.println("hello world".replaceAll("o(.)", "[$1]") + " "
                + "aaa".matches("a{3}"));
        System.out.println(String.format("%d %5d|%-5d|%05d %x %X %o", 42, 42, 42, 42, 255, 255,
                8));
        System.out.println(String.format("%s %10s|%-10s| %c %b %%", "s", "right", "left", 'c',
                true));
        System.out.println(String.format("%,d %+d %(d", 1234567, 5, -5));
        System.out.println(new String("grüße €".getBytes("UTF-8"), "UTF-8")
                + new String("abc".getBytes("ISO-8859-1"), "US-ASCII"));
        System.out.println(1.0 + " " + 0.1f + " " + 1e10 + " " + 1e-5 + " " + 123456789.125
                + " " + Double.MIN_VALUE + " " + Float.MAX_VALUE+" "+(float)1e10+" "+100.0/3);
        System.out.println(Double.parseDouble("3.14159") + " " + Double.parseDouble("1e400")
                + " " + Float.parseFloat("-0.0") + " " + Double.valueOf("0x1.8p1".length()));
        System.out.println(Math.sin(1) + " " + Math.pow(2, 0.5) + " " + Math.log(10) + " "
                + Math.exp(1) + " " + Math.cbrt(27) + " " + Math.atan2(1,2) + " "
                        + Math.tanh(0.5)+" "+Math.hypot(3,4));
        System.out.println(Math.round(2.5) + " " + Math.rint(2.5) + " " + Math.floor(-1.5)
                + " " + Math.ceil(-1.5) + " " + (int)Double.NaN + " " + (long)1e30);
        StringBuilder sb = new StringBuilder();
        for (int i = 0; i < 10; i++) sb.append(i).append(',');
        sb.reverse().insert(3, "xx");
        System.out.println(sb);
        System.out.println("intern".intern() == "intern" ? "same" : "different");
        System.out.println(Character.isLetter('é') + " " + Character.getNumericValue('7')
                + Character.toUpperCase('ß') + Character.isWhitespace(' ')
                        + Character.getType('A'));
        System.out.println("  trim ".trim() + "|" + "a-b".indexOf('-') + "|"
                + "abcabc".lastIndexOf("bc") + "|" + "b".compareTo("a"));
        System.out.println(Integer.toHexString(-1) + Long.toBinaryString(5)
                + Integer.parseInt("-7f", 16) + Long.MAX_VALUE + Integer.MIN_VALUE);
        try {
            Integer.parseInt("x");
        } catch (NumberFormatException e) {
            System.out.println("NFE");
        }
        try {
            Object o = "s";
            Integer i = (Integer) o;
        } catch (ClassCastException e) {
            System.out.println("CCE");
        }
        try {
            System.arraycopy(new int[3], 2, new int[3], 0, 2);
        } catch (ArrayIndexOutOfBoundsException e) {
            System.out.println("AIOOBE");
        }
        Object[] src = {"a", 1, "b"};
        String[] dst = new String[3];
        try {
            System.arraycopy(src, 0, dst, 0, 3);
        } catch (ArrayStoreException e) {
            System.out.println(dst[0] + dst[1]);
        }
        int[] arr = {1,2,3,4,5};
        System.arraycopy(arr, 0, arr, 1, 4);
        System.out.println(Arrays.toString(arr) + Arrays.toString(arr.clone()));
    }
}
