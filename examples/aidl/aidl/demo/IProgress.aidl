package demo;

/** What a client lets the service call while the client waits for its own call. */
interface IProgress {
    /** Answers with twice the percentage. */
    int report(int percent);
}
