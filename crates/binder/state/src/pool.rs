//! The pool of loopers, and how many of them may be dedicated to real-time callers' lanes.
//!
//! **Invariant**: at most half of the loopers are dedicated, so that ordinary callers have a looper
//! whenever there is one.

use crate::message::LaneId;

/// The pool of loopers.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// BINDER_SET_MAX_THREADS.
    pub max: u32,
    /// Loopers that the program was asked for and that have not registered.
    pub requested: u32,
    /// Loopers that have registered.
    pub started: u32,
    /// Loopers of both kinds that have not left.
    pub n_present: usize,
    /// Lanes that wait for a looper, oldest first.
    pub(crate) vacant: Vec<LaneId>,
    /// How many loopers are dedicated: as many threads have a `dedicated_to`.
    pub(crate) n_dedicated: usize,
    /// A thread polls: no further looper becomes dedicated.
    pub(crate) dedicates_no_more: bool,
}

impl Pool {
    /// Whether the program may be asked for one more looper now.
    #[inline]
    pub(crate) fn may_ask(&self) -> bool {
        self.requested == 0 && self.started < self.max
    }

    /// Whether one more looper may be dedicated.
    fn can_spare(&self) -> bool {
        (self.n_dedicated + 1) * 2 <= self.n_present
    }

    /// Whether more loopers are dedicated than may be, because some have left.
    pub(crate) fn has_too_many_dedicated(&self) -> bool {
        self.n_dedicated * 2 > self.n_present
    }

    /// Whether a looper of the pool that comes to read becomes dedicated.
    #[inline]
    pub fn wants_dedicated(&self) -> bool {
        !self.vacant.is_empty() && self.can_spare()
    }

    /// Whether a lane waits for a looper that the pool cannot spare.
    #[inline]
    pub fn lacks_loopers(&self) -> bool {
        !self.vacant.is_empty() && !self.can_spare()
    }

    /// Whether a lane that is offered gets a looper: the pool can spare one, or the driver asks the
    /// program for one.
    pub fn may_dedicate(&self) -> bool {
        let may_grow = self.requested + self.started < self.max;
        !self.dedicates_no_more && (self.can_spare() || self.requested > 0 || may_grow)
    }
}
