package suite;

/** Any remote object of the suite: something to call, to pass on and to compare. */
interface IEcho {
    String name();
}
