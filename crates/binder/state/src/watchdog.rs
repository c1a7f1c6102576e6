//! The watchdog's rounds, which the runner makes while no looper of the pool waits.
//!
//! A request that no looper of the pool has picked up during one round goes to a dedicated looper
//! that is idle. The other way round, a lane whose caller has waited for a round while its
//! dedicated looper is out of the driver goes back to the pool.

use crate::message::LaneId;
use crate::work::Tid;

/// After so many rounds in a row a dedicated looper is relieved although a looper of the pool seems
/// to be at work: that one may be at work for ever.
pub(crate) const MAX_SPARED: u32 = 50;

/// The result of one round of the watchdog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// No further round is needed.
    Last,
    /// A further round is needed.
    Another,
    /// A further round is needed, and a request waits that none of these loopers of the pool has
    /// picked up since the last round: see [`State::end_round`](crate::State::end_round).
    Missed(Vec<Tid>),
}

#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// How often loopers of the pool have come by.
    visits: u64,
    /// `visits` at the last round, while the watchdog runs.
    visits_before: Option<u64>,
    /// Lanes whose callers have waited since before the next round, for a looper that is out of
    /// the driver.
    absent: Vec<LaneId>,
    /// Rounds in a row in which the dedicated loopers have been spared.
    n_spared: u32,
}

impl Watchdog {
    /// Counts a looper of the pool that comes by.
    #[inline(always)]
    pub fn count_visit(&mut self) {
        self.visits += 1;
    }

    /// Starts the rounds. False if they run already.
    pub fn start(&mut self) -> bool {
        let starts = self.visits_before.is_none();
        self.visits_before.get_or_insert(self.visits);
        starts
    }

    /// Notes a lane whose caller waits and whose dedicated thread may be out of the driver.
    pub fn note_absent(&mut self, via: LaneId) {
        if !self.absent.contains(&via) {
            self.absent.push(via);
        }
    }

    /// The lanes noted by [`Watchdog::note_absent`] since the last round.
    pub fn take_absent(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.absent)
    }

    /// One round. `is_manned`: a looper of the pool waits, or none is dedicated. `missed`: the
    /// pool's loopers, if there is work that none of them has picked up.
    pub fn round(&mut self, is_manned: bool, missed: impl FnOnce() -> Option<Vec<Tid>>) -> Round {
        if is_manned && self.absent.is_empty() {
            (self.visits_before, self.n_spared) = (None, 0);
            return Round::Last;
        }
        let before = self.visits_before.replace(self.visits);
        if is_manned || before != Some(self.visits) {
            self.n_spared = 0;
            return Round::Another;
        }
        missed().map_or(Round::Another, Round::Missed)
    }

    /// Ends a round that missed loopers of the pool: whether a dedicated looper is to be relieved.
    pub fn end_round(&mut self, are_at_work: bool) -> bool {
        if self.visits_before != Some(self.visits) {
            return false;
        }
        self.n_spared += 1;
        let relieves = !are_at_work || self.n_spared > MAX_SPARED;
        if relieves {
            self.n_spared = 0;
        }
        relieves
    }
}
