package baton.app;

import android.content.ComponentName;
import android.content.Intent;
import android.content.IntentFilter;
import android.graphics.Rect;
import android.net.Uri;
import android.os.Bundle;
import android.os.Parcel;
import android.os.PatternMatcher;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;

/**
 * Intents, filters and bundles in the layout of Android 16, which the broadcast service has: see
 * docs/intents.md. The classes here are Android 4.4's, which write another one.
 */
final class IntentParcels {
    private static final int BUNDLE_MAGIC = 0x4C444E42;
    private static final int CURRENT_USER = -2;
    private static final String UTF_8 = "UTF-8";
    private static final String URI_CLASS = "android.net.Uri$StringUri";
    private static final String COMPONENT_CLASS = "android.content.ComponentName";

    /** Types of values, by Android's names for them. */
    private static final int NULL = -1;
    private static final int STRING = 0;
    private static final int INTEGER = 1;
    private static final int BUNDLE = 3;
    private static final int PARCELABLE = 4;
    private static final int SHORT = 5;
    private static final int LONG = 6;
    private static final int FLOAT = 7;
    private static final int DOUBLE = 8;
    private static final int BOOLEAN = 9;
    private static final int CHAR_SEQUENCE = 10;
    private static final int BYTES = 13;
    private static final int STRINGS = 14;
    private static final int INTS = 18;
    private static final int LONGS = 19;
    private static final int BYTE = 20;
    private static final int BOOLEANS = 23;
    private static final int DOUBLES = 28;
    private static final int CHAR = 29;
    private static final int SHORTS = 30;
    private static final int CHARS = 31;
    private static final int FLOATS = 32;
    /** Types of other classes' values, whose size stands before them. */
    private static final int MAP = 2;
    private static final int LIST = 11;
    private static final int SPARSE_ARRAY = 12;
    private static final int PARCELABLES = 16;
    private static final int OBJECTS = 17;
    private static final int SERIALIZABLE = 21;

    private IntentParcels() {}

    static void write(Intent intent, Parcel to) {
        if (intent.getSelector() != null || intent.getClipData() != null) {
            throw new IllegalArgumentException("a broadcast has no selector and no clip data");
        }
        writeString8(to, intent.getAction());
        writeUri(to, intent.getData());
        writeString8(to, intent.getType());
        String identifier = null;
        writeString8(to, identifier);
        to.writeInt(intent.getFlags());
        int extendedFlags = 0;
        to.writeInt(extendedFlags);
        writeString8(to, intent.getPackage());
        ComponentName.writeToParcel(intent.getComponent(), to);
        Rect bounds = intent.getSourceBounds();
        to.writeInt(bounds == null ? 0 : 1);
        if (bounds != null) {
            bounds.writeToParcel(to, 0);
        }
        Set<String> categories = intent.getCategories();
        to.writeInt(categories == null ? 0 : categories.size());
        if (categories != null) {
            for (String category : categories) {
                writeString8(to, category);
            }
        }
        int selector = 0, clipData = 0;
        to.writeInt(selector);
        to.writeInt(clipData);
        to.writeInt(CURRENT_USER);
        Bundle extras = intent.getExtras();
        if (extras == null) {
            to.writeInt(-1);
        } else {
            write(extras, to);
        }
        int originalIntent = 0, creatorToken = 0;
        to.writeInt(originalIntent);
        to.writeInt(creatorToken);
    }

    static Intent readIntent(Parcel from) {
        Intent intent = new Intent(readString8(from));
        Uri data = readUri(from);
        intent.setDataAndType(data, readString8(from));
        String unusedIdentifier = readString8(from);
        intent.setFlags(from.readInt());
        int unusedExtendedFlags = from.readInt();
        intent.setPackage(readString8(from));
        intent.setComponent(ComponentName.readFromParcel(from));
        if (from.readInt() != 0) {
            intent.setSourceBounds(Rect.CREATOR.createFromParcel(from));
        }
        for (int left = from.readInt(); left > 0; left--) {
            intent.addCategory(readString8(from));
        }
        for (String field : new String[] {"a selector", "clip data"}) {
            refuse(from, field);
        }
        int unusedUserHint = from.readInt();
        Bundle extras = readBundle(from);
        if (extras != null) {
            intent.putExtras(extras);
        }
        for (String field : new String[] {"an original intent", "a creator token"}) {
            refuse(from, field);
        }
        return intent;
    }

