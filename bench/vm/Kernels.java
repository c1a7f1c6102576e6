import jnt.scimark2.FFT;
import jnt.scimark2.LU;
import jnt.scimark2.MonteCarlo;
import jnt.scimark2.Random;
import jnt.scimark2.SOR;
import jnt.scimark2.SparseCompRow;

/**
 * Kernels of an interpreter's benchmark: the six kinds that CaffeineMark has, and SciMark's five.
 *
 * <pre>java Kernels NAME ROUNDS [CLASS...]</pre>
 *
 * Loads the classes, whose libraries are there beside the kernel's. Prints a line for each round: its time in nanoseconds, and its result, which depends on all that
 * was computed and is the same on every machine.
 */
public final class Kernels {
    private static final int SEED = 101010;

    private Kernels() {}

    public static void main(String[] args) throws ClassNotFoundException {
        Kernel kernel = find(args[0]);
        int rounds = Integer.parseInt(args[1]);
        for (int i = 2; i < args.length; i++) {
            Class.forName(args[i]);
        }
        for (int round = 0; round < rounds; round++) {
            long start = System.nanoTime();
            long result = kernel.run();
            long end = System.nanoTime();
            System.out.println((end - start) + " " + Long.toHexString(result));
        }
    }

    /** Something to compute. */
    interface Kernel {
        long run();
    }

    private static Kernel find(String name) {
        switch (name) {
            case "sieve": return new Sieve();
            case "loop": return new Loop();
            case "logic": return new Logic();
            case "string": return new Strings();
            case "float": return new Floats();
            case "method": return new Methods();
            case "fft": return new Fourier();
            case "sor": return new Relaxation();
            case "monte-carlo": return new Integral();
            case "sparse": return new Sparse();
            case "lu": return new Factors();
            default: throw new IllegalArgumentException("no kernel " + name);
        }
    }

    /** Primes below 16,384, a byte array with one bound for each number. */
    static final class Sieve implements Kernel {
        private static final int SIZE = 16384;

        @Override
        public long run() {
            long sum = 0;
            byte[] crossed = new byte[SIZE];
            for (int time = 0; time < 40; time++) {
                for (int number = 0; number < SIZE; number++) {
                    crossed[number] = 0;
                }
                for (int number = 2; number < SIZE; number++) {
                    if (crossed[number] == 0) {
                        sum += number;
                        for (int multiple = 2 * number; multiple < SIZE; multiple += number) {
                            crossed[multiple] = 1;
                        }
                    }
                }
            }
            return sum;
        }
    }

    /** Nested loops: an exchange sort of integers, and their sums. */
    static final class Loop implements Kernel {
        @Override
        public long run() {
            int[] numbers = new int[400];
            long sum = 0;
            int state = SEED;
            for (int time = 0; time < 10; time++) {
                for (int at = 0; at < numbers.length; at++) {
                    state = state * 1664525 + 1013904223;
                    numbers[at] = state >>> 8;
                }
                for (int end = numbers.length - 1; end > 0; end--) {
                    for (int at = 0; at < end; at++) {
                        if (numbers[at] > numbers[at + 1]) {
                            int greater = numbers[at];
                            numbers[at] = numbers[at + 1];
                            numbers[at + 1] = greater;
                        }
                    }
                }
                for (int at = 0; at < numbers.length; at++) {
                    sum = 31 * sum + numbers[at];
                }
            }
            return sum;
        }
    }

    /** Decisions: a cellular automaton of one row, by conditions on three neighbours. */
    static final class Logic implements Kernel {
        @Override
        public long run() {
            boolean[] row = new boolean[256];
            boolean[] next = new boolean[256];
            row[128] = true;
            long sum = 0;
            for (int time = 0; time < 3000; time++) {
                for (int at = 1; at < 255; at++) {
                    boolean left = row[at - 1];
                    boolean own = row[at];
                    boolean right = row[at + 1];
                    if (left && own && right) {
                        next[at] = false;
                    } else if (left && !own && !right) {
                        next[at] = true;
                    } else if (!left && (own || right)) {
                        next[at] = true;
                    } else {
                        next[at] = false;
                    }
                }
                boolean[] free = row;
                row = next;
                next = free;
                if (row[time & 255]) {
                    sum += time;
                }
            }
            return sum;
        }
    }

    /** Strings: built, searched and taken apart. */
    static final class Strings implements Kernel {
        @Override
        public long run() {
            long sum = 0;
            for (int time = 0; time < 1500; time++) {
                StringBuilder text = new StringBuilder();
                for (int part = 0; part < 20; part++) {
                    text.append("part ").append(part * time).append(';');
                }
                String whole = text.toString();
                int from = 0;
                for (int end = whole.indexOf(';'); end >= 0; end = whole.indexOf(';', from)) {
                    String part = whole.substring(from, end);
                    sum += part.hashCode() + part.length();
                    from = end + 1;
                }
                sum += whole.toUpperCase(java.util.Locale.ROOT).compareTo(whole);
            }
            return sum;
        }
    }

