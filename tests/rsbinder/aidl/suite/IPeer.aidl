package suite;

import suite.IListener;

/** A process of a scenario: peers call, hold, relay and outlive each other. */
interface IPeer {
    int pid();
    int callerPid();
    int callerUid();
    /** Policy and real-time priority of the thread that serves this. */
    int[] scheduling();
    byte[] echo(in byte[] data);
    /** Answers with so many bytes. */
    byte[] fill(int size);

    /** Calls `listener` before it replies, with what it was given, and replies with the answer. */
    int callBack(IListener listener, int value);

    /** Calls `other.bounce(this, depth - 1)` until depth is 0; replies with the number of hops. */
    int bounce(IPeer other, int depth);

    /** Calls `path[0].relay(path[1..], listener, value + 1)`; at the end of the path, `listener.call`. */
    int relay(in IPeer[] path, IListener listener, int value);

    /** Keeps the listener, and its death is told to `obituary` with `source` as the dead one's number. */
    void watch(IListener listener, IListener obituary, int source);

    /** Holds the listener until the next call of `hold`. */
    void hold(@nullable IListener listener);

    /** Sends `count` one-way events to what it holds. */
    void send(int source, int count);

    /** One-way messages that come in; `received` answers with what came, in order, and forgets it. */
    oneway void post(int source, int sequence);
    long[] received(int count);

    /** While stalled, the first `load` waits in the service, and those behind it queue up. */
    void stall(boolean on);
    oneway void load(in byte[] data);
    /** How many bytes `load` took, once it took at least so many. */
    int loaded(int least);

    /** Waits in the service until `count` callers wait; answers with their number. */
    int meet(int count);

    /** Waits in the service until the peer's process ends. */
    void sleep();

    /** An object that counts while it is alive. */
    IListener make();
    /** How many objects of `make` are alive. */
    int alive();

    int openFiles();
    /** Reads from `from` to the end, writes it to `to`. */
    long copy(in ParcelFileDescriptor from, in ParcelFileDescriptor to);
    /** The flags of the descriptor as it arrived: F_GETFD. */
    boolean closesOnExec(in ParcelFileDescriptor file);
    /** A connected socket whose other end answers each byte with the byte after it. */
    ParcelFileDescriptor socket();
    /** Reads and writes shared memory: adds one to each byte of the region. */
    long increment(in ParcelFileDescriptor region);
}
