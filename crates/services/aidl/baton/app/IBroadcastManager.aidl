package baton.app;

import android.content.Intent;
import android.content.IntentFilter;
import android.os.Bundle;
import baton.app.IIntentReceiver;

interface IBroadcastManager {
    /** permission: senders need it. packageName: explicit intents that name it match, too. */
    void registerReceiver(IIntentReceiver receiver, in IntentFilter filter,
            @nullable String permission, @nullable String packageName);

    void unregisterReceiver(IIntentReceiver receiver);

    /** Returns the number of receivers. permission: receivers need it. */
    int broadcastIntent(in Intent intent, @nullable IIntentReceiver resultTo, int resultCode,
            @nullable String resultData, in @nullable Bundle resultExtras,
            @nullable String permission, boolean ordered, boolean sticky);

    void removeStickyBroadcast(in Intent intent);

    oneway void finishReceiver(long token, int resultCode, @nullable String resultData,
            in @nullable Bundle resultExtras, boolean abort);

    /** The receiver of a component of a manifest, whose process is running now. */
    void attachReceiver(IIntentReceiver receiver, String packageName, String className);

    /** Receivers, sticky broadcasts, and counts by priority, as JSON. */
    String describe();
}
