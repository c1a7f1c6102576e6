/** Long loops, whose instructions must not need any stack: arithmetic, arrays, fields, switches. */
public class Loops {
    int count;
    long total;
    Object last;
    static int calls;

    static int twice(int x) {
        calls++;
        return 2 * x;
    }

    public static void main(String[] a) {
        Loops own = new Loops();
        int[] numbers = new int[64];
        double[] doubles = new double[64];
        byte[] bytes = new byte[64];
        String[] texts = {"a", "b", "c", null};
        long sum = 0;
        double real = 0;
        for (int i = 1; i <= 400000; i++) {
            int at = i & 63;
            numbers[at] = i / (at + 1) % 17;
            doubles[at] = numbers[at] * 0.5;
            bytes[at] = (byte) i;
            own.count += numbers[at];
            own.total ^= (long) bytes[at] << (i & 31);
            own.last = texts[i & 3];
            sum += own.last == null ? 1 : ((String) own.last).length();
            real += doubles[(i * 7) & 63] - (float) i;
            switch (i % 5) {
                case 0: sum += 3; break;
                case 1: sum -= twice(i & 7); break;
                case 4: sum ^= i; break;
                default: sum = sum * 31 + at;
            }
            if (own.last instanceof String && i % 1000 == 0) {
                try {
                    numbers[i] = 1;
                } catch (ArrayIndexOutOfBoundsException e) {
                    sum++;
                }
                try {
                    sum += i / (own.count - own.count);
                } catch (ArithmeticException e) {
                    sum += 2;
                }
            }
        }
        System.out.println(sum + " " + real + " " + own.count + " " + own.total + " " + calls);
    }
}
