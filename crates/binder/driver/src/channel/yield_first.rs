//! Yielding once to the peer before a sleep, where both run on one processor.
//!
//! Two threads that sleep for each other make four system calls a round trip: each wakes the other
//! and sleeps. A thread that yields first also gives the processor to its peer, and mostly finds
//! its message when it runs again:
//!
//! ```text
//!   client                      looper               system calls
//!   post, wake, wait            answer, wake, wait   4, if both sleep
//!   post, yield                 answer, yield        2, if both yield first
//! ```
//!
//! A thread that has yielded and finds nothing sleeps: it yields once for each wait. Each lane
//! records whether yielding pays, and skips the yield in some waits:
//!
//! ```text
//!   the message is there                 the next wait tries again; half as many are left out
//!   it is not: the peer did not run      one wait is left out, then two, four, ..., 64
//!   it is, but has taken long: others    one for each 4096 counts is left out, then 8192, ...,
//!     want the processor, too            65,536
//! ```
//!
//! The last case is the expensive one: a thread that yields waits for its turn among all runnable
//! threads, while a thread that is woken runs soon. Fewer than one call in a thousand should meet
//! it.
//!
//! **Invariant**: the peer's processor and the time of its message are the peer's word. A false
//! word gains no more than that waits for this peer yield once in vain, or do not yield.
//!
//! A thread of a real-time priority yields to threads of the same priority, to which a sleep would
//! give the processor, too. A thread of SCHED_DEADLINE does not yield: it would lose the rest of
//! its period.

use baton_shm::sync::{AtomicU32, Ordering};

/// Most waits that are skipped because the peer did not run: a try costs a system call.
pub(crate) const AWAY: u32 = 64;
/// Most waits that are skipped because other threads wanted the processor: a try may cost
/// milliseconds.
const CROWDED: u32 = 1 << 16;
/// A message that is older than this by its stamp has taken long: 130 to 260 us by a counter of 4
/// to 2 GHz, 520 us by the clock.
pub(crate) const LONG: i64 = 1 << 19;

/// Whether yielding on a lane has paid lately. If two threads update it at once, one update may be
/// lost.
#[derive(Debug, Default)]
pub struct YieldFirst {
    /// The number of the next waits that do not yield.
    to_skip: AtomicU32,
    /// The number of waits that were skipped the last time.
    last_skip: AtomicU32,
}

impl YieldFirst {
    /// Skips up to `waits` waits, and returns how many. After 0 the wait yields.
    pub(crate) fn skip(&self, waits: u32) -> u32 {
        let to_skip = self.to_skip.load(Ordering::Relaxed);
        let now = to_skip.min(waits);
        self.to_skip.store(to_skip - now, Ordering::Relaxed);
        now
    }

    /// Whether yielding has not paid for long.
    pub(crate) fn is_given_up(&self) -> bool {
        self.last_skip.load(Ordering::Relaxed) >= AWAY
    }

    /// Records that yielding has paid so often in a row.
    #[cold]
    pub(crate) fn has_paid(&self, often: u32) {
        let last_skip = self.last_skip.load(Ordering::Relaxed);
        self.last_skip.store(last_skip.checked_shr(often).unwrap_or(0), Ordering::Relaxed);
    }

    /// Records that yielding has not paid: skips at least `least` and at most `most` waits.
    #[cold]
    pub(crate) fn has_not_paid(&self, (least, most): (u32, u32)) {
        let last = self.last_skip.load(Ordering::Relaxed);
        // A longer skip, of the other kind, is not made shorter.
        let last_skip = if last > most { last } else { (2 * last).clamp(least, most) };
        self.last_skip.store(last_skip, Ordering::Relaxed);
        self.to_skip.store(last_skip, Ordering::Relaxed);
    }
}

/// How many waits to skip after one that has taken so long, at least and at most: one for each
/// microsecond or two. The slow waits then cost some tenths of a call on average.
#[cold]
pub(crate) fn crowded(taken: i64) -> (u32, u32) {
    ((taken >> 12).min(CROWDED.into()) as u32, CROWDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(yield_first: &YieldFirst) {
        yield_first.has_paid(1);
    }

    fn away(yield_first: &YieldFirst) {
        yield_first.has_not_paid((1, AWAY));
    }

    fn late(yield_first: &YieldFirst) {
        yield_first.has_not_paid(crowded(1 << 20));
    }

    /// How many of so many waits try it, each of which ends so.
    fn tries(yield_first: &YieldFirst, waits: u32, ends: fn(&YieldFirst)) -> u32 {
        let mut tried = 0;
        for _ in 0..waits {
            if yield_first.skip(1) == 0 {
                ends(yield_first);
                tried += 1;
            }
        }
        tried
    }

    #[test]
    fn yielding_is_tried_as_often_as_it_pays() {
        let yield_first = YieldFirst::default();
        assert_eq!(tries(&yield_first, 100, paid), 100);
        // 1, 2, ..., 64 are left out after seven, then 64 after each.
        assert_eq!(tries(&yield_first, 7 + 127, away), 7);
        assert_eq!(tries(&yield_first, 10 * 65, away), 10);
        assert!(yield_first.is_given_up());
        assert_eq!(tries(&yield_first, 100, paid), 100, "at once, once it pays again");
        assert!(!yield_first.is_given_up());
        // 256, 512, ..., 65,536 after nine, then that after each.
        assert_eq!(tries(&yield_first, 9 + 511 * 256, late), 9);
        assert_eq!(tries(&yield_first, 2 * 65_537, late), 2);
        assert_eq!(tries(&yield_first, 2 * 65_537, away), 2, "it stays rare until it pays");
        assert_eq!(tries(&yield_first, 100, paid), 100);
    }
}
