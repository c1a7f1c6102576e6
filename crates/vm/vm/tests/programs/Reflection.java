import java.lang.reflect.*;
import java.lang.annotation.*;
import java.util.*;

/** Reflection, annotations and proxies. */
public class Reflection {
    static final Class<?> ANONYMOUS = new Object() {}.getClass();
    static native void missing();
    @Retention(RetentionPolicy.RUNTIME) @interface Note {
        String value() default "dflt";
        int[] nums() default {
            1,2
        };
        Class<?> k() default Object.class;
    }
    @Note("cls") static class P implements Comparable<P> {
        public int x = 3;
        private static long y = 9;
        String s = "q";
        public P() {
        }
        public P(int x, long l) {
            this.x = x + (int) l;
        }
        @Note(nums={7}) public int add(int a, Integer b) {
            return a + b + x;
        }
        private static String hid(String s) {
            return s + "!";
        }
        public void fail() throws java.io.IOException {
            throw new java.io.IOException("io");
        }
        public int compareTo(P o) {
            return 0;
        }
        class Inner {
        }
    }
    interface I {
        String hi(String s, int n);
        default int two() {
            return 2;
        }
    }
    public static void main(String[] a) throws Exception {
        Class<?> c = Class.forName("Reflection$P");
        System.out.println(c.getName() + " " + c.getSimpleName() + " "
                + Modifier.toString(c.getModifiers()) + " " + c.getSuperclass()
                        + Arrays.toString(c.getInterfaces()) + c.getEnclosingClass());
        Object o = c.newInstance();
        Object o2 = c.getConstructor(int.class, long.class).newInstance(4, 5L);
        System.out.println(c.getMethod("add", int.class, Integer.class).invoke(o2, 1, 2));
        Field f = c.getField("x");
        f.setInt(o, 77);
        System.out.println(f.get(o) + " " + f.getType() + " " + f);
        Field y = c.getDeclaredField("y");
        y.setAccessible(true);
        y.set(null, 10L);
        System.out.println(y.getLong(null));
        Method h = c.getDeclaredMethod("hid", String.class);
        h.setAccessible(true);
        System.out.println(h.invoke(null, "h") + " " + h);
        try {
            c.getMethod("fail").invoke(o);
        } catch (InvocationTargetException e) {
            System.out.println("ITE " + e.getCause());
        }
        try {
            c.getMethod("nope");
        } catch (NoSuchMethodException e) {
            System.out.println("NSME");
        }
        try {
            Class.forName("no.Such");
        } catch (ClassNotFoundException e) {
            System.out.println("CNFE " + e.getMessage());
        }
        TreeSet<String> names = new TreeSet<String>();
        for (Method m : c.getDeclaredMethods()) names.add(m.getName());
        System.out.println(names);
        System.out.println(Arrays.toString(c.getMethod("fail").getExceptionTypes())
                + Arrays.toString(c.getGenericInterfaces()));
        int[][] arr = (int[][]) Array.newInstance(int.class, 2, 3);
        Array.setInt(arr[1], 2, 5);
        System.out.println(arr.getClass() + " " + arr[1][2] + " " + Array.getLength(arr));
        I p = (I) Proxy.newProxyInstance(Reflection.class.getClassLoader(),
                new Class<?>[]{I.class}, new InvocationHandler() {
            public Object invoke(Object pr, Method m, Object[] as) {
                return m.getName().equals("two") ? 22 : m.getName() + Arrays.toString(as);
            }
        });
        System.out.println(p.hi("s", 5) + " " + p.two() + " " + Proxy.isProxyClass(p.getClass()));
        Note n = c.getAnnotation(Note.class);
        System.out.println(n.value() + Arrays.toString(n.nums()) + n.k());
        System.out.println(Arrays.toString(c.getMethod("add", int.class,
                Integer.class).getAnnotation(Note.class).nums()));
        System.out.println(new Object(){
        }
        .getClass().isAnonymousClass() + " " + int.class + " " + String[].class.getName() + " "
                + int[].class.getSimpleName() + Reflection.class.getDeclaredClasses().length);
        System.out.println(ANONYMOUS.getDeclaringClass() + " " + ANONYMOUS.getEnclosingClass()
                + ANONYMOUS.isMemberClass());
        try {
            missing();
        } catch (UnsatisfiedLinkError e) {
            StackTraceElement top = e.getStackTrace()[0];
            System.out.println(top.getMethodName() + top.isNativeMethod());
        }
        System.out.println(P.Inner.class.getDeclaringClass() + " "
                + Thread.State.class.isEnum() + Note.class.isAnnotation());
    }
}
