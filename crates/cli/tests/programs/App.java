import android.content.BroadcastReceiver;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.IntentFilter;
import android.net.Uri;
import android.os.Binder;
import android.os.Bundle;
import android.os.Looper;
import android.os.Parcel;
import android.os.Process;
import android.os.ServiceManager;
import baton.app.BroadcastContext;
import java.util.Arrays;
import java.util.TreeSet;

/** A Java application: args[0] says what it is. */
public class App {
    private static final BroadcastContext CONTEXT = new BroadcastContext();

    public static void main(String[] args) throws Exception {
        Looper.prepareMainLooper();
        switch (args[0]) {
            case "serve":
                ServiceManager.addService(args[1], new Service());
                break;
            case "receive":
                IntentFilter filter = new IntentFilter(args[1]);
                filter.addCategory("urgent");
                filter.addDataScheme("news");
                filter.addDataAuthority("*.example.org", "80");
                filter.addDataPath("/today", 1);
                filter.addDataType("text/*");
                filter.setPriority(3);
                CONTEXT.registerReceiver(new Receiver(), filter);
                CONTEXT.registerReceiver(new Receiver(), new IntentFilter(args[1]));
                System.out.println("registered");
                break;
            case "component":
                CONTEXT.attachReceiver(new Receiver(), new ComponentName(args[1], args[2]));
                break;
            case "send":
                send(args[1]);
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
        Looper.loop();
    }

    /** Tells its process, and greets. */
    private static final class Service extends Binder {
        @Override
        protected boolean onTransact(int code, Parcel data, Parcel reply, int flags) {
            data.enforceInterface("app");
            reply.writeNoException();
            reply.writeInt(Process.myPid());
            reply.writeString("Hello " + data.readString());
            return true;
        }
    }

    /** Prints what it gets. Another thread answers an ordered broadcast. */
    private static final class Receiver extends BroadcastReceiver {
        @Override
        public void onReceive(Context context, Intent intent) {
            System.out.println(text(intent));
            if (!isOrderedBroadcast()) {
                return;
            }
            final PendingResult result = goAsync();
            new Thread() {
                @Override
                public void run() {
                    result.setResult(result.getResultCode() + 7, "from Java", new Bundle());
                    result.finish();
                }
            }.start();
        }
    }

    /** An intent with everything, whose result comes back. */
    private static void send(String action) {
        Intent intent = new Intent(action, Uri.parse("news://a.example.org:80/today?x"));
        intent.addCategory("urgent");
        Bundle inner = new Bundle();
        inner.putString("inner", null);
        intent.putExtra("text", "Grüße").putExtra("int", -3).putExtra("long", 1L << 40);
        intent.putExtra("byte", (byte) -1).putExtra("short", (short) -2).putExtra("char", 'ß');
        intent.putExtra("float", 1.5f).putExtra("double", -0.25).putExtra("boolean", true);
        intent.putExtra("bundle", inner).putExtra("uri", Uri.parse("a:b"));
        intent.putExtra("component", new ComponentName("p", "c"));
        intent.putExtra("sequence", (CharSequence) new StringBuilder("letters"));
        intent.putExtra("bytes", new byte[] {1, 2, 3}).putExtra("ints", new int[] {4, 5});
        intent.putExtra("strings", new String[] {"a", null}).putExtra("shorts", new short[] {6});
        intent.putExtra("chars", new char[] {'x'}).putExtra("longs", new long[] {7});
        intent.putExtra("floats", new float[] {8}).putExtra("doubles", new double[] {9});
        intent.putExtra("booleans", new boolean[] {true, false});
        CONTEXT.sendOrderedBroadcast(intent, null, new BroadcastReceiver() {
            @Override
            public void onReceive(Context context, Intent same) {
                System.out.println(text(same));
                System.out.println(getResultCode() + " " + getResultData());
                System.exit(0);
            }
        }, null, 5, "first", null);
    }

    private static String text(Intent intent) {
        StringBuilder text = new StringBuilder(intent.getAction());
        text.append(" ").append(intent.getDataString());
        Bundle extras = intent.getExtras();
        for (String key : new TreeSet<String>(extras == null ? new Bundle().keySet()
                : extras.keySet())) {
            Object value = extras.get(key);
            if (value instanceof Bundle) {
                value = new TreeSet<String>(((Bundle) value).keySet());
            }
            String array = Arrays.deepToString(new Object[] {value});
            text.append(" ").append(key).append("=").append(array.substring(1, array.length() - 1));
        }
        return text.toString();
    }
}
