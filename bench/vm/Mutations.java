/**
 * What a collector costs the program that it collects for: 200 allocations, and 80 stores of
 * references, a thousand times each. Prints the times in nanoseconds, of `arguments[1]` runs.
 *
 * Arguments: allocations or stores, and how many runs.
 */
public class Mutations {
    private static final int REPEATS = 1000;

    static final class Node {
        Node left;
        Node right;
        Node up;
        Node down;
    }

    static final class Small {
        int value;
    }

    static Object sink;

    private static void allocations() {
        Small kept = null;
        for (int i = 0; i < 200; i++) {
            kept = new Small();
        }
        sink = kept;
    }

    /** Stores into objects that are older than any collection: 40 into fields, 40 into an array. */
    private static void stores(Node[] nodes, Node one, Node other) {
        for (int i = 0; i < 10; i++) {
            Node node = nodes[i];
            node.left = one;
            node.right = other;
            node.up = one;
            node.down = other;
        }
        for (int i = 0; i < 40; i++) {
            nodes[i + 10] = one;
        }
    }

    public static void main(String[] arguments) {
        boolean isAllocations = arguments[0].equals("allocations");
        int runs = Integer.parseInt(arguments[1]);
        Node[] nodes = new Node[50];
        for (int i = 0; i < nodes.length; i++) {
            nodes[i] = new Node();
        }
        Node one = new Node();
        Node other = new Node();
        for (int run = -2; run < runs; run++) {
            long began = System.nanoTime();
            for (int i = 0; i < REPEATS; i++) {
                if (isAllocations) {
                    allocations();
                } else {
                    stores(nodes, one, other);
                }
            }
            if (run >= 0) {
                System.out.println(System.nanoTime() - began);
            }
        }
    }
}
