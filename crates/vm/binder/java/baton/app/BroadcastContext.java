package baton.app;

import android.app.IActivityManager;
import android.content.BroadcastReceiver;
import android.content.ComponentName;
import android.content.Context;
import android.content.ContextWrapper;
import android.content.Intent;
import android.content.IntentFilter;
import android.os.Binder;
import android.os.Bundle;
import android.os.Handler;
import android.os.IBinder;
import android.os.Looper;
import android.os.Parcel;
import android.os.RemoteException;
import android.os.ServiceManager;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * A context whose broadcasts go by the service of {@code baton am serve}.
 *
 * <p>Receivers run on their handler's thread, or else on that of the main looper. Registrations end
 * with the process, and with the service. A sticky broadcast comes as any other one: no method
 * returns it. Methods that have nothing to do with broadcasts are those of the base context.
 */
public class BroadcastContext extends ContextWrapper {
    private static final String NAME = "broadcast";
    private static final String MANAGER = "baton.app.IBroadcastManager";
    private static final String RECEIVER = "baton.app.IIntentReceiver";
    private static final int REGISTER_RECEIVER = 1;
    private static final int UNREGISTER_RECEIVER = 2;
    private static final int BROADCAST_INTENT = 3;
    private static final int REMOVE_STICKY = 4;
    private static final int FINISH_RECEIVER = 5;
    private static final int ATTACH_RECEIVER = 6;
    private static final int PERFORM_RECEIVE = 1;
    /** No key: what this process registers is not for the next service. */
    private static final long NO_KEY = 0;

    private final List<Registered> registered = new ArrayList<Registered>();

    /** A context for broadcasts alone. */
    public BroadcastContext() {
        this(null);
    }

    /** A context with another one's methods, but for broadcasts. */
    public BroadcastContext(Context base) {
        super(base);
    }

