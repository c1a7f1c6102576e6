package suite;

import android.hardware.common.fmq.MQDescriptor;
import android.hardware.common.fmq.SynchronizedReadWrite;

/** Shared memory that travels as an object, and message queues. */
interface IMemoryPeer {
    /** An IMemory of a dealer in the service that holds `size` bytes, each of them `fill`. */
    IBinder allocate(int size, byte fill);

    /** Adds up the bytes of the caller's IMemory. */
    long sum(IBinder memory);

    /** A queue of at least `capacity` elements which the service fills with 0, 1, 2, ... up to `count`. */
    MQDescriptor<int, SynchronizedReadWrite> produce(int capacity, int count);

    /** Takes a queue of the caller's and adds up `count` elements of it. */
    long consume(in MQDescriptor<int, SynchronizedReadWrite> queue, int count);
}
