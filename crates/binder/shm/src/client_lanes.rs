//! The lanes of a channel at its client's end: which are in use, and how far their calls have come.
//!
//! ```text
//!          take                    abandon
//!   Free --------> a call has it ----------> Abandoned
//!     ^                |                         |
//!     +----- give -----+----- reclaim: the server has given the lane back
//! ```
//!
//! A lane may be *reserved* besides, in use or not: then only the thread that reserved it takes it,
//! by its number. A lane that is reserved no longer may still have a dedicated looper; until that
//! one has left, `take` passes the lane over.
//!
//! **Invariant**: of all threads that ask for a free lane at once, one gets it. What the server may
//! write decides nothing here but when an abandoned lane is free again.

use crate::lock::Lock;
use crate::ready_lanes::{MAX_LANES, lanes_of};
use crate::sync::{AtomicU64, Ordering};
use core::sync::atomic::AtomicU8;

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Progress {
    /// The call may not be posted yet.
    Departed,
    /// The call has been posted.
    Posted,
    /// The call has been posted, and a looper was woken for it.
    Expected,
}

/// All lanes of a channel, a bit for each.
#[derive(Debug)]
pub struct ClientLanes {
    /// Lanes that no call has.
    free: AtomicU64,
    /// Lanes that belong to one real-time thread.
    reserved: AtomicU64,
    /// Lanes that are no longer reserved, and whose dedicated looper may not have left yet.
    left: AtomicU64,
    /// Lanes that were reserved once and are not now.
    ended: AtomicU64,
    /// Lanes whose caller has left, and which the server has not given back.
    abandoned: Lock<u64>,
    /// Lanes whose last request had another nice value than 0.
    niced: AtomicU64,
    /// How far the call on each lane has come, a [`Progress`].
    progress: [AtomicU8; MAX_LANES],
}

impl Default for ClientLanes {
    fn default() -> ClientLanes {
        ClientLanes {
            free: AtomicU64::new(u64::MAX),
            reserved: AtomicU64::new(0),
            left: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            abandoned: Lock::default(),
            niced: AtomicU64::new(0),
            progress: std::array::from_fn(|_| AtomicU8::new(Progress::Departed as u8)),
        }
    }
}

impl ClientLanes {
    /// Takes a free lane that is not reserved; one without a dedicated looper, if there is such a
    /// lane. `None` if all are in use.
    pub fn take(&self, is_dedicated: impl Fn(usize) -> bool) -> Option<usize> {
        let others = self.still_dedicated(is_dedicated);
        loop {
            let free = self.free.load(Ordering::Relaxed) & !self.reserved.load(Ordering::Relaxed);
            let own = if free & !others == 0 { free } else { free & !others };
            let lane = own.trailing_zeros();
            if lane as usize == MAX_LANES {
                return None;
            }
            if self.take_this(lane) {
                // Only the thread that has a lane reserves it, before it gives the lane back. So
                // this sees what the first look may have missed.
                if self.reserved.load(Ordering::Relaxed) >> lane & 1 == 0 {
                    return Some(lane as usize);
                }
                self.give(lane);
            }
        }
    }

