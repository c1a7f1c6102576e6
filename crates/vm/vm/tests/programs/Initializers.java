/** The order in which classes and interfaces are initialized. */
public class Initializers {
    interface Above {
        Object ABOVE = said("Above");
        default void above() {
        }
    }

    interface Beside {
        Object BESIDE = said("Beside");
        default void beside() {
        }
    }

    interface Without {
        Object WITHOUT = said("Without");
        void without();
    }

    interface Below extends Above, Without {
        Object BELOW = said("Below");
        default void below() {
        }
    }

    static class Base implements Beside {
        static final Object BASE = said("Base");
    }

    static class Own extends Base implements Below, Above {
        static final Object OWN = said("Own");
        public void without() {
        }
    }

    static Object said(String name) {
        System.out.println(name);
        return name;
    }

    public static void main(String[] a) {
        new Own().below();
        System.out.println(Own.WITHOUT);
        System.out.println(java.util.Arrays.toString(Own.class.getInterfaces()));
    }
}