    /** Floating point: points that are turned about three axes. */
    static final class Floats implements Kernel {
        @Override
        public long run() {
            double[] x = new double[100];
            double[] y = new double[100];
            double[] z = new double[100];
            for (int at = 0; at < 100; at++) {
                x[at] = at;
                y[at] = 100 - at;
                z[at] = at * 0.5;
            }
            double sine = 0.0625;
            double cosine = StrictMath.sqrt(1 - sine * sine);
            for (int time = 0; time < 3000; time++) {
                for (int at = 0; at < 100; at++) {
                    double turned = x[at] * cosine - y[at] * sine;
                    y[at] = x[at] * sine + y[at] * cosine;
                    x[at] = turned * cosine - z[at] * sine;
                    z[at] = turned * sine + z[at] * cosine;
                }
            }
            double sum = 0;
            for (int at = 0; at < 100; at++) {
                sum += x[at] + y[at] + z[at];
            }
            return Double.doubleToLongBits(sum);
        }
    }

    /** Calls: of a static method by itself, of virtual ones, and by an interface. */
    static final class Methods implements Kernel {
        private abstract static class Shape {
            abstract int area(int scale);
        }

        private static final class Square extends Shape {
            @Override
            int area(int scale) {
                return scale * scale;
            }
        }

        private static final class Strip extends Shape implements Comparable<Shape> {
            @Override
            int area(int scale) {
                return 3 * scale;
            }

            @Override
            public int compareTo(Shape other) {
                return area(2) - other.area(2);
            }
        }

        private static int fibonacci(int n) {
            return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
        }

        @Override
        public long run() {
            Strip strip = new Strip();
            Comparable<Shape> comparable = strip;
            Shape[] shapes = {new Square(), strip};
            long sum = fibonacci(22);
            for (int time = 0; time < 40000; time++) {
                Shape shape = shapes[time & 1];
                sum += shape.area(time & 15) + comparable.compareTo(shape);
            }
            return sum;
        }
    }

    private static double[] vector(Random random, int size) {
        double[] numbers = new double[size];
        random.nextDoubles(numbers);
        return numbers;
    }

    private static long digest(double[] numbers) {
        long digest = 0;
        for (double number : numbers) {
            digest = 31 * digest + Double.doubleToLongBits(number);
        }
        return digest;
    }

    /** SciMark's fast Fourier transform. */
    static final class Fourier implements Kernel {
        @Override
        public long run() {
            double[] numbers = vector(new Random(SEED), 2 * 1024);
            for (int time = 0; time < 5; time++) {
                FFT.transform(numbers);
                FFT.inverse(numbers);
            }
            return digest(numbers);
        }
    }

    /** SciMark's successive over-relaxation. */
    static final class Relaxation implements Kernel {
        @Override
        public long run() {
            Random random = new Random(SEED);
            double[][] grid = new double[100][];
            for (int row = 0; row < grid.length; row++) {
                grid[row] = vector(random, 100);
            }
            SOR.execute(1.25, grid, 40);
            return digest(grid[50]);
        }
    }

    /** SciMark's Monte Carlo integration. */
    static final class Integral implements Kernel {
        @Override
        public long run() {
            return Double.doubleToLongBits(MonteCarlo.integrate(60000));
        }
    }

    /** SciMark's product of a sparse matrix and a vector. */
    static final class Sparse implements Kernel {
        @Override
        public long run() {
            int size = 1000;
            int perRow = 5;
            double[] x = vector(new Random(SEED), size);
            double[] values = vector(new Random(SEED + 1), size * perRow);
            int[] columns = new int[size * perRow];
            int[] rows = new int[size + 1];
            for (int row = 0; row < size; row++) {
                rows[row + 1] = rows[row] + perRow;
                int step = Math.max(1, row / perRow);
                for (int at = 0; at < perRow; at++) {
                    columns[rows[row] + at] = at * step;
                }
            }
            double[] y = new double[size];
            SparseCompRow.matmult(y, values, rows, columns, x, 60);
            return digest(y);
        }
    }

    /** SciMark's factorization of a dense matrix. */
    static final class Factors implements Kernel {
        @Override
        public long run() {
            Random random = new Random(SEED);
            double[][] matrix = new double[100][];
            for (int row = 0; row < matrix.length; row++) {
                matrix[row] = vector(random, 100);
            }
            LU.factor(matrix, new int[100]);
            return digest(matrix[50]);
        }
    }
}
