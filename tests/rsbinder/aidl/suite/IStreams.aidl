package suite;

import rsbinder.stream.StreamEndpoint;
import suite.ITypes;

/** Streams of parcelables, which go through a ring in shared memory. */
interface IStreams {
    /** Sends points with x from 0 to `count`, and then ends the stream: with an error if so asked. */
    void subscribe(in StreamEndpoint<ITypes.Point> endpoint, int count, boolean fail);

    /** Takes what the producer sends until the stream ends. */
    StreamEndpoint<ITypes.Point> upload(IBinder producer);
    /** The sum of x over all that was uploaded, once the stream has ended. */
    long sum();
}
