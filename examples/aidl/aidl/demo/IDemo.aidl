package demo;

import demo.IProgress;

/** One method for each thing that a Binder call can do. */
interface IDemo {
    /** Gives the bytes back. */
    byte[] echo(in byte[] data);

    /** Calls `progress` with 0, 25, 50, 75 and 100 before it replies with the sum of the answers. */
    int work(IProgress progress);

    /** Reads the descriptor to its end and answers with what it read, in capitals. */
    String shout(in ParcelFileDescriptor text);

    /** Answers with a descriptor from which `text` can be read. */
    ParcelFileDescriptor publish(String text);

    /** Adds to a sum, without a reply. */
    oneway void add(int value);

    /** What `add` was told since the last call of `total`. */
    int total();

    /** The service's process. */
    int pid();

    /** The process that the driver says this call comes from. */
    int callerPid();
}
