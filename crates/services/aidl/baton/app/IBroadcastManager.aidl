package baton.app;

import android.content.Intent;
import android.content.IntentFilter;
import android.os.Bundle;
import baton.app.IIntentReceiver;

interface IBroadcastManager {
    /**
     * permission: senders need it. packageName: explicit intents that name it match, too.
     * key: by which the process registers this receiver with the next service, too, and gets what
     * this one leaves; 0 for none. A random one, which no other receiver of the process has.
     */
    void registerReceiver(IIntentReceiver receiver, in IntentFilter filter,
            @nullable String permission, @nullable String packageName, long key);

    void unregisterReceiver(IIntentReceiver receiver);

    /**
     * Returns the number of receivers. permission: receivers need it. resultKey: by which the
     * process gives resultTo to the next service, by returnResultReceiver; 0 for none.
     */
    int broadcastIntent(in Intent intent, @nullable IIntentReceiver resultTo, int resultCode,
            @nullable String resultData, in @nullable Bundle resultExtras,
            @nullable String permission, boolean ordered, boolean sticky,
            long resultKey);

    void removeStickyBroadcast(in Intent intent);

    oneway void finishReceiver(long token, int resultCode, @nullable String resultData,
            in @nullable Bundle resultExtras, boolean abort);

    /** The receiver of a component of a manifest, whose process is running now. */
    void attachReceiver(IIntentReceiver receiver, String packageName, String className);

    /** Receivers, sticky broadcasts, and counts by priority, as JSON. */
    String describe();

    /** The receiver of a result that an earlier service of this name was to call. */
    void returnResultReceiver(IIntentReceiver receiver, long key);
}
