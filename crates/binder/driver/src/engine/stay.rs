//! Staying: the looper of a real-time caller that is bound to one processor is bound there, too.
//!
//! The kernel lets a real-time thread that wakes up run where what runs is less urgent. That is
//! never its caller's processor, where the caller is still running: so each half of a call would
//! wake another processor, 15 to 30 us in place of 3. A thread that is bound stays, and runs as
//! soon as its caller sleeps.
//!
//! Only for callers that are bound themselves. Whatever could keep the looper from its processor
//! then keeps its caller from there, as well; one that is free would go on elsewhere, and wait for
//! a looper that cannot.
//!
//! **Invariant**: where the caller is bound is the client's word. All that a false one gains is
//! that the looper of its own lane runs where the program lets it run anyway.

use super::Engine;
use super::dedicated::DedicatedLooper;
use crate::thread::{bind, priorities_changed};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::cell::Cell;

thread_local! {
    /// The caller's processor, wherever that has brought the calling thread.
    static CALLERS: Cell<Option<u32>> = const { Cell::new(None) };
    /// What it was bound to before, while it is bound there.
    static BEFORE: Cell<Option<CpuSet>> = const { Cell::new(None) };
}

impl Engine {
    /// The calling thread, which is dedicated, has been woken: it runs where its caller does.
    #[inline]
    pub(super) fn stay_with_caller(&self, dedicated: &DedicatedLooper) {
        let bound = dedicated.channel.callers_processor(dedicated.lane);
        let processor = bound.filter(|_| self.settings.follow);
        if processor != CALLERS.get() {
            stay_at(processor);
        }
        if processor.is_none() {
            self.follow(&[&dedicated.channel]);
        }
    }
}

/// The calling thread is dedicated no longer.
pub(super) fn go_free() {
    if CALLERS.get().is_some() {
        stay_at(None);
    }
}

#[cold]
fn stay_at(processor: Option<u32>) {
    // What it calls meanwhile is to stay there, too.
    priorities_changed();
    if let Some((here, before)) = CALLERS.replace(processor).zip(BEFORE.take()) {
        // Who has bound this thread in between has the last word.
        if sched_getaffinity(None) == Ok(only(here)) {
            bind(&before);
        }
    }
    let Some(processor) = processor else { return };
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let is_allowed = (processor as usize) < CpuSet::MAX_CPU && allowed.is_set(processor as usize);
    if is_allowed && bind(&only(processor)) {
        BEFORE.set(Some(allowed));
    }
}

fn only(processor: u32) -> CpuSet {
    let mut only = CpuSet::new();
    only.set(processor as usize);
    only
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    fn processors() -> impl Iterator<Item = u32> {
        let bound = bound();
        (0..CpuSet::MAX_CPU).filter(move |&processor| bound.is_set(processor)).map(|n| n as u32)
    }

    /// On a thread of its own, which may be bound.
    fn check(test: fn()) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn a_thread_that_has_stayed_is_bound_as_before() {
        check(|| {
            let before = bound();
            for processor in processors() {
                stay_at(Some(processor));
                assert_eq!(bound(), only(processor));
            }
            go_free();
            assert_eq!(bound(), before);
        });
    }

    #[test]
    fn a_false_word_changes_nothing() {
        check(|| {
            let before = bound();
            for processor in [CpuSet::MAX_CPU as u32 - 1, CpuSet::MAX_CPU as u32, u32::MAX - 1] {
                stay_at(Some(processor));
                assert_eq!(bound(), before);
            }
            go_free();
            assert_eq!(bound(), before);
        });
    }

    #[test]
    fn whoever_binds_the_thread_in_between_has_the_last_word() {
        check(|| {
            let Some((first, second)) = processors().next().zip(processors().nth(1)) else {
                return;
            };
            stay_at(Some(first));
            assert!(bind(&only(second)));
            go_free();
            assert_eq!(bound(), only(second));
        });
    }
}
