import android.content.Intent;
import android.net.Uri;
import android.os.Binder;
import android.os.Bundle;
import android.os.Debug;
import android.os.Handler;
import android.os.IBinder;
import android.os.Looper;
import android.os.Parcel;
import android.os.ParcelFileDescriptor;
import android.os.Process;
import android.os.RemoteException;
import android.os.ServiceManager;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;

/** A service, and the methods by which tests call it. */
public class Echo extends Binder {
    static final String DESCRIPTOR = "baton.test.IEcho";
    static final int ECHO = FIRST_CALL_TRANSACTION;
    static final int CALLER = FIRST_CALL_TRANSACTION + 1;
    static final int CALL_BACK = FIRST_CALL_TRANSACTION + 2;
    static final int WRITE_TO = FIRST_CALL_TRANSACTION + 3;
    static final int THROW = FIRST_CALL_TRANSACTION + 4;
    static final int WATCH = FIRST_CALL_TRANSACTION + 5;
    static final int PRIORITY = FIRST_CALL_TRANSACTION + 6;
    static final int LARGE = FIRST_CALL_TRANSACTION + 7;
    static final int READ_ALL = FIRST_CALL_TRANSACTION + 8;
    static final int NEW_OBJECT = FIRST_CALL_TRANSACTION + 9;
    static final int OBJECTS = FIRST_CALL_TRANSACTION + 10;
    static final int BUNDLE = FIRST_CALL_TRANSACTION + 11;

    private IBinder watched;

    Echo() {
        attachInterface(null, DESCRIPTOR);
    }

    @Override
    protected boolean onTransact(int code, Parcel data, Parcel reply, int flags)
            throws RemoteException {
        if (code < FIRST_CALL_TRANSACTION || code > BUNDLE) {
            return super.onTransact(code, data, reply, flags);
        }
        data.enforceInterface(DESCRIPTOR);
        switch (code) {
            case ECHO: {
                int number = data.readInt();
                String text = data.readString();
                long[] longs = data.createLongArray();
                byte[] bytes = data.createByteArray();
                reply.writeNoException();
                reply.writeInt(number);
                reply.writeString(text);
                reply.writeLongArray(longs);
                reply.writeByteArray(bytes);
                return true;
            }
            case CALLER: {
                reply.writeNoException();
                reply.writeInt(getCallingPid());
                reply.writeInt(getCallingUid());
                long identity = clearCallingIdentity();
                reply.writeInt(getCallingPid());
                restoreCallingIdentity(identity);
                reply.writeInt(getCallingPid());
                return true;
            }
            case CALL_BACK: {
                IBinder callback = data.readStrongBinder();
                Parcel inner = Parcel.obtain();
                Parcel answer = Parcel.obtain();
                inner.writeInt(data.readInt() + 1);
                callback.transact(FIRST_CALL_TRANSACTION, inner, answer, 0);
                reply.writeNoException();
                reply.writeInt(answer.readInt());
                inner.recycle();
                answer.recycle();
                return true;
            }
            case WRITE_TO: {
                try (ParcelFileDescriptor to = data.readFileDescriptor();
                        FileOutputStream stream = new FileOutputStream(to.getFileDescriptor())) {
                    stream.write(data.readString().getBytes());
                    ParcelFileDescriptor[] pipe = ParcelFileDescriptor.createPipe();
                    try (FileOutputStream other =
                            new ParcelFileDescriptor.AutoCloseOutputStream(pipe[1])) {
                        other.write("from Java".getBytes());
                    }
                    reply.writeNoException();
                    reply.writeFileDescriptor(pipe[0].getFileDescriptor());
                    pipe[0].close();
                } catch (java.io.IOException error) {
                    throw new IllegalStateException(error);
                }
                return true;
            }
            case THROW: {
                String name = data.readString();
                switch (name) {
                    case "security": throw new SecurityException("no");
                    case "argument": throw new IllegalArgumentException("bad");
                    case "state": throw new IllegalStateException("late");
                    case "null": throw new NullPointerException("nothing");
                    default: throw new Error("an error that no parcel carries");
                }
            }
            case WATCH: {
                // Nobody hears of a death by a proxy that is collected.
                watched = data.readStrongBinder();
                String message = data.readString();
                watched.linkToDeath(() -> System.out.println(message), 0);
                reply.writeNoException();
                return true;
            }
            case PRIORITY:
                reply.writeNoException();
                reply.writeInt(Process.getThreadPriority(0));
                return true;
            case LARGE:
                reply.writeNoException();
                reply.writeByteArray(new byte[data.readInt()]);
                return true;
            case READ_ALL: {
                // Whatever a hostile caller has written.
                int which = data.readInt();
                Object value = null;
                switch (which) {
                    case 0: value = data.readString(); break;
                    case 1: value = data.createByteArray(); break;
                    case 2: value = data.createIntArray(); break;
                    case 3: value = data.createStringArrayList(); break;
                    case 4: value = data.readStrongBinder(); break;
                    case 5: value = data.readFileDescriptor(); break;
                    case 6: value = data.readBundle().keySet().size(); break;
                    case 7: value = data.readParcelable(Echo.class.getClassLoader()); break;
                    case 8: value = data.createTypedArrayList(Intent.CREATOR); break;
                    case 9: value = data.readValue(null); break;
                    default: data.readIntArray(new int[3]); break;
                }
                reply.writeNoException();
                reply.writeString(String.valueOf(value));
                return true;
            }
            case NEW_OBJECT:
                reply.writeNoException();
                reply.writeStrongBinder(new Echo());
                return true;
            case OBJECTS:
                // Finalizers give objects back.
                System.gc();
                System.runFinalization();
                reply.writeNoException();
                reply.writeInt(Debug.getBinderLocalObjectCount());
                reply.writeInt(Debug.getBinderProxyObjectCount());
                return true;
            case BUNDLE: {
                Bundle bundle = data.readBundle();
                Intent intent = new Intent("baton.test.ACTION", Uri.parse("content://a/1"));
                intent.putExtras(bundle).addCategory("baton.test.CATEGORY");
                reply.writeNoException();
                intent.writeToParcel(reply, 0);
                return true;
            }
            default:
                return super.onTransact(code, data, reply, flags);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Looper.prepareMainLooper();
        ServiceManager.addService(arguments[0], new Echo());
        new Handler(Looper.myLooper()).post(() -> System.out.println("ready"));
        Looper.loop();
    }
}
