package baton;

interface IClock {
    long realtimeNanos();
    long monotonicNanos();
}
