package suite;

/** What a peer calls back: inside a call, or later, one-way. */
interface IListener {
    /** Answers with value + 1. */
    int call(int value);
    oneway void event(int source, int sequence);
}
