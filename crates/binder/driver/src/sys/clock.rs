//! Clocks: one that tells how long something takes, and one that orders messages of different
//! senders.

use baton_abi::control::Stamps;
use baton_shm::clock::{counter, counter_in_order};
pub use baton_shm::clock::{now, now_ns};

/// The stamp of a call. The processor may read the clock a little early. That is invisible, because
/// the caller acts again only after the answer.
#[inline]
pub fn stamp(stamps: Stamps) -> u64 {
    match stamps {
        Stamps::Counter => counter(),
        Stamps::Clock => now_ns(),
    }
}

/// The stamp of a message whose sender goes on and may cause further messages: later than every
/// stamp that the thread has seen.
pub fn stamp_in_order(stamps: Stamps) -> u64 {
    match stamps {
        Stamps::Counter => counter_in_order(),
        Stamps::Clock => now_ns(),
    }
}
