import java.io.File;
import java.io.IOException;

/** The program whose memory is measured: it tells its process, and waits for the end of its input. */
public final class Resident {
    private Resident() {}

    public static void main(String[] args) throws IOException {
        System.gc();
        System.out.println(new File("/proc/self").getCanonicalFile().getName());
        System.in.read();
    }
}
