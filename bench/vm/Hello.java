/** The program whose start is measured: the time at which `main` runs, by the system's own clock. */
public final class Hello {
    private Hello() {}

    public static void main(String[] args) {
        System.out.println(System.nanoTime());
    }
}
