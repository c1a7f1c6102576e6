import baton.rt.FrequencyLock;
import baton.rt.MemoryLock;
import baton.rt.OomProtection;
import baton.rt.RealTime;
import baton.rt.Setting;
import baton.rt.ThreadPriority;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.IOException;

/** Makes each setting and undoes it; tells what the system says of it. args[0]: a policy's files. */
public class Settings {
    private interface Make {
        Setting make();
    }

    private static String policy;

    public static void main(String[] args) throws Exception {
        policy = args[0];
        tell("priority", () -> new ThreadPriority(7));
        tell("highest", () -> new FrequencyLock());
        tell("frequency", () -> new FrequencyLock(400000));
        tell("memory", () -> new MemoryLock());
        tell("oom", () -> new OomProtection());
        for (Make wrong : new Make[] {() -> new ThreadPriority(0), () -> new ThreadPriority(100),
                () -> new FrequencyLock(0), () -> new FrequencyLock(7)}) {
            try {
                wrong.make();
                System.out.println("made");
            } catch (IllegalArgumentException | SecurityException e) {
                System.out.println(e.getClass().getSimpleName());
            }
        }
        if (args.length > 1) {
            onThreads();
            // The process ends with it.
            new FrequencyLock();
            System.out.println(state());
            Runtime.getRuntime().halt(0);
        }
    }

    private static void tell(String name, Make make) throws IOException {
        String before = state();
        try (Setting setting = make.make()) {
            System.out.println(name + ": " + state());
            setting.close();
        } catch (SecurityException | IllegalStateException e) {
            System.out.println(name + ": " + e);
        }
        System.out.println(before.equals(state()) ? "undone" : "still " + state());
    }

    private static void onThreads() throws Exception {
        String before = state();
        final Setting[] made = new Setting[1];
        Thread thread = new Thread(() -> made[0] = new FrequencyLock());
        thread.start();
        thread.join();
        // The OS thread ends a little after the Java thread, and writes one file after the other.
        while (!before.equals(state())) {
            Thread.yield();
        }
        System.out.println("ended with its thread");
        try {
            made[0].close();
        } catch (IllegalStateException e) {
            System.out.println(e.getMessage());
        }
        int ofOrdinary = kilobytesOfThread();
        try {
            RealTime.setPriority(3);
            System.out.println(state());
            int ofRealTime = kilobytesOfThread();
            System.out.println(ofRealTime > ofOrdinary ? "reserve" : ofOrdinary + ", " + ofRealTime + " kB");
        } catch (SecurityException e) {
            System.out.println("priority: " + e);
        }
        RealTime.setPriority(0);
        System.out.println(state());
    }

    /** What a thread that this one starts can hold. */
    private static int kilobytesOfThread() throws InterruptedException {
        int[] kilobytes = new int[1];
        Thread thread = new Thread(() -> {
            try {
                for (Object[] held = null;; kilobytes[0]++) {
                    held = new Object[] {held, new byte[1000]};
                }
            } catch (OutOfMemoryError expected) {
                // It holds nothing any more.
            }
        });
        thread.start();
        thread.join();
        return kilobytes[0];
    }

    /** Priority and policy of the thread, locked memory or not, oom_score_adj, the frequency. */
    private static String state() throws IOException {
        String stat = read("/proc/thread-self/stat");
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        boolean isLocked = false;
        try (BufferedReader lines = new BufferedReader(new FileReader("/proc/self/status"))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                isLocked |= line.startsWith("VmLck:") && !line.endsWith("\t       0 kB");
            }
        }
        return fields[37] + " " + fields[38] + " " + isLocked + " "
                + read("/proc/self/oom_score_adj") + " " + read(policy + "/scaling_governor") + " "
                + read(policy + "/scaling_max_freq");
    }

    private static String read(String path) throws IOException {
        try (BufferedReader lines = new BufferedReader(new FileReader(path))) {
            return lines.readLine();
        }
    }
}
