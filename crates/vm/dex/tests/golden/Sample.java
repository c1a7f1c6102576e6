import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** A little of everything that dx writes. */
public class Sample implements Runnable {
    @Retention(RetentionPolicy.RUNTIME)
    @interface Note {
        String text() default "none";

        int[] numbers() default {};

        Class<?> type() default Object.class;

        Color color() default Color.RED;
    }

    enum Color {
        RED,
        GREEN
    }

    static final boolean TRUTH = true;
    static final byte BYTE = -1;
    static final short SHORT = -300;
    static final char CHAR = '\uffff';
    static final int INT = Integer.MIN_VALUE;
    static final long LONG = Long.MAX_VALUE;
    static final float FLOAT = 1.5f;
    static final double DOUBLE = -2.5;
    static final String STRING = "z\u0000\u00e9\u20ac\ud83d\ude00";
    static int counter;

    @Note(text = "a field", numbers = {1, -2}) private long value;

    @Note(type = String.class, color = Color.GREEN)
    public int choose(int which, @Note(text = "a parameter") String name) throws Exception {
        switch (which) {
            case 1:
                return 10;
            case 2:
                return 20;
            case 3:
                return 30;
            default:
        }
        switch (which) {
            case -1000:
                return 1;
            case 100000:
                return 2;
            default:
        }
        try {
            return Integer.parseInt(name);
        } catch (NumberFormatException e) {
            return -1;
        } finally {
            counter++;
        }
    }

    @Override
    public void run() {
        int[] numbers = {1, 2, 3, 4};
        Runnable lambda = () -> value += numbers.length;
        synchronized (this) {
            lambda.run();
        }
    }

    native int missing(long wide, double[][] arrays);
}
