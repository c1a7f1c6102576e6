//! Spinning before sleeping: whether it pays, and for how long.
//!
//! A wake-up from another processor takes some ten microseconds; a store is seen there after a
//! tenth of one. A thread that waits for a peer on another processor therefore looks for a while
//! before it sleeps, if such waits have been that short lately. It never spins on a machine of one
//! processor, or if the peer last ran on this one. At a real-time priority it spins only if the
//! program asks for it: it could keep the thread that it waits for from running.

use crate::sys::clock::now_ns;
use baton_shm::sync::{AtomicU32, AtomicU64, Ordering, spin_loop};

/// Looks between two looks at the clock.
const LOOKS: u32 = 16;
/// Looks before the first look at the clock: most spins end within them.
const QUICK_LOOKS: u32 = 64;

/// How long waits of one kind have taken lately.
#[derive(Debug, Default)]
pub struct SpinBudget {
    average_ns: AtomicU64,
    /// Waits without a spin since the last spin.
    left_out: AtomicU32,
}

/// While waits take too long to spin, one wait in so many still spins. Two ends that both sleep
/// wait for each other's wake-ups, and would otherwise never find out that a spin pays.
const TRIED_EVERY: u32 = 16;

/// How a spin ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Spun<T> {
    /// With the event.
    Saw(T),
    /// Without it: the thread sleeps, then calls [`SpinBudget::record`] with the time since this
    /// one.
    Since(u64),
}

impl SpinBudget {
    /// Looks until the event comes, or the budget is used up.
    pub(crate) fn spin<T>(&self, longest_ns: u64, mut look: impl FnMut() -> Option<T>) -> Spun<T> {
        let average = self.average_ns.load(Ordering::Relaxed);
        if average > longest_ns && !self.is_tried() {
            return Spun::Since(now_ns());
        }
        let mut look_often = |looks| {
            (0..looks).find_map(|_| {
                let seen = look();
                if seen.is_none() {
                    spin_loop();
                }
                seen
            })
        };
        if let Some(seen) = look_often(QUICK_LOOKS) {
            // Where all waits are that short, nobody writes to the line that all share.
            if average > 0 {
                self.record(0, longest_ns);
            }
            return Spun::Saw(seen);
        }
        let (start, budget_ns) = (now_ns(), self.budget_ns(longest_ns));
        loop {
            let seen = look_often(LOOKS);
            let waited = now_ns() - start;
            if let Some(seen) = seen {
                self.record(waited, longest_ns);
                return Spun::Saw(seen);
            }
            if waited > budget_ns {
                return Spun::Since(start);
            }
        }
    }

    /// Whether waits of this kind end within a spin.
    pub(crate) fn pays(&self, longest_ns: u64) -> bool {
        self.average_ns.load(Ordering::Relaxed) <= longest_ns
    }

    #[cold]
    fn is_tried(&self) -> bool {
        self.left_out.fetch_add(1, Ordering::Relaxed) % TRIED_EVERY == TRIED_EVERY - 1
    }

    /// The budget of one spin.
    fn budget_ns(&self, longest_ns: u64) -> u64 {
        let average = self.average_ns.load(Ordering::Relaxed);
        longest_ns.min(2 * average + longest_ns / 8)
    }

    /// Records how long one wait has taken. A very long wait counts as a long one, so that a few
    /// short waits make up for it.
    pub fn record(&self, waited_ns: u64, longest_ns: u64) {
        let average = self.average_ns.load(Ordering::Relaxed);
        // One short wait, with or without a spin, outweighs the long ones before.
        let most = if waited_ns < longest_ns { longest_ns / 2 } else { u64::MAX };
        let (average, waited) = (average.min(most), waited_ns.min(4 * longest_ns));
        // If two threads record at once, one record is lost.
        self.average_ns.store((7 * average + waited) / 8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_spins_as_long_as_it_pays() {
        const LONGEST: u64 = 50_000;
        let budget = SpinBudget::default();
        assert!(budget.pays(LONGEST), "to begin with");
        (0..50).for_each(|_| budget.record(1_000_000_000, LONGEST));
        assert!(!budget.pays(LONGEST), "after long waits");
        (0..50).for_each(|_| budget.record(1_000, LONGEST));
        let spins_ns = budget.budget_ns(LONGEST);
        assert!((2_000..LONGEST).contains(&spins_ns), "after short ones: {spins_ns}");
    }

    #[test]
    fn a_spin_is_tried_now_and_then_and_one_that_pays_is_followed_by_others() {
        const LONGEST: u64 = 1_000;
        let budget = SpinBudget::default();
        (0..50).for_each(|_| budget.record(1_000_000_000, LONGEST));
        let mut looks = 0;
        for _ in 0..TRIED_EVERY - 1 {
            let spun = budget.spin(LONGEST, || {
                looks += 1;
                None::<()>
            });
            assert!(matches!(spun, Spun::Since(_)));
        }
        assert_eq!(looks, 0, "not yet");
        assert_eq!(budget.spin(LONGEST, || Some(1)), Spun::Saw(1), "it is tried");
        assert!(budget.pays(LONGEST), "at once");
        // A sleep that was shorter than a spin teaches the same.
        (0..50).for_each(|_| budget.record(1_000_000_000, LONGEST));
        budget.record(LONGEST / 2, LONGEST);
        assert!(budget.pays(LONGEST));
    }

    #[test]
    fn a_spin_ends_with_what_it_sees_or_with_its_budget() {
        let budget = SpinBudget::default();
        let mut looks = 0;
        let mut count = || {
            looks += 1;
            (looks == 100).then_some(looks)
        };
        assert_eq!(budget.spin(u64::MAX / 8, &mut count), Spun::Saw(100));
        assert!(matches!(budget.spin(8, || None::<()>), Spun::Since(_)));
        assert!(matches!(budget.spin(0, || Some(())), Spun::Since(_)), "switched off");
    }
}
