/** The program whose start is measured: the time at which `main` runs, since 1970. */
public final class Hello {
    private Hello() {}

    public static void main(String[] args) {
        System.out.println(System.currentTimeMillis());
    }
}
