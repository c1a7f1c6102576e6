/** Properties of characters that no version of Unicode has changed since Java has them. */
public class Characters {
    interface Property {
        int of(int c);
    }

    /** A line with a hash of a property, for each range of characters. */
    static void print(String name, Property property, int... ranges) {
        for (int i = 0; i < ranges.length; i += 2) {
            int hash = 0;
            for (int c = ranges[i]; c < ranges[i + 1]; c++) hash = 31 * hash + property.of(c);
            System.out.println(name + " from " + Integer.toHexString(ranges[i]) + " " + hash);
        }
    }

    public static void main(String[] a) {
        int[] texts = {0, 0x300, 0x370, 0x530, 0x1f00, 0x2070, 0x2190, 0x2300, 0x2500, 0x2700,
                0x3000, 0x3100, 0x4e00, 0x9fa6, 0xd700, 0xfa00, 0xfe00, 0xff00};
        print("type", Character::getType, texts);
        print("start", c -> Character.isJavaIdentifierStart(c) ? 1 : 0, texts);
        print("part", c -> Character.isJavaIdentifierPart(c) ? 1 : 0, texts);
        int[] cases = {0, 0x180, 0x370, 0x530, 0x1e00, 0x2000, 0x10a0, 0x1100};
        print("lower", Character::toLowerCase, cases);
        print("upper", Character::toUpperCase, cases);
        print("title", Character::toTitleCase, cases);
        int[] numbers = {0, 0x530, 0x2000, 0x2190, 0x2400, 0x2800, 0x3000, 0x3400, 0xff00, 0xfff0};
        print("number", Character::getNumericValue, numbers);
        System.out.println(Character.getType('$') + " " + Character.getType('-') + " "
                + Character.isJavaIdentifierStart('\u00b1') + " "
                + Character.isJavaIdentifierStart('\u20ac'));
    }
}
