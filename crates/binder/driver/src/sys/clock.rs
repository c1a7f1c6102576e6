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

/// Tells the age of stamps. A counter's rate follows from two readings of both clocks: one when
/// this was made, and one now.
#[derive(Debug)]
pub struct StampClock {
    stamps: Stamps,
    first_ns: u64,
    first_stamp: u64,
}

impl StampClock {
    /// Reads both clocks for the first time.
    pub fn new(stamps: Stamps) -> StampClock {
        StampClock { stamps, first_ns: now_ns(), first_stamp: stamp(stamps) }
    }

    /// Microseconds since a stamp; 0 for one that is ahead, which is a false one.
    pub fn age_us(&self, sent: u64) -> u64 {
        self.age_us_at(sent, (now_ns(), stamp(self.stamps)))
    }

    fn age_us_at(&self, sent: u64, (now_ns, now): (u64, u64)) -> u64 {
        let ticks = now.saturating_sub(self.first_stamp).max(1);
        let ns_per_tick = now_ns.saturating_sub(self.first_ns) as f64 / ticks as f64;
        (now.saturating_sub(sent) as f64 * ns_per_tick / 1e3) as u64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_of_stamps() {
        // Four ticks are a nanosecond; a stamp may be older than the first reading.
        let clock = StampClock { stamps: Stamps::Counter, first_ns: 1_000, first_stamp: 40_000 };
        let now = (1_001_000, 4_040_000);
        for (sent, age_us) in [(4_040_000, 0), (40_000, 1_000), (20_000, 1_005), (5_000_000, 0)] {
            assert_eq!(clock.age_us_at(sent, now), age_us, "{sent}");
        }
        assert_eq!(clock.age_us_at(0, (1_000, 40_000)), 0, "no time has passed");
    }
}
