import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;

/** JNI_OnLoad, functions that C registers, and reflection's objects. */
public class Natives {
    static native int registered(int value);
    static native int both(int value);
    static native boolean isLoaded();
    static native int exchange(int which);
    static native int refuse(int what);
    static native Object method(Class<?> of, Method method);
    static native Object constructor(Constructor<?> constructor);
    static native Object field(Field field, Object object);
    static native String classes();
    static native int version();
    static native void defineClass(byte[] bytes);

    static class Upper {
        static native int inherited(int value);
        static native int overridden(int value);
    }

    static class Lower extends Upper {
        static int overridden(int value) { return value; }
    }

    static native int inherit(Class<?> lower);

    static int number = 5;
    String text = "text";

    Natives() {}
    Natives(int value) { text = "made of " + value; }
    String twice(String of) { return of + of; }
    static String once(String of) { return of; }

    static void registeredFails() {
        try {
            registered(1);
            System.out.println("nothing was thrown");
        } catch (UnsatisfiedLinkError error) {
            System.out.println("no function");
        }
    }

    public static void main(String[] args) throws Exception {
        registeredFails();
        System.loadLibrary("jnitest");
        System.out.println(isLoaded());
        registeredFails();
        System.out.println(exchange(1) + " " + registered(1) + " " + both(1));
        System.out.println(exchange(2) + " " + registered(1) + " " + both(1));
        System.out.println(exchange(0));
        registeredFails();
        System.out.println(both(1));
        System.out.println(refuse(0) + " " + refuse(1));
        System.out.println(inherit(Lower.class) + " " + Upper.inherited(1));
        Method twice = Natives.class.getDeclaredMethod("twice", String.class);
        Method same = (Method) method(Natives.class, twice);
        System.out.println(same.equals(twice) + " " + same.invoke(new Natives(), "ab"));
        Constructor<?> constructor = Natives.class.getDeclaredConstructor(int.class);
        System.out.println(((Natives) constructor(constructor)).text);
        Field field = Natives.class.getDeclaredField("text");
        System.out.println(field(field, new Natives()).equals(field));
        System.out.println(classes());
        System.out.println(version() > 0x00010001);
        try {
            defineClass(new byte[] {(byte) 0xca, (byte) 0xfe, (byte) 0xba, (byte) 0xbe, 0});
        } catch (LinkageError error) {
            System.out.println(error.getClass().getName());
        }
    }
}
