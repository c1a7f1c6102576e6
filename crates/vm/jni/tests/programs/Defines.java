import java.io.DataInputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.util.Arrays;

/** Classes that C defines: of the dex file that this VM runs, of the class file that java runs. */
public class Defines {
    static class Own extends ClassLoader {
        Own() {
            super(Defines.class.getClassLoader());
        }
    }

    static native Class<?> define(String name, ClassLoader loader, byte[] bytes);

    public static String greet(String text) {
        return "greeted " + text;
    }

    static void failing(String what, String name, ClassLoader loader, byte[] bytes) {
        try {
            System.out.println(what + ": " + define(name, loader, bytes));
        } catch (LinkageError error) {
            System.out.println(what + ": " + error.getClass().getName());
        }
    }

    public static void main(String[] args) throws Exception {
        System.loadLibrary("jnitest");
        File file = new File(System.getProperty("defined"));
        byte[] bytes = new byte[(int) file.length()];
        try (DataInputStream in = new DataInputStream(new FileInputStream(file))) {
            in.readFully(bytes);
        }
        ClassLoader loader = Defines.class.getClassLoader();
        failing("other name", "Other", loader, bytes);
        failing("no bytes", "Defined", loader, new byte[0]);
        failing("half", "Defined", loader, Arrays.copyOf(bytes, bytes.length / 2));
        byte[] changed = bytes.clone();
        changed[0] ^= 1;
        failing("no magic", "Defined", loader, changed);

        Class<?> defined = define("Defined", loader, bytes);
        System.out.println(defined.getName() + " " + (defined.getClassLoader() == loader));
        System.out.println(defined.newInstance() + ", " + defined.newInstance());
        System.out.println(Class.forName("Defined") == defined);
        failing("twice", "Defined", loader, bytes);
        System.out.println(Class.forName("Defined") == defined);

        // Another loader has a class of its own, with static fields of its own.
        ClassLoader own = new Own();
        Class<?> other = define(null, own, bytes);
        System.out.println(other.getName() + " " + (other != defined) + " "
                + (other.getClassLoader() == own));
        System.out.println(other.newInstance());
        System.gc();
        System.out.println(defined.newInstance() + " " + defined.isInstance(other.newInstance()));
    }
}
