//! The lanes of a channel on which the server's next look may find a request, under a lock.
//!
//! ```text
//!   client          posts, announces the lane in a word that both processes share
//!   a look          moves what is announced into this set, and takes in what lies there
//!   another thread  finds a request of which only it knows, and leaves it for the next look
//! ```
//!
//! **Invariant**: a lane with a request that no thread is about to take is announced, or in this
//! set.

/// Lanes in a set: a bit for each.
pub const MAX_LANES: usize = u64::BITS as usize;

/// The lanes whose bits are set, in order.
pub fn lanes_of(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (lane < MAX_LANES).then_some(lane)
    })
}

/// The lanes with these numbers.
fn set_of(lanes: impl Iterator<Item = usize>) -> u64 {
    lanes.map(|lane| 1 << lane).sum()
}

/// The set.
#[derive(Debug, Default)]
pub struct ReadyLanes {
    all: u64,
    /// Those that the client has announced since the last look at them.
    announced: u64,
}

impl ReadyLanes {
    /// The lanes at which the next look looks.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// The client has announced these lanes.
    pub fn announce(&mut self, lanes: u64) {
        self.all |= lanes;
        self.announced |= lanes;
    }

    /// A thread leaves the request that it has found on the lane for the next look. `announced`:
    /// the thread has taken the client's announcement.
    pub fn leave(&mut self, lane: u32, announced: bool) {
        self.all |= 1 << lane;
        self.announced |= u64::from(announced) << lane;
    }

    /// Removes and returns the lanes whose owner is not the pool: their owners look themselves.
    pub fn remove_owned(&mut self, is_pools: impl Fn(usize) -> bool) -> u64 {
        let owned = set_of(lanes_of(self.all).filter(|&lane| !is_pools(lane)));
        self.all &= !owned;
        owned
    }

    /// Removes these lanes, whose requests the caller has taken and not cleared yet. Returns how
    /// many the client had announced.
    pub fn remove(&mut self, lanes: u64) -> u32 {
        let announced = self.announced & lanes;
        self.all &= !lanes;
        self.announced &= !lanes;
        announced.count_ones()
    }

    /// Removes those among these lanes that have no request for the pool. Returns how many the
    /// client had announced.
    ///
    /// A request may have come since the caller looked, and another thread may have left it here.
    /// So `has_none` looks once more, under the lock of the set.
    pub fn forget(&mut self, lanes: u64, has_none: impl Fn(usize) -> bool) -> u32 {
        self.remove(set_of(lanes_of(lanes).filter(|&lane| has_none(lane))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_numbered_by_their_bits() {
        for lanes in [vec![], vec![0], vec![63], vec![1, 5, 63], (0..64).collect()] {
            assert_eq!(lanes_of(set_of(lanes.iter().copied())).collect::<Vec<_>>(), lanes);
        }
    }

    /// Each step of a set: the lanes that are left, and what it returns.
    #[test]
    fn lanes_come_by_announcements_and_go_by_looks() {
        let mut ready = ReadyLanes::default();
        ready.announce(0b0111);
        ready.leave(3, false);
        ready.leave(4, true);
        assert_eq!(ready.all(), 0b11111);
        assert_eq!(ready.remove_owned(|lane| lane != 0), 0b1);
        assert_eq!((ready.remove(0b0010), ready.all()), (1, 0b11100));
        assert_eq!((ready.forget(0b11100, |lane| lane > 2), ready.all()), (1, 0b100), "3 and 4");
        assert_eq!((ready.forget(0b1100, |_| true), ready.all()), (1, 0));
        assert_eq!(ready.remove(u64::MAX), 1, "lane 0, which its owner has taken");
    }
}