    @Override
    public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter) {
        return registerReceiver(receiver, filter, null, null);
    }

    @Override
    public Intent registerReceiver(BroadcastReceiver receiver, IntentFilter filter,
            String permission, Handler handler) {
        Registered object = new Registered(receiver, handler,
                BroadcastReceiver.PendingResult.TYPE_REGISTERED);
        Parcel data = request();
        data.writeStrongBinder(object);
        data.writeInt(1);
        IntentParcels.write(filter, data);
        data.writeString(permission);
        data.writeString(null);
        data.writeLong(NO_KEY);
        // Known before the first broadcast comes.
        synchronized (registered) {
            registered.add(object);
        }
        call(REGISTER_RECEIVER, data);
        return null;
    }

    @Override
    public void unregisterReceiver(BroadcastReceiver receiver) {
        List<Registered> removed = new ArrayList<Registered>();
        synchronized (registered) {
            for (Iterator<Registered> all = registered.iterator(); all.hasNext();) {
                Registered object = all.next();
                if (object.receiver == receiver) {
                    removed.add(object);
                    all.remove();
                }
            }
        }
        if (removed.isEmpty()) {
            throw new IllegalArgumentException("not registered: " + receiver);
        }
        for (Registered object : removed) {
            Parcel data = request();
            data.writeStrongBinder(object);
            call(UNREGISTER_RECEIVER, data);
        }
    }

    /** Attaches the receiver of a manifest, in the process that was started for it. */
    public void attachReceiver(BroadcastReceiver receiver, ComponentName component) {
        Registered object =
                new Registered(receiver, null, BroadcastReceiver.PendingResult.TYPE_COMPONENT);
        Parcel data = request();
        data.writeStrongBinder(object);
        data.writeString(component.getPackageName());
        data.writeString(component.getClassName());
        synchronized (registered) {
            registered.add(object);
        }
        call(ATTACH_RECEIVER, data);
    }

    @Override
    public void sendBroadcast(Intent intent) {
        send(intent, null, null, 0, null, null, false, false);
    }

    @Override
    public void sendBroadcast(Intent intent, String permission) {
        send(intent, null, null, 0, null, permission, false, false);
    }

    @Override
    public void sendOrderedBroadcast(Intent intent, String permission) {
        send(intent, null, null, 0, null, permission, true, false);
    }

    @Override
    public void sendOrderedBroadcast(Intent intent, String permission, BroadcastReceiver result,
            Handler handler, int code, String data, Bundle extras) {
        send(intent, result(result, handler), extras, code, data, permission, true, false);
    }

    @Override
    public void sendStickyBroadcast(Intent intent) {
        send(intent, null, null, 0, null, null, false, true);
    }

    @Override
    public void sendStickyOrderedBroadcast(Intent intent, BroadcastReceiver result,
            Handler handler, int code, String data, Bundle extras) {
        send(intent, result(result, handler), extras, code, data, null, true, true);
    }

    @Override
    public void removeStickyBroadcast(Intent intent) {
        Parcel data = request();
        data.writeInt(1);
        IntentParcels.write(intent, data);
        call(REMOVE_STICKY, data);
    }

    private Registered result(BroadcastReceiver receiver, Handler handler) {
        int type = BroadcastReceiver.PendingResult.TYPE_UNREGISTERED;
        return receiver == null ? null : new Registered(receiver, handler, type);
    }

    private static void send(Intent intent, IBinder result, Bundle extras, int code, String text,
            String permission, boolean isOrdered, boolean isSticky) {
        Parcel data = request();
        data.writeInt(1);
        IntentParcels.write(intent, data);
        data.writeStrongBinder(result);
        writeOutcome(data, code, text, extras);
        data.writeString(permission);
        data.writeInt(isOrdered ? 1 : 0);
        data.writeInt(isSticky ? 1 : 0);
        data.writeLong(NO_KEY);
        call(BROADCAST_INTENT, data);
    }

    private static Parcel request() {
        Parcel data = Parcel.obtain();
        data.writeInterfaceToken(MANAGER);
        return data;
    }

    private static void writeOutcome(Parcel data, int code, String text, Bundle extras) {
        data.writeInt(code);
        data.writeString(text);
        data.writeInt(extras == null ? 0 : 1);
        if (extras != null) {
            IntentParcels.write(extras, data);
        }
    }

    private static IBinder service() {
        IBinder service = ServiceManager.getService(NAME);
        if (service == null) {
            throw new IllegalStateException("there is no broadcast service: see baton am serve");
        }
        return service;
    }

    /** Calls the service, which has to answer. */
    private static void call(int code, Parcel data) {
        Parcel reply = Parcel.obtain();
        try {
            service().transact(code, data, reply, 0);
            reply.readException();
        } catch (RemoteException e) {
            throw new IllegalStateException("the broadcast service has failed", e);
        } finally {
            data.recycle();
            reply.recycle();
        }
    }

    /** What the service calls, for one registration of a receiver. */
    private final class Registered extends Binder {
        final BroadcastReceiver receiver;
        private final Handler handler;
        private final int type;

        Registered(BroadcastReceiver receiver, Handler handler, int type) {
            if (receiver == null) {
                throw new IllegalArgumentException("no receiver is given");
            }
            if (handler == null && Looper.getMainLooper() == null) {
                throw new IllegalStateException(
                        "a receiver needs a handler, or a main looper: Looper.prepareMainLooper()");
            }
            this.receiver = receiver;
            this.handler = handler != null ? handler : new Handler(Looper.getMainLooper());
            this.type = type;
            attachInterface(null, RECEIVER);
        }

        @Override
        protected boolean onTransact(int code, Parcel data, Parcel reply, int flags)
                throws RemoteException {
            if (code != PERFORM_RECEIVE) {
                return super.onTransact(code, data, reply, flags);
            }
            data.enforceInterface(RECEIVER);
            if (data.readInt() == 0) {
                throw new IllegalArgumentException("a broadcast without an intent");
            }
            final Intent intent = IntentParcels.readIntent(data);
            int result = data.readInt();
            String text = data.readString();
            Bundle extras = data.readInt() == 0 ? null : IntentParcels.readBundle(data);
            boolean isOrdered = data.readInt() != 0;
            boolean isSticky = data.readInt() != 0;
            final Pending pending =
                    new Pending(result, text, extras, type, isOrdered, isSticky, data.readLong());
            handler.post(new Runnable() {
                @Override
                public void run() {
                    receive(intent, pending);
                }
            });
            return true;
        }

        private void receive(Intent intent, Pending pending) {
            receiver.setPendingResult(pending);
            receiver.onReceive(BroadcastContext.this, intent);
            // Otherwise goAsync has taken it, and somebody else finishes it.
            if (receiver.getPendingResult() != null) {
                receiver.setPendingResult(null);
                pending.sendFinished(null);
            }
        }
    }

    /** A broadcast that a receiver works on. */
    private static final class Pending extends BroadcastReceiver.PendingResult {
        /** 0: the service does not wait for the receiver. */
        private final long token;
        private boolean isFinished;

        Pending(int code, String text, Bundle extras, int type, boolean isOrdered,
                boolean isSticky, long token) {
            super(code, text, extras, type, isOrdered, isSticky, null, 0);
            this.token = token;
        }

        @Override
        public void sendFinished(IActivityManager ignored) {
            synchronized (this) {
                if (isFinished) {
                    throw new IllegalStateException("the broadcast is finished already");
                }
                isFinished = true;
            }
            if (token == 0) {
                return;
            }
            Parcel data = request();
            data.writeLong(token);
            writeOutcome(data, getResultCode(), getResultData(), getResultExtras(false));
            data.writeInt(getAbortBroadcast() ? 1 : 0);
            try {
                service().transact(FINISH_RECEIVER, data, null, IBinder.FLAG_ONEWAY);
            } catch (RemoteException e) {
                // The service is gone, and waits for nobody.
            } finally {
                data.recycle();
            }
        }
    }
}
