//! Clocks: one that tells how long something takes, and one that orders messages of different
//! senders.

use baton_abi::control::Stamps;
use baton_shm::clock::{counter, counter_in_order};
pub use baton_shm::clock::{now, now_ns};

/// The stamp of a call. The processor may take it a little early, which nobody can tell: what
/// its caller does next comes after the answer.
#[inline]
pub fn stamp(stamps: Stamps) -> u64 {
    match stamps {
        Stamps::Counter => counter(),
        Stamps::Clock => now_ns(),
    }
}

/// The stamp of a message whose sender goes on, and may cause others: later than all that the
/// thread has seen before.
pub fn stamp_in_order(stamps: Stamps) -> u64 {
    match stamps {
        Stamps::Counter => counter_in_order(),
        Stamps::Clock => now_ns(),
    }
}
