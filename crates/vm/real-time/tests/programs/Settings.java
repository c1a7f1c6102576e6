import baton.rt.FrequencyLock;
import baton.rt.MemoryLock;
import baton.rt.OomProtection;
import baton.rt.RealTime;
import baton.rt.Setting;
import baton.rt.ThreadPriority;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

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
            leavesItsProcessor();
        } catch (SecurityException e) {
            System.out.println("priority: " + e);
        }
        RealTime.setPriority(0);
        System.out.println(state());
    }

    /** Tells where the collector runs while this thread is bound to a processor, and then. */
    private static void leavesItsProcessor() throws Exception {
        int[] all = processors("collector");
        String tid = new File("/proc/thread-self").getCanonicalFile().getName();
        int[] bound = {all[0]};
        for (int[] processors : new int[][] {bound, all}) {
            String list = Arrays.toString(processors).replaceAll("[\\[\\] ]", "");
            new ProcessBuilder("taskset", "-p", "-c", list, tid).start().waitFor();
            System.gc();
            boolean isElsewhere = processors("collector")[0] != all[0];
            boolean shouldBe = processors == bound && all.length > 1;
            System.out.println(isElsewhere == shouldBe ? "as asked" : "elsewhere: " + isElsewhere);
        }
    }

    /** The processors of the thread with this name. */
    private static int[] processors(String name) throws IOException {
        List<Integer> found = new ArrayList<>();
        for (File task : new File("/proc/self/task").listFiles()) {
            if (!name.equals(read(task + "/comm"))) {
                continue;
            }
            for (String range : line(task + "/status", "Cpus_allowed_list:").split(",")) {
                String[] ends = range.split("-");
                int last = Integer.parseInt(ends[ends.length - 1]);
                for (int cpu = Integer.parseInt(ends[0]); cpu <= last; cpu++) {
                    found.add(cpu);
                }
            }
        }
        int[] processors = new int[found.size()];
        for (int i = 0; i < processors.length; i++) {
            processors[i] = found.get(i);
        }
        return processors;
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
        boolean isLocked = !line("/proc/self/status", "VmLck:").equals("0 kB");
        return fields[37] + " " + fields[38] + " " + isLocked + " "
                + read("/proc/self/oom_score_adj") + " " + read(policy + "/scaling_governor") + " "
                + read(policy + "/scaling_max_freq");
    }

    /** What stands in a line behind this word. */
    private static String line(String path, String word) throws IOException {
        try (BufferedReader lines = new BufferedReader(new FileReader(path))) {
            String line = lines.readLine();
            while (!line.startsWith(word)) {
                line = lines.readLine();
            }
            return line.substring(word.length()).trim();
        }
    }

    private static String read(String path) throws IOException {
        try (BufferedReader lines = new BufferedReader(new FileReader(path))) {
            return lines.readLine();
        }
    }
}
