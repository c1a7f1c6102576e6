import android.os.Binder;
import android.os.IBinder;
import android.os.Parcel;
import android.os.RemoteException;
import android.os.ServiceManager;

/**
 * A service that returns what it gets, and its client, which prints nanoseconds of each call.
 *
 * Arguments: serve NAME; or call NAME FORM N_INTS N_CALLS, where FORM is array or ints.
 */
public class BinderEcho extends Binder {
    static final String DESCRIPTOR = "baton.bench.IEcho";
    static final int ARRAY = FIRST_CALL_TRANSACTION;
    static final int INTS = FIRST_CALL_TRANSACTION + 1;

    @Override
    protected boolean onTransact(int code, Parcel data, Parcel reply, int flags) {
        if (code == ARRAY) {
            reply.writeIntArray(data.createIntArray());
        } else {
            int n = data.readInt();
            reply.writeInt(n);
            for (int i = 0; i < n; i++) {
                reply.writeInt(data.readInt());
            }
        }
        return true;
    }

    /** One round trip; returns the sum of what comes back. */
    static int call(IBinder service, int code, int[] numbers) throws RemoteException {
        Parcel data = Parcel.obtain();
        Parcel reply = Parcel.obtain();
        int sum = 0;
        if (code == ARRAY) {
            data.writeIntArray(numbers);
            service.transact(code, data, reply, 0);
            for (int number : reply.createIntArray()) {
                sum += number;
            }
        } else {
            data.writeInt(numbers.length);
            for (int i = 0; i < numbers.length; i++) {
                data.writeInt(numbers[i]);
            }
            service.transact(code, data, reply, 0);
            int n = reply.readInt();
            for (int i = 0; i < n; i++) {
                sum += reply.readInt();
            }
        }
        data.recycle();
        reply.recycle();
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("serve")) {
            ServiceManager.addService(arguments[1], new BinderEcho());
            System.out.println("ready");
            Binder.joinThreadPool();
        }
        IBinder service = ServiceManager.getService(arguments[1]);
        int code = arguments[2].equals("array") ? ARRAY : INTS;
        int[] numbers = new int[Integer.parseInt(arguments[3])];
        int expected = 0;
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = i * 7 - 3;
            expected += numbers[i];
        }
        long[] timesNs = new long[Integer.parseInt(arguments[4])];
        // A tenth more, first, of which nobody asks.
        for (int i = -timesNs.length / 10; i < timesNs.length; i++) {
            long before = System.nanoTime();
            int sum = call(service, code, numbers);
            if (i >= 0) {
                timesNs[i] = System.nanoTime() - before;
            }
            if (sum != expected) {
                throw new AssertionError(sum + " instead of " + expected);
            }
        }
        StringBuilder lines = new StringBuilder();
        for (long timeNs : timesNs) {
            lines.append(timeNs).append('\n');
        }
        System.out.print(lines);
    }
}