    /// Lanes whose dedicated looper has not left yet, though their real-time caller has gone. It
    /// would serve the next caller at the last one's priority, or a real-time caller would take it
    /// for its own.
    fn still_dedicated(&self, is_dedicated: impl Fn(usize) -> bool) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return 0;
        }
        let dedicated: u64 =
            lanes_of(left).filter(|&lane| is_dedicated(lane)).map(|lane| 1 << lane).sum();
        self.left.fetch_and(!left | dedicated, Ordering::Relaxed);
        dedicated
    }

    /// Takes a lane if no call has it.
    #[inline(always)]
    pub fn take_this(&self, lane: u32) -> bool {
        // Acquire pairs with the release in `give`.
        self.free.fetch_and(!(1 << lane), Ordering::Acquire) >> lane & 1 == 1
    }

    /// The call on the lane is over.
    #[inline(always)]
    pub fn give(&self, lane: u32) {
        self.free.fetch_or(1 << lane, Ordering::Release);
    }

    /// The caller has left, and the server has not.
    pub fn abandon(&self, lane: u32) {
        *self.abandoned.lock() |= 1 << lane;
    }

    /// Renews and gives the abandoned lanes that the server has given back.
    pub fn reclaim(&self, is_given_back: impl Fn(usize) -> bool, renew: impl Fn(u32)) {
        let mut abandoned = self.abandoned.lock();
        for lane in lanes_of(*abandoned).filter(|&lane| is_given_back(lane)) {
            *abandoned &= !(1 << lane);
            renew(lane as u32);
            self.give(lane as u32);
        }
    }

    /// Reserves the lane for the thread that has it at this moment.
    pub fn reserve(&self, lane: u32) {
        self.reserved.fetch_or(1 << lane, Ordering::Relaxed);
        self.ended.fetch_and(!(1 << lane), Ordering::Relaxed);
    }

    /// The lane is reserved no longer.
    pub fn unreserve(&self, lane: u32) {
        self.left.fetch_or(1 << lane, Ordering::Relaxed);
        self.reserved.fetch_and(!(1 << lane), Ordering::Relaxed);
        self.ended.fetch_or(1 << lane, Ordering::Relaxed);
    }

    /// Lanes that were reserved once and are not now. Relaxed: whoever changes them has the lock of
    /// all reservations.
    pub fn ended(&self) -> impl Iterator<Item = usize> + use<> {
        lanes_of(self.ended.load(Ordering::Relaxed))
    }

    /// Notes whether the request that is about to be posted on the lane has another nice value than
    /// 0. True if that has changed. Only the thread that has the lane may call this.
    #[inline(always)]
    pub fn set_niced(&self, lane: usize, is_niced: bool) -> bool {
        let niced = self.niced.load(Ordering::Relaxed);
        let has_changed = (niced >> lane & 1 == 1) != is_niced;
        if has_changed {
            self.niced.fetch_xor(1 << lane, Ordering::Relaxed);
        }
        has_changed
    }

    /// Notes how far the call on the lane has come.
    #[inline(always)]
    pub fn set_progress(&self, lane: usize, progress: Progress) {
        // Release pairs with the acquire in `is_posted`: a message that counts as posted is.
        self.progress[lane % MAX_LANES].store(progress as u8, Ordering::Release);
    }

    /// Whether a looper was woken for the call on the lane. Relaxed: only its caller asks.
    #[inline(always)]
    pub fn is_expected(&self, lane: u32) -> bool {
        self.progress[lane as usize].load(Ordering::Relaxed) == Progress::Expected as u8
    }

    /// Whether the call on the lane has been posted.
    pub fn is_posted(&self, lane: u32) -> bool {
        self.progress[lane as usize].load(Ordering::Acquire) != Progress::Departed as u8
    }

    /// Whether the lane is abandoned, in use or reserved, in a word: for the simulator.
    #[cfg(simulated)]
    pub fn kept(&self, lane: u32) -> Option<&'static str> {
        let has = |lanes: u64| lanes >> lane & 1 == 1;
        let in_use = !self.free.load(Ordering::Relaxed);
        let is_reserved = has(self.reserved.load(Ordering::Relaxed));
        match (has(*self.abandoned.lock()), has(in_use), is_reserved) {
            (true, ..) => Some("abandoned"),
            (false, true, _) => Some("in use"),
            (false, false, true) => Some("reserved"),
            (false, false, false) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const NO: fn(usize) -> bool = |_| false;
    const YES: fn(usize) -> bool = |_| true;

    /// Takes lanes until none is left.
    fn take_all(lanes: &ClientLanes) -> Vec<usize> {
        std::iter::from_fn(|| lanes.take(NO)).collect()
    }

    #[test]
    fn each_lane_is_taken_once() {
        let lanes = ClientLanes::default();
        let taken: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| take_all(&lanes))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut taken = taken.concat();
        taken.sort_unstable();
        assert_eq!(taken, (0..MAX_LANES).collect::<Vec<_>>());
        lanes.give(5);
        assert!(!lanes.take_this(4));
        assert!(lanes.take_this(5));
    }

    #[test]
    fn a_reserved_lane_is_taken_by_its_number_only() {
        for lane in [0, 5, 63] {
            let lanes = ClientLanes::default();
            assert!(lanes.take_this(lane));
            lanes.reserve(lane);
            lanes.give(lane);
            let others: Vec<_> = (0..MAX_LANES).filter(|&other| other != lane as usize).collect();
            assert_eq!(take_all(&lanes), others);
            assert!(lanes.take_this(lane));
            assert_eq!(lanes.ended().count(), 0);
            lanes.give(lane);
            lanes.unreserve(lane);
            assert_eq!(lanes.ended().collect::<Vec<_>>(), [lane as usize]);
            assert_eq!(take_all(&lanes), [lane as usize]);
            lanes.reserve(lane);
            assert_eq!(lanes.ended().count(), 0, "it is reserved again");
        }
    }

    #[test]
    fn a_lane_with_a_dedicated_looper_is_taken_last() {
        for old in [0, 5, 63] {
            let lanes = ClientLanes::default();
            lanes.reserve(old);
            lanes.unreserve(old);
            let mut taken = vec![];
            while let Some(lane) = lanes.take(|lane| lane == old as usize) {
                taken.push(lane);
            }
            assert_eq!((taken.len(), taken.last()), (MAX_LANES, Some(&(old as usize))));
            let other = if old == 0 { 1 } else { 0 };
            lanes.give(old);
            lanes.give(other);
            assert_eq!(lanes.take(NO), Some(old.min(other) as usize), "its looper has left");
            assert_eq!(lanes.take(YES), Some(old.max(other) as usize));
            lanes.give(old);
            assert_eq!(lanes.take(YES), Some(old as usize), "and nobody asks about it again");
        }
    }

    #[test]
    fn an_abandoned_lane_comes_back_once() {
        let lanes = ClientLanes::default();
        let taken = [lanes.take(NO).unwrap(), lanes.take(NO).unwrap()];
        taken.iter().for_each(|&lane| lanes.abandon(lane as u32));
        let back = |is_given_back: &dyn Fn(usize) -> bool| {
            let renewed = RefCell::new(Vec::new());
            lanes.reclaim(is_given_back, |lane| renewed.borrow_mut().push(lane as usize));
            renewed.into_inner()
        };
        assert_eq!(back(&NO), []);
        assert_eq!(back(&|lane| lane == taken[1]), [taken[1]]);
        assert!(lanes.take_this(taken[1] as u32) && !lanes.take_this(taken[0] as u32));
        assert_eq!(back(&YES), [taken[0]]);
        assert_eq!(back(&YES), []);
    }

    #[test]
    fn a_call_is_posted_after_it_has_departed() {
        let lanes = ClientLanes::default();
        for (progress, is_posted, is_expected) in [
            (Progress::Departed, false, false),
            (Progress::Posted, true, false),
            (Progress::Expected, true, true),
        ] {
            lanes.set_progress(3, progress);
            assert_eq!((lanes.is_posted(3), lanes.is_expected(3)), (is_posted, is_expected));
        }
    }

    #[test]
    fn a_nice_value_is_shown_when_it_changes() {
        let lanes = ClientLanes::default();
        let changed = [false, true, true, false].map(|is_niced| lanes.set_niced(2, is_niced));
        assert_eq!(changed, [false, true, false, true]);
        assert!(lanes.set_niced(3, true), "each lane for itself");
    }
}