    private static void refuse(Parcel from, String field) {
        if (from.readInt() != 0) {
            throw new IllegalArgumentException("an intent with " + field);
        }
    }

    static void write(IntentFilter filter, Parcel to) {
        writeStrings(to, list(filter.actionsIterator()));
        writeNullable(to, list(filter.categoriesIterator()));
        writeNullable(to, list(filter.schemesIterator()));
        // A type with a wildcard is kept without it: TYPE/* as TYPE.
        List<String> types = list(filter.typesIterator());
        boolean hasWildcard = false;
        for (String type : types) {
            hasWildcard |= type.indexOf('/') < 0;
        }
        writeNullable(to, types);
        writeNullable(to, types);
        int mimeGroups = 0;
        to.writeInt(mimeGroups);
        writePatterns(to, list(filter.schemeSpecificPartsIterator()));
        List<IntentFilter.AuthorityEntry> authorities = list(filter.authoritiesIterator());
        to.writeInt(authorities.size());
        for (IntentFilter.AuthorityEntry authority : authorities) {
            String host = authority.getHost();
            boolean isWild = host.startsWith("*");
            to.writeString(host);
            to.writeString(isWild ? host.substring(1) : host);
            to.writeInt(isWild ? 1 : 0);
            to.writeInt(authority.getPort());
        }
        writePatterns(to, list(filter.pathsIterator()));
        to.writeInt(filter.getPriority());
        to.writeInt(hasWildcard ? 1 : 0);
        int dynamicWildcard = 0, autoVerify = 0, instantApps = 0, order = 0, extras = 0, groups = 0;
        for (int word : new int[] {
                dynamicWildcard, autoVerify, instantApps, order, extras, groups}) {
            to.writeInt(word);
        }
    }

    private static <T> List<T> list(Iterator<T> all) {
        List<T> list = new ArrayList<T>();
        while (all != null && all.hasNext()) {
            list.add(all.next());
        }
        return list;
    }

    private static void writePatterns(Parcel to, List<PatternMatcher> patterns) {
        to.writeInt(patterns.size());
        for (PatternMatcher pattern : patterns) {
            to.writeString(pattern.getPath());
            to.writeInt(pattern.getType());
            int notParsed = -1;
            to.writeInt(notParsed);
        }
    }

    private static void writeStrings(Parcel to, List<String> strings) {
        to.writeInt(strings.size());
        for (String string : strings) {
            to.writeString(string);
        }
    }

    private static void writeNullable(Parcel to, List<String> strings) {
        to.writeInt(strings.isEmpty() ? 0 : 1);
        if (!strings.isEmpty()) {
            writeStrings(to, strings);
        }
    }

    static void write(Bundle bundle, Parcel to) {
        Set<String> keys = bundle.keySet();
        if (keys.isEmpty()) {
            to.writeInt(0);
            return;
        }
        int size = to.dataPosition();
        to.writeInt(0);
        to.writeInt(BUNDLE_MAGIC);
        int start = to.dataPosition();
        to.writeInt(keys.size());
        for (String key : keys) {
            to.writeString(key);
            writeValue(to, key, bundle.get(key));
        }
        setSize(to, size, start);
        int hasIntent = 0;
        to.writeInt(hasIntent);
    }

    /** Writes at a position how many bytes there are from another one on. */
    private static void setSize(Parcel to, int at, int start) {
        int end = to.dataPosition();
        to.setDataPosition(at);
        to.writeInt(end - start);
        to.setDataPosition(end);
    }

    static Bundle readBundle(Parcel from) {
        int size = from.readInt();
        if (size < 0) {
            return null;
        }
        Bundle bundle = new Bundle();
        if (size == 0) {
            return bundle;
        }
        if (from.readInt() != BUNDLE_MAGIC) {
            throw new IllegalArgumentException("no bundle of Android's");
        }
        for (int left = from.readInt(); left > 0; left--) {
            readValue(from, from.readString(), bundle);
        }
        int unusedHasIntent = from.readInt();
        return bundle;
    }

