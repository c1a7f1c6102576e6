//! The ids of broadcasts: no two of a journal's have one, whichever service has accepted them.
//!
//! ```text
//!   bits 57..64 level     bits 33..57 epoch of the service     bits 0..33 count at the level
//! ```
//!
//! Each level counts for itself, so that its senders write nothing that others write.

use super::priority::N_LEVELS;
use std::sync::atomic::{AtomicU64, Ordering};

const COUNT_BITS: u32 = 33;
const EPOCH_BITS: u32 = 24;

/// The ids that one service gives.
#[derive(Debug)]
pub struct Ids {
    epoch: u32,
    counts: [AtomicU64; N_LEVELS],
}

impl Ids {
    /// Ids of an epoch, of which the lower 24 bits count.
    pub fn new(epoch: u32) -> Ids {
        Ids { epoch, counts: std::array::from_fn(|_| AtomicU64::new(1)) }
    }

    /// The next id of a level.
    pub fn next(&self, level: usize) -> u64 {
        let count = self.counts[level].fetch_add(1, Ordering::Relaxed) % (1 << COUNT_BITS);
        let epoch = u64::from(self.epoch) % (1 << EPOCH_BITS);
        (level as u64) << (COUNT_BITS + EPOCH_BITS) | epoch << COUNT_BITS | count
    }

    /// How an id of an older epoch comes among others of its level: the oldest first.
    pub fn order(&self, id: u64) -> u64 {
        let newest = u64::from(self.epoch) << COUNT_BITS;
        id.wrapping_sub(newest).wrapping_sub(1 << COUNT_BITS) % (1 << (COUNT_BITS + EPOCH_BITS))
    }
}

/// The level of an id. `None` if there is none.
pub fn level_of(id: u64) -> Option<usize> {
    let level = (id >> (COUNT_BITS + EPOCH_BITS)) as usize;
    (level < N_LEVELS).then_some(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_their_level_and_older_ones_come_first() {
        let mut ids: Vec<u64> = Vec::new();
        for epoch in [(1 << EPOCH_BITS) - 2, (1 << EPOCH_BITS) - 1, 1 << EPOCH_BITS] {
            let service = Ids::new(epoch);
            ids.extend((0..3).map(|_| service.next(99)));
        }
        assert!(ids.iter().all(|id| level_of(*id) == Some(99)));
        assert_eq!(level_of(u64::MAX), None);
        let latest = Ids::new(1 << EPOCH_BITS);
        assert!(ids.is_sorted_by_key(|id| latest.order(*id)), "{ids:x?}");
    }
}
