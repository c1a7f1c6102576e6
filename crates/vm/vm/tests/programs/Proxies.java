import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.lang.reflect.UndeclaredThrowableException;
import java.util.Arrays;

/** Methods that several interfaces of a proxy declare. */
public class Proxies {
    interface First {
        String same(int number) throws IOException, InterruptedException;
        boolean equals(Object other);
        static int hidden() {
            return 1;
        }
    }

    interface Second {
        String same(int number) throws FileNotFoundException, Exception;
        int hashCode();
        int hidden();
        default String usual() {
            return "usual";
        }
    }

    interface Third extends First {
        String same(int number) throws FileNotFoundException;
    }

    /** What First declares is overridden by Third. */
    interface Both extends First, Third {
    }

    interface Wide {
        Object result();
    }

    interface Narrow {
        CharSequence result();
    }

    interface Narrowest {
        String result();
    }

    interface Other {
        Integer result();
    }

    interface Number {
        int result();
    }

    interface Alike {
        int result();
    }

    static Object proxy(Object result, Class<?>... interfaces) {
        InvocationHandler handler = (proxy, method, arguments) -> {
            System.out.println(method.getDeclaringClass() + "." + method.getName()
                    + Arrays.toString(method.getExceptionTypes()) + Arrays.toString(arguments));
            if (result instanceof Throwable) {
                throw (Throwable) result;
            }
            return result;
        };
        return Proxy.newProxyInstance(Proxies.class.getClassLoader(), interfaces, handler);
    }

    static void checkReturns(Class<?>... interfaces) {
        try {
            proxy(null, interfaces);
            System.out.println("made " + Arrays.toString(interfaces));
        } catch (IllegalArgumentException error) {
            System.out.println("refused " + Arrays.toString(interfaces));
        }
    }

    static void checkThrows(Throwable thrown, Class<?>... interfaces) throws Exception {
        Object made = proxy(thrown, interfaces);
        Class<?>[] types = made.getClass().getMethod("same", int.class).getExceptionTypes();
        System.out.println(Arrays.toString(types));
        try {
            if (made instanceof First) {
                ((First) made).same(1);
            } else {
                ((Second) made).same(2);
            }
        } catch (UndeclaredThrowableException error) {
            System.out.println("wrapped " + error.getCause());
        } catch (Throwable error) {
            System.out.println("as it is " + error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Object made = proxy("text", First.class, Second.class);
        System.out.println(((First) made).same(3) + ((Second) made).same(4));
        System.out.println(((Second) made).usual() + made.toString());
        made = proxy("text", Second.class, First.class);
        System.out.println(((First) made).same(5) + ((Second) made).same(6));
        made = proxy(7, First.class, Second.class);
        System.out.println(((Second) made).hidden() + " " + made.hashCode());
        made = proxy(true, First.class, Second.class);
        System.out.println(made.equals("another"));
        made = proxy("text", Both.class, Second.class);
        System.out.println(((First) made).same(8) + ((Second) made).same(9));
        made = proxy("text", Wide.class, Narrow.class);
        System.out.println(((Narrow) made).result().length());

        checkReturns(Wide.class, Narrow.class, Narrowest.class);
        checkReturns(Narrowest.class, Wide.class);
        checkReturns(Wide.class, Narrow.class, Other.class);
        checkReturns(Narrow.class, Other.class);
        checkReturns(Number.class, Alike.class);
        checkReturns(Number.class, Wide.class);
        checkReturns(Other.class, Number.class);

        Throwable[] all = {
            new FileNotFoundException("file"), new IOException("any"), new Exception("all"),
            new InterruptedException("stop"), new IllegalStateException("state"), new Error("bad")
        };
        for (Throwable thrown : all) {
            checkThrows(thrown, First.class);
            checkThrows(thrown, Second.class);
            checkThrows(thrown, First.class, Second.class);
            checkThrows(thrown, Both.class);
            checkThrows(thrown, Third.class, Second.class);
        }
    }
}
