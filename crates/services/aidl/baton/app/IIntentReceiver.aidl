package baton.app;

import android.content.Intent;
import android.os.Bundle;

oneway interface IIntentReceiver {
    /** The receiver of an ordered broadcast answers with finishReceiver(token, ...). */
    void performReceive(in Intent intent, int resultCode, @nullable String resultData,
            in @nullable Bundle resultExtras, boolean ordered, boolean sticky, long token);
}
