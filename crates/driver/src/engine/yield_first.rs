//! Letting the peer by before a sleep, where both run on one processor.
//!
//! Two threads that sleep for each other make four system calls a round trip: each wakes the other,
//! and waits. One that yields first gives the processor to the other as well, and has what it waits
//! for when it is back:
//!
//! ```text
//!   client                      looper               system calls
//!   post, wake, wait            answer, wake, wait   4, if both sleep
//!   post, yield                 answer, yield        2, if both let each other by
//! ```
//!
//! Whoever has let the other by and has nothing yet sleeps as ever: nobody yields twice in a row
//! for one wait, and one who waits for long sleeps. That it pays is found out for each lane, in
//! waits:
//!
//! ```text
//!   what it waits for is there           the next wait tries again; half as many are left out
//!   it is not: the peer was away         one wait is left out, then two, four, ..., 64
//!   it is, but has taken long:           one is, for each 4096 counts, then 8192, ... 65,536
//!     others want the processor, too
//! ```
//!
//! The last kind is the one that costs: a thread that yields waits for its turn among all that are
//! ready to run, where one that is woken comes soon. Fewer than one call in a thousand is to meet
//! that.
//!
//! **Invariant**: where the peer runs, and when it sent, is its word. All that a false one gains is
//! that waits for it yield once in vain, or do not yield.
//!
//! At a real-time priority those of the same priority are let by, whom a sleep would let by too.
//! SCHED_DEADLINE gives up what is left of its period by a yield, and does not.

use super::Engine;
use super::wait_policy::{WaitMode, WaitPolicy};
use crate::channel::Channel;
use crate::clock::stamp;
use baton_shm::sync::Ordering;
use std::sync::atomic::AtomicU32;

/// Most waits that are left out because the peer was away: to try costs a system call.
const AWAY: u32 = 64;
/// Most that are left out because others wanted the processor: to try may cost some milliseconds.
const CROWDED: u32 = 1 << 16;
/// So much later what has come should have. A counter of 2 to 4 GHz has counted so far in 130 to
/// 260 us, the clock in 520.
const LONG: i64 = 1 << 19;

/// Whether it has paid lately. Threads that share one may both be heard, or either.
#[derive(Debug, Default)]
pub struct YieldFirst {
    /// Waits that are left out.
    left_out: AtomicU32,
    /// How many were last.
    pause: AtomicU32,
}

impl YieldFirst {
    /// How many of so many waits are to be left out, one after the other. If there is none, it is
    /// to be tried.
    pub(super) fn leave_out(&self, waits: u32) -> u32 {
        let left_out = self.left_out.load(Ordering::Relaxed);
        let now = left_out.min(waits);
        self.left_out.store(left_out - now, Ordering::Relaxed);
        now
    }

    /// It has, so often in a row.
    #[cold]
    fn has_paid(&self, often: u32) {
        let pause = self.pause.load(Ordering::Relaxed);
        self.pause.store(pause.checked_shr(often).unwrap_or(0), Ordering::Relaxed);
    }

    #[cold]
    fn has_not_paid(&self, (least, most): (u32, u32)) {
        let last = self.pause.load(Ordering::Relaxed);
        // A longer one, of the other kind, is not made shorter.
        let pause = if last > most { last } else { (2 * last).clamp(least, most) };
        self.pause.store(pause, Ordering::Relaxed);
        self.left_out.store(pause, Ordering::Relaxed);
    }
}

/// Fewest and most waits that are left out after one that has taken so long: one for each
/// microsecond or two, by which others cost some tenths of a call.
#[cold]
fn crowded(taken: i64) -> (u32, u32) {
    ((taken >> 12).min(CROWDED.into()) as u32, CROWDED)
}

impl Engine {
    /// Lets the other end's thread by, if that is the mode of this wait on the lane. `sent` says
    /// whether there is something now, and since when it could have been. True if there is.
    #[inline(always)]
    pub(super) fn lets_by(
        &self,
        policy: &WaitPolicy,
        channel: &Channel,
        lane: u32,
        sent: impl FnOnce() -> Option<u64>,
    ) -> bool {
        if policy.mode() != WaitMode::LetBy {
            return false;
        }
        rustix::thread::sched_yield();
        let yield_first = channel.yield_first(lane);
        let Some(sent) = sent() else {
            yield_first.has_paid(policy.held());
            yield_first.has_not_paid((1, AWAY));
            return false;
        };
        // A stamp may be its sender's word: one that lies is slept for. One that is ahead of ours
        // is not late.
        let taken = stamp(self.broker.stamps).wrapping_sub(sent).cast_signed();
        if taken > LONG {
            yield_first.has_paid(policy.held());
            yield_first.has_not_paid(crowded(taken));
            policy.forget();
        } else if policy.is_last() {
            yield_first.has_paid(policy.held() + 1);
        }
        true
    }
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
            if yield_first.leave_out(1) == 0 {
                ends(yield_first);
                tried += 1;
            }
        }
        tried
    }

    #[test]
    fn it_is_tried_as_often_as_it_pays() {
        let yield_first = YieldFirst::default();
        assert_eq!(tries(&yield_first, 100, paid), 100);
        // 1, 2, ..., 64 are left out after seven, then 64 after each.
        assert_eq!(tries(&yield_first, 7 + 127, away), 7);
        assert_eq!(tries(&yield_first, 10 * 65, away), 10);
        assert_eq!(tries(&yield_first, 100, paid), 100, "at once, once it pays again");
        // 256, 512, ..., 65,536 after nine, then that after each.
        assert_eq!(tries(&yield_first, 9 + 511 * 256, late), 9);
        assert_eq!(tries(&yield_first, 2 * 65_537, late), 2);
        assert_eq!(tries(&yield_first, 2 * 65_537, away), 2, "it stays rare until it pays");
        assert_eq!(tries(&yield_first, 100, paid), 100);
    }
}