    private static void writeValue(Parcel to, String key, Object value) {
        if (value == null) {
            to.writeInt(NULL);
        } else if (value instanceof String) {
            to.writeInt(STRING);
            to.writeString((String) value);
        } else if (value instanceof Integer) {
            writeWord(to, INTEGER, (Integer) value);
        } else if (value instanceof Boolean) {
            writeWord(to, BOOLEAN, (Boolean) value ? 1 : 0);
        } else if (value instanceof Byte) {
            writeWord(to, BYTE, (Byte) value);
        } else if (value instanceof Short) {
            writeWord(to, SHORT, (Short) value);
        } else if (value instanceof Character) {
            writeWord(to, CHAR, (Character) value);
        } else if (value instanceof Float) {
            to.writeInt(FLOAT);
            to.writeFloat((Float) value);
        } else if (value instanceof Long) {
            to.writeInt(LONG);
            to.writeLong((Long) value);
        } else if (value instanceof Double) {
            to.writeInt(DOUBLE);
            to.writeDouble((Double) value);
        } else if (value instanceof CharSequence) {
            int plain = 1;
            writeWord(to, CHAR_SEQUENCE, plain);
            writeString8(to, value.toString());
        } else if (value instanceof Bundle) {
            to.writeInt(BUNDLE);
            write((Bundle) value, to);
        } else if (value instanceof Uri || value instanceof ComponentName) {
            writeWord(to, PARCELABLE, 0);
            int start = to.dataPosition();
            if (value instanceof Uri) {
                to.writeString(URI_CLASS);
                writeUri(to, (Uri) value);
            } else {
                to.writeString(COMPONENT_CLASS);
                ComponentName.writeToParcel((ComponentName) value, to);
            }
            setSize(to, start - 4, start);
        } else {
            writeArray(to, key, value);
        }
    }

    private static void writeArray(Parcel to, String key, Object value) {
        if (value instanceof byte[]) {
            to.writeInt(BYTES);
            to.writeByteArray((byte[]) value);
        } else if (value instanceof String[]) {
            to.writeInt(STRINGS);
            to.writeStringArray((String[]) value);
        } else if (value instanceof int[]) {
            to.writeInt(INTS);
            to.writeIntArray((int[]) value);
        } else if (value instanceof long[]) {
            to.writeInt(LONGS);
            to.writeLongArray((long[]) value);
        } else if (value instanceof boolean[]) {
            to.writeInt(BOOLEANS);
            to.writeBooleanArray((boolean[]) value);
        } else if (value instanceof double[]) {
            to.writeInt(DOUBLES);
            to.writeDoubleArray((double[]) value);
        } else if (value instanceof float[]) {
            to.writeInt(FLOATS);
            to.writeFloatArray((float[]) value);
        } else if (value instanceof char[]) {
            to.writeInt(CHARS);
            to.writeCharArray((char[]) value);
        } else if (value instanceof short[]) {
            short[] all = (short[]) value;
            writeWord(to, SHORTS, all.length);
            for (short each : all) {
                to.writeInt(each);
            }
        } else {
            throw new IllegalArgumentException(
                    "the extra " + key + " is of " + value.getClass() + ": no broadcast takes it");
        }
    }

    private static void writeWord(Parcel to, int type, int word) {
        to.writeInt(type);
        to.writeInt(word);
    }

