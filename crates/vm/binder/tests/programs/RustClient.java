import android.os.Binder;
import android.os.IBinder;
import android.os.Parcel;
import android.os.ParcelFileDescriptor;
import android.os.Process;
import android.os.RemoteException;
import android.os.ServiceManager;
import java.io.FileInputStream;

/** Calls a service that is written in Rust. */
public class RustClient {
    static IBinder service;

    static Parcel call(int code, IBinder argument) throws RemoteException {
        Parcel data = Parcel.obtain();
        Parcel reply = Parcel.obtain();
        data.writeInterfaceToken("baton.test.IRust");
        data.writeStrongBinder(argument);
        service.transact(code, data, reply, 0);
        data.recycle();
        reply.readException();
        return reply;
    }

    public static void main(String[] arguments) throws Exception {
        service = ServiceManager.getService(arguments[0]);
        try {
            call(1, null);
        } catch (IllegalStateException error) {
            System.out.println(error);
        }
        Binder callback = new Binder() {
            @Override
            protected boolean onTransact(int code, Parcel data, Parcel reply, int flags) {
                reply.writeInt(data.readInt() * 10);
                return true;
            }
        };
        System.out.println("kept: " + call(2, callback).readStrongBinder());
        callback = null;
        // The service alone keeps the callback now.
        System.gc();
        System.out.println("called back: " + call(3, null).readInt());
        ParcelFileDescriptor descriptor = call(4, null).readFileDescriptor();
        try (FileInputStream stream =
                new ParcelFileDescriptor.AutoCloseInputStream(descriptor)) {
            byte[] bytes = new byte[100];
            System.out.println("descriptor: " + new String(bytes, 0, stream.read(bytes)));
        }
        Parcel caller = call(5, null);
        boolean isPid = caller.readInt() == Integer.parseInt(
                new java.io.File("/proc/self").getCanonicalFile().getName());
        System.out.println("caller: " + isPid + " " + caller.readInt());
        System.out.println("bad array: " + call(6, null).createIntArray());
        try {
            call(6, null).readIntArray(new int[2]);
        } catch (RuntimeException error) {
            System.out.println(error.getMessage());
        }
        try {
            call(7, null);
        } catch (RemoteException error) {
            System.out.println(error);
        }
    }
}
