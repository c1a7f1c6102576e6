//! Where the collector's thread runs: not on processors to which real-time threads are bound.
//!
//! A thread that wakes up where another one has just run finds that one's data in the caches. For
//! ordinary threads that is the scheduler's business; a real-time thread that its program has bound
//! to a processor is to find there what it left.

use crate::vm::Vm;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::Ordering::Relaxed;

/// The processors of the calling thread, which is the collector's.
pub(crate) struct Placement {
    /// Those that it had at first: none, if the system does not tell
    at_first: CpuSet,
    /// Those that it has now
    now: CpuSet,
}

impl Placement {
    pub fn new() -> Placement {
        let at_first = sched_getaffinity(None).unwrap_or_default();
        Placement { at_first, now: at_first }
    }

    /// Leaves the processors to the VM's real-time threads that they are bound to now. The program
    /// may bind them at any time, by other ways than ours.
    pub fn leave_to_real_time(&mut self, vm: &Vm) {
        let threads = vm.threads.all();
        let real_time = threads.iter().filter(|state| state.is_real_time.load(Relaxed));
        // One that has just ended has no processors.
        let theirs = real_time.filter_map(|state| sched_getaffinity(Some(state.tid())).ok());
        let rest = rest(&self.at_first, theirs);
        if rest != self.now && sched_setaffinity(None, &rest).is_ok() {
            self.now = rest;
        }
    }
}

/// The processors of `all` to which none of `others` is bound; `all`, if each has one. Who may run
/// on all of them is bound to none.
fn rest(all: &CpuSet, others: impl Iterator<Item = CpuSet>) -> CpuSet {
    let mut rest = *all;
    for bound in others.filter(|cpus| cpus.count() < all.count()) {
        (0..CpuSet::MAX_CPU).filter(|&cpu| bound.is_set(cpu)).for_each(|cpu| rest.unset(cpu));
    }
    if rest.count() == 0 { *all } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(numbers: impl IntoIterator<Item = usize>) -> CpuSet {
        let mut cpus = CpuSet::new();
        numbers.into_iter().for_each(|cpu| cpus.set(cpu));
        cpus
    }

    #[test]
    fn bound_threads_have_their_processors_alone() {
        let all = cpus(0..4);
        for (others, expected) in [
            (vec![], cpus(0..4)),
            (vec![cpus([3])], cpus(0..3)),
            (vec![cpus([3]), cpus([0, 1])], cpus([2])),
            // One that may run anywhere
            (vec![cpus(0..4), cpus([1])], cpus([0, 2, 3])),
            // None would be left.
            (vec![cpus([0, 1]), cpus([2, 3])], all),
            // Some that this thread has not
            (vec![cpus([7])], all),
        ] {
            assert_eq!(rest(&all, others.clone().into_iter()), expected, "{others:?}");
        }
    }
}
