import android.content.Intent;
import android.os.Binder;
import android.os.Bundle;
import android.os.DeadObjectException;
import android.os.Handler;
import android.os.HandlerThread;
import android.os.IBinder;
import android.os.Parcel;
import android.os.ParcelFileDescriptor;
import android.os.RemoteException;
import android.os.ServiceManager;
import android.os.TransactionTooLargeException;
import java.io.FileInputStream;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import java.util.concurrent.CountDownLatch;

/** Calls an Echo service by its name, and tells what comes back. */
public class Client {
    static IBinder service;

    interface Writer {
        void write(Parcel data) throws Exception;
    }

    interface Reader {
        Object read(Parcel reply) throws Exception;
    }

    static Object call(int code, Writer writer, Reader reader) throws Exception {
        Parcel data = Parcel.obtain();
        Parcel reply = Parcel.obtain();
        try {
            data.writeInterfaceToken(Echo.DESCRIPTOR);
            writer.write(data);
            service.transact(code, data, reply, 0);
            reply.readException();
            return reader.read(reply);
        } finally {
            data.recycle();
            reply.recycle();
        }
    }

    static String thrown(int code, Writer writer) throws Exception {
        try {
            return String.valueOf(call(code, writer, reply -> "nothing"));
        } catch (RuntimeException | RemoteException error) {
            return error.getClass().getName() + ": " + error.getMessage();
        }
    }

    static class Callback extends Binder {
        @Override
        protected boolean onTransact(int code, Parcel data, Parcel reply, int flags) {
            reply.writeInt(data.readInt() * 10);
            return true;
        }
    }

    /** More parcels than a pool has places, recycled and obtained again. */
    static String recycled() {
        Parcel[] before = new Parcel[10];
        for (int i = 0; i < before.length; i++) {
            before[i] = Parcel.obtain();
            before[i].writeInt(i);
        }
        for (Parcel parcel : before) {
            parcel.recycle();
        }
        Set<Parcel> after = Collections.newSetFromMap(new IdentityHashMap<>());
        int nBytes = 0;
        for (int i = 0; i < before.length; i++) {
            Parcel parcel = Parcel.obtain();
            nBytes += parcel.dataSize();
            parcel.writeInt(i);
            after.add(parcel);
        }
        int nEqual = 0;
        for (Parcel parcel : before) {
            nEqual += after.contains(parcel) ? 1 : 0;
        }
        return after.size() + " parcels, " + nEqual + " again, " + nBytes + " bytes";
    }

    public static void main(String[] arguments) throws Exception {
        service = ServiceManager.getService(arguments[0]);
        System.out.println("same proxy: " + (service == ServiceManager.getService(arguments[0])));
        System.out.println("absent: " + ServiceManager.checkService("no such service"));
        System.out.println("listed: " + Arrays.asList(ServiceManager.listServices())
                .contains(arguments[0]));
        System.out.println("alive: " + service.pingBinder() + " " + service.isBinderAlive());
        System.out.println("interface: " + service.getInterfaceDescriptor());
        for (String text : new String[] {null, "", "a\ud83d\ude00b"}) {
            System.out.println("echo: " + call(Echo.ECHO, data -> {
                data.writeInt(7);
                data.writeString(text);
                data.writeLongArray(new long[] {1, -1});
                data.writeByteArray(new byte[] {1, 2, 3});
            }, reply -> reply.readInt() + " " + (text == null ? reply.readString() == null
                    : text.equals(reply.readString())) + " "
                    + Arrays.toString(reply.createLongArray()) + " "
                    + Arrays.toString(reply.createByteArray())));
        }
        System.out.println("callback: " + call(Echo.CALL_BACK, data -> {
            data.writeStrongBinder(new Callback());
            data.writeInt(4);
        }, Parcel::readInt));
        for (String name : new String[] {"security", "argument", "state", "null"}) {
            System.out.println("thrown: " + thrown(Echo.THROW, data -> data.writeString(name)));
        }
        Parcel name = Parcel.obtain();
        name.writeInterfaceToken(Echo.DESCRIPTOR);
        name.writeString("error");
        System.out.println("an error: " + service.transact(Echo.THROW, name, Parcel.obtain(), 0));
        System.out.println("unknown code: " + service.transact(99, Parcel.obtain(),
                Parcel.obtain(), 0));
        System.out.println("too large: " + thrown(Echo.ECHO, data ->
                data.writeByteArray(new byte[2 << 20])));
        System.out.println("recycled: " + recycled());
        System.out.println("still there: " + call(Echo.ECHO, data -> data.writeInt(1),
                Parcel::readInt));
        ParcelFileDescriptor[] pipe = ParcelFileDescriptor.createPipe();
        ParcelFileDescriptor received = (ParcelFileDescriptor) call(Echo.WRITE_TO, data -> {
            data.writeFileDescriptor(pipe[1].getFileDescriptor());
            data.writeString("to the pipe");
        }, Parcel::readFileDescriptor);
        pipe[1].close();
        for (ParcelFileDescriptor end : new ParcelFileDescriptor[] {pipe[0], received}) {
            byte[] bytes = new byte[100];
            int count = 0;
            try (FileInputStream stream = new ParcelFileDescriptor.AutoCloseInputStream(end)) {
                for (int n; (n = stream.read(bytes, count, 100 - count)) > 0; ) {
                    count += n;
                }
            }
            System.out.println("pipe: " + new String(bytes, 0, count));
        }
        System.out.println("intent: " + call(Echo.BUNDLE, data -> {
            Bundle bundle = new Bundle();
            bundle.putString("text", "value");
            bundle.putIntArray("numbers", new int[] {1, 2});
            bundle.putBinder("binder", new Callback());
            data.writeBundle(bundle);
        }, reply -> {
            Intent intent = Intent.CREATOR.createFromParcel(reply);
            Bundle extras = intent.getExtras();
            return intent + " " + extras.getString("text") + " "
                    + Arrays.toString(extras.getIntArray("numbers")) + " "
                    + extras.getBinder("binder").getClass().getName();
        }));
        System.out.println("handler: " + handled());
        System.out.println("link: " + linked());
        System.out.println("ready");
        CountDownLatch died = new CountDownLatch(1);
        service.linkToDeath(died::countDown, 0);
        // Whoever started this kills the service now.
        died.await();
        System.out.println("dead: " + service.isBinderAlive());
        try {
            call(Echo.ECHO, data -> { }, reply -> null);
        } catch (DeadObjectException error) {
            System.out.println("a call to the dead: " + error.getClass().getName());
        }
        try {
            service.linkToDeath(() -> { }, 0);
        } catch (DeadObjectException error) {
            System.out.println("a link to the dead: " + error.getClass().getName());
        }
    }

    static String handled() throws Exception {
        HandlerThread thread = new HandlerThread("handler");
        thread.start();
        Handler handler = new Handler(thread.getLooper());
        StringBuffer order = new StringBuffer();
        CountDownLatch done = new CountDownLatch(1);
        handler.postDelayed(() -> {
            order.append(" second");
            done.countDown();
        }, 30);
        handler.post(() -> order.append("first"));
        done.await();
        thread.quit();
        thread.join();
        return order.toString();
    }

    static String linked() throws Exception {
        IBinder.DeathRecipient recipient = () -> System.out.println("must not be told");
        service.linkToDeath(recipient, 0);
        boolean first = service.unlinkToDeath(recipient, 0);
        try {
            service.unlinkToDeath(recipient, 0);
            return "unlinked twice";
        } catch (java.util.NoSuchElementException error) {
            return first + " " + error.getMessage();
        }
    }
}
