//! Whether a receiver is there, and which levels wait for it.
//!
//! A level's thread is woken for the end or the return of a receiver only if it has waited for that
//! receiver before. So a user's registrations do not wake real-time threads that never called them.
//!
//! Memory order (Dekker): the level is noted, then the receiver is looked at; the receiver's end or
//! return is stored, then the levels are looked at. A fence separates the two on each side. So
//! either the level's thread sees the change, or it is told.

use super::priority::N_LEVELS;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The state of one receiver.
#[derive(Debug, Default)]
pub struct Presence {
    is_gone: AtomicBool,
    /// A bit for each level that has waited.
    levels: [AtomicU64; N_LEVELS.div_ceil(64)],
}

impl Presence {
    /// Whether the receiver is unregistered or dead.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// The receiver is unregistered or dead. [`Presence::waiting`] are to be told.
    pub fn end(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// The level waits for the receiver, and is told of its end and its return. What has happened
    /// before is to be seen from here on.
    pub fn wait(&self, level: usize) {
        let (word, bit) = (&self.levels[level / 64], 1 << (level % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
            // Pairs with the fence of `waiting`.
            fence(Ordering::SeqCst);
        }
    }

    /// The levels that have waited, to be told of what the caller has stored.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        // Pairs with the fence of `wait`.
        fence(Ordering::SeqCst);
        let is_set = |level: &usize| {
            self.levels[level / 64].load(Ordering::Relaxed) & 1 << (level % 64) != 0
        };
        (0..N_LEVELS).filter(is_set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_that_have_waited_are_to_be_told() {
        let presence = Presence::default();
        assert_eq!(presence.waiting().count(), 0);
        [99, 0, 63, 64, 63].into_iter().for_each(|level| presence.wait(level));
        assert!(presence.waiting().eq([0, 63, 64, 99]));
    }
}
