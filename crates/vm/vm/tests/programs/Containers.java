import java.util.*;

/** Containers, enums, lambdas and big numbers. */
public class Containers {
    interface Shape {
        default String name() {
            return "shape " + area();
        }
        double area();
    }
    enum Color {
        RED, GREEN {
            String x() {
                return "gx";
            }
        }, BLUE;
        String x() {
            return "x" + ordinal();
        }
    }
    public static void main(String[] a) throws Exception {
        Map<String,Integer> m = new HashMap<String,Integer>();
        for (int i = 0; i < 100; i++) m.put("k" + i, i * i);
        int s = 0;
        for (int v : m.values()) s += v;
        System.out.println(s + " " + m.get("k7"));
        TreeMap<Integer,String> t = new TreeMap<Integer,String>();
        for (int i = 20; i > 0; i--) t.put(i * 7 % 20, "v" + i);
        System.out.println(t.headMap(5) + " " + t.lastEntry());
        List<Integer> l = new ArrayList<Integer>(Arrays.asList(5, 3, 9, 1));
        Collections.sort(l, new Comparator<Integer>() {
            public int compare(Integer x, Integer y) {
                return y - x;
            }
        });
        System.out.println(l + " " + Collections.max(l));
        LinkedHashMap<String,String> lh = new LinkedHashMap<String,String>();
        lh.put("z","1");
        lh.put("a","2");
        System.out.println(lh);
        Set<Color> es = EnumSet.of(Color.RED, Color.BLUE);
        System.out.println(es + " " + Color.valueOf("GREEN").x() + Color.BLUE.x()
                + Arrays.toString(Color.values()));
        Iterator<Integer> it = l.iterator();
        try {
            while (it.hasNext()) {
                it.next();
                l.add(1);
            }
        } catch (ConcurrentModificationException e) {
            System.out.println("CME");
        }
        Shape sh = () -> 2.5;
        System.out.println(sh.name());
        Runnable r = () -> System.out.println("lambda " + l.size());
        r.run();
        PriorityQueue<String> pq = new PriorityQueue<String>(Arrays.asList("q","b","m"));
        System.out.println(pq.poll() + pq.poll());
        BitSet bs = new BitSet();
        bs.set(3);
        bs.set(70);
        System.out.println(bs + " " + bs.cardinality());
        Scanner sc = new Scanner("12 abc 3.5\nline two");
        System.out.println(sc.nextInt() + sc.next() + sc.nextDouble() + sc.nextLine()
                + sc.nextLine());
        System.out.println(new Random(42).nextInt(1000) + " " + new Random(42).nextDouble()
                + " " + new Random(1).nextGaussian());
        StringTokenizer st = new StringTokenizer("a b c");
        System.out.println(st.countTokens());
        Properties p = new Properties();
        p.load(new java.io.StringReader("a=b\nc: d"));
        System.out.println(p.getProperty("c"));
        java.math.BigInteger prime =
                java.math.BigInteger.probablePrime(96, new java.util.Random(1));
        System.out.println(prime.bitLength() + " " + prime.isProbablePrime(20)
                + new java.math.BigInteger(33, 10, new java.util.Random(2)).bitLength());
        java.math.BigInteger three = java.math.BigInteger.valueOf(3);
        System.out.println(three.modPow(new java.math.BigInteger("-5"),
                java.math.BigInteger.valueOf(7)));
        System.out.println(new java.math.BigInteger("123456789012345678901234567890")
                .multiply(new java.math.BigInteger("987654321"))
                .mod(java.math.BigInteger.valueOf(1000007))
                + " "
                + new java.math.BigDecimal("1.10")
                .add(new java.math.BigDecimal("2.205")));
    }
}