    private static void readValue(Parcel from, String key, Bundle into) {
        int type = from.readInt();
        switch (type) {
            case NULL: into.putString(key, null); break;
            case STRING: into.putString(key, from.readString()); break;
            case INTEGER: into.putInt(key, from.readInt()); break;
            case BOOLEAN: into.putBoolean(key, from.readInt() != 0); break;
            case BYTE: into.putByte(key, (byte) from.readInt()); break;
            case SHORT: into.putShort(key, (short) from.readInt()); break;
            case CHAR: into.putChar(key, (char) from.readInt()); break;
            case FLOAT: into.putFloat(key, from.readFloat()); break;
            case LONG: into.putLong(key, from.readLong()); break;
            case DOUBLE: into.putDouble(key, from.readDouble()); break;
            case BUNDLE: into.putBundle(key, readBundle(from)); break;
            case BYTES: into.putByteArray(key, from.createByteArray()); break;
            case STRINGS: into.putStringArray(key, from.createStringArray()); break;
            case INTS: into.putIntArray(key, from.createIntArray()); break;
            case LONGS: into.putLongArray(key, from.createLongArray()); break;
            case BOOLEANS: into.putBooleanArray(key, from.createBooleanArray()); break;
            case DOUBLES: into.putDoubleArray(key, from.createDoubleArray()); break;
            case FLOATS: into.putFloatArray(key, from.createFloatArray()); break;
            case CHARS: into.putCharArray(key, from.createCharArray()); break;
            case SHORTS: into.putShortArray(key, readShorts(from)); break;
            case CHAR_SEQUENCE:
                int unusedPlain = from.readInt();
                into.putCharSequence(key, readString8(from));
                break;
            case PARCELABLE: case MAP: case LIST: case SPARSE_ARRAY: case PARCELABLES:
            case OBJECTS: case SERIALIZABLE:
                readSized(from, type, key, into);
                break;
            default:
                throw new IllegalArgumentException("the extra " + key + " has the type " + type);
        }
    }

    private static short[] readShorts(Parcel from) {
        int length = from.readInt();
        if (length < 0 || length > from.dataAvail() / 4) {
            throw new IllegalArgumentException("an array of " + length);
        }
        short[] all = new short[length];
        for (int index = 0; index < length; index++) {
            all[index] = (short) from.readInt();
        }
        return all;
    }

    /** Reads a URI or a component's name, and passes over values of other classes. */
    private static void readSized(Parcel from, int type, String key, Bundle into) {
        int size = from.readInt();
        int end = from.dataPosition() + size;
        String name = type == PARCELABLE ? from.readString() : null;
        if (URI_CLASS.equals(name)) {
            into.putParcelable(key, readUri(from));
        } else if (COMPONENT_CLASS.equals(name)) {
            into.putParcelable(key, ComponentName.readFromParcel(from));
        }
        from.setDataPosition(end);
    }

    private static void writeUri(Parcel to, Uri uri) {
        to.writeInt(uri == null ? 0 : 1);
        if (uri != null) {
            writeString8(to, uri.toString());
        }
    }

    /** Reads a URI in the form in which the service writes all of them. */
    private static Uri readUri(Parcel from) {
        return from.readInt() == 0 ? null : Uri.parse(readString8(from));
    }

    /** Writes a string in UTF-8: the number of bytes, and the bytes with a zero behind them. */
    private static void writeString8(Parcel to, String string) {
        if (string == null) {
            to.writeInt(-1);
            return;
        }
        byte[] bytes = bytes(string);
        to.writeInt(bytes.length);
        for (int word = 0; word <= bytes.length; word += 4) {
            int value = 0;
            for (int index = word; index < Math.min(word + 4, bytes.length); index++) {
                value |= (bytes[index] & 0xff) << 8 * (index - word);
            }
            to.writeInt(value);
        }
    }

    private static byte[] bytes(String string) {
        try {
            return string.getBytes(UTF_8);
        } catch (java.io.UnsupportedEncodingException e) {
            throw new AssertionError(e);
        }
    }

    private static String readString8(Parcel from) {
        int length = from.readInt();
        if (length < 0) {
            return null;
        }
        if (length >= from.dataAvail()) {
            throw new IllegalArgumentException("a text of " + length + " bytes");
        }
        byte[] bytes = new byte[length];
        for (int word = 0; word <= length; word += 4) {
            int value = from.readInt();
            for (int index = word; index < Math.min(word + 4, length); index++) {
                bytes[index] = (byte) (value >> 8 * (index - word));
            }
        }
        try {
            return new String(bytes, UTF_8);
        } catch (java.io.UnsupportedEncodingException e) {
            throw new AssertionError(e);
        }
    }
}
