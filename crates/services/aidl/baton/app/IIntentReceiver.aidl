package baton.app;

import android.content.Intent;
import android.os.Bundle;

oneway interface IIntentReceiver {
    /**
     * The receiver answers with finishReceiver(token, ...) if token is not 0: of an ordered
     * broadcast, and of each one that the receiver of a manifest's component gets.
     * id: names the broadcast. After the service was killed, the next one may call a receiver with
     * the id of its last broadcasts again, which the receiver has to answer, and not to act on.
     */
    void performReceive(in Intent intent, int resultCode, @nullable String resultData,
            in @nullable Bundle resultExtras, boolean ordered, boolean sticky, long token, long id);
}
