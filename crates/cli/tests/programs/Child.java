import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.ref.WeakReference;
import java.util.Arrays;
import java.util.TreeSet;
import libcore.io.Libcore;

/** What tests of the zygote run: args[0] says what. */
public class Child {
    private static volatile int finalized;

    private final byte[] room = new byte[10_000];

    @Override
    protected void finalize() {
        finalized++;
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "tell":
                tell(args);
                System.exit(7);
                break;
            case "wait":
                System.out.println(new File("/proc/self").getCanonicalFile().getName());
                Thread.sleep(Long.MAX_VALUE);
                break;
            case "collect":
                collect();
                break;
            case "native":
                System.loadLibrary("child");
                System.out.println(count("a banana"));
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    private static native int count(String text);

    /** All that a process has from the one that started it. */
    private static void tell(String[] args) throws IOException {
        System.out.println(Arrays.toString(args));
        System.out.println(new BufferedReader(new InputStreamReader(System.in)).readLine());
        System.err.println("an error");
        for (String name : new String[] {"user.dir", "java.class.path", "user.home", "java.io.tmpdir",
                "java.vm.name", "given"}) {
            System.out.println(name + ": " + System.getProperty(name));
        }
        TreeSet<String> variables = new TreeSet<String>();
        for (java.util.Map.Entry<String, String> variable : System.getenv().entrySet()) {
            variables.add(variable.toString());
        }
        System.out.println(variables);
        System.out.println(new File(".").getCanonicalPath());
        System.out.println("user " + Libcore.os.getuid());
        System.out.println(Child.class.getClassLoader().getClass());
        System.out.println(Thread.currentThread() + ", " + Thread.activeCount());
        java.util.List<String> descriptors = new java.util.ArrayList<String>();
        for (String name : new File("/proc/self/fd").list()) {
            // Pipes have no path.
            String path = String.valueOf(new File("/proc/self/fd", name).getCanonicalPath());
            descriptors.add(path.replaceAll("[0-9]+", "N"));
        }
        java.util.Collections.sort(descriptors);
        System.out.println(descriptors);
    }

    /** Garbage of old and young objects, finalizers and weak references. */
    private static void collect() throws Exception {
        java.util.List<Object> kept = new java.util.ArrayList<Object>();
        // A place that existed before the fork.
        Thread.currentThread().setName("holds " + kept);
        WeakReference<Object> weak = new WeakReference<Object>(new Object());
        for (int round = 0; round < 5; round++) {
            for (int index = 0; index < 300; index++) {
                new Child();
                kept.add(new int[] {index});
            }
            System.setProperty("kept", "value " + round);
            kept = new java.util.ArrayList<Object>(kept.subList(0, 100));
            System.gc();
        }
        System.runFinalization();
        for (int index = 0; index < 100; index++) {
            if (((int[]) kept.get(index))[0] != index) {
                throw new AssertionError(index);
            }
        }
        System.gc();
        System.out.println(System.getProperty("kept") + ", " + (finalized > 1000) + ", " + weak.get());
    }
}
