/** A class that no class path has: the program Defines gives its bytes to C. */
public class Defined {
    static int count = 40;

    public String toString() {
        count += 2;
        return Defines.greet("defined " + count);
    }
}
