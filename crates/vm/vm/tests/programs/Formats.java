import java.util.*;
import java.text.*;

/** Number, date and message formats. */
public class Formats {
    public static void main(String[] a) throws Exception {
        System.out.println(String.format(Locale.US,
                "%.2f %8.3f|%-9.2f|%09.2f %,.2f %e %.3e %g %+.1f", 3.14159, 2.5, 1.25, -3.5,
                        1234567.891, 12345.678, 0.00012, 0.5, 2.0));
        System.out.println(String.format(Locale.US, "%.0f %.0f %.1f %f %f %s", 1.5, 3.5, 0.75,
                1e10, Double.NaN, 1.0f));
        for (String p : new String[]{"#,##0.00", "0.###", "00.0", "#", "0.00E0",
                "$#,##0;($#,##0)", "0%", "#.##", "000"}) {
            DecimalFormat f = new DecimalFormat(p, new DecimalFormatSymbols(Locale.US));
            System.out.println(p + ": " + f.format(1234.5678) + " " + f.format(-0.126) + " "
                    + f.format(0) + " " + f.format(42L));
        }
        System.out.println(NumberFormat.getInstance(Locale.US).parse("1,234.5xyz") + " "
                + new DecimalFormat("0%", new DecimalFormatSymbols(Locale.US)).parse("50%")
                        + " " + NumberFormat.getInstance(Locale.US).parse("-7"));
        try {
            NumberFormat.getInstance(Locale.US).parse("abc");
        } catch (ParseException e) {
            System.out.println("PE");
        }
        System.out.println(MessageFormat.format("{0} is {1,number,#.#} at {2}", "x", 2.55, 3));
        SimpleDateFormat d = new SimpleDateFormat("yyyy-MM-dd HH:mm:ss EEE MMM", Locale.US);
        d.setTimeZone(TimeZone.getTimeZone("GMT"));
        System.out.println(d.format(new Date(0)) + " "
                + d.parse("2001-02-03 04:05:06 Sat Feb").getTime());
        System.out.println(new Scanner("12 3.5").nextInt() + " "
                + new Formatter(Locale.US).format("%tY-%<tm", new GregorianCalendar(2020, 0, 5)));
    }
}
