package suite;

import suite.IListener;

/** Served by a tokio runtime. */
interface ITasks {
    String greet(String name);
    /** Waits until `count` callers wait; answers with their number. */
    int meet(int count);
    /** Awaits the listener's answer before it replies with it. */
    int callBack(IListener listener, int value);
}
