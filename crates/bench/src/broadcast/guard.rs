//! The entrance to a critical section, as RTAndroid has it (Kalkov 2018, 7.2.3): the waiter with
//! the highest level is the next to enter. Whoever is inside keeps its own priority, so that an
//! urgent waiter may wait for an ordinary thread that does not run.

use baton_shm::lock::Lock;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// The entrance. Its own lock is held for some instructions only.
#[derive(Default)]
pub struct Guard(Lock<State>);

#[derive(Default)]
struct State {
    is_taken: bool,
    /// By level and number.
    waiting: BTreeMap<(Reverse<usize>, u64), (Thread, Arc<AtomicBool>)>,
    n_waiters: u64,
}

/// The right to be inside.
pub struct Inside<'a>(&'a Guard);

impl Guard {
    /// Waits until this thread may enter at this level.
    pub fn enter(&self, level: usize) -> Inside<'_> {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.is_taken, true) {
            let is_next = Arc::new(AtomicBool::new(false));
            state.n_waiters += 1;
            let place = (Reverse(level), state.n_waiters);
            state.waiting.insert(place, (thread::current(), Arc::clone(&is_next)));
            drop(state);
            // Pairs with the release of `Inside::drop`.
            while !is_next.load(Ordering::Acquire) {
                thread::park();
            }
        }
        Inside(self)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        match state.waiting.pop_first() {
            None => state.is_taken = false,
            Some((_, (thread, is_next))) => {
                drop(state);
                is_next.store(true, Ordering::Release);
                thread.unpark();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn the_highest_waiter_enters_next_and_equals_in_their_order() {
        let (guard, entered) = (Guard::default(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            let inside = guard.enter(0);
            for (n_before, (level, name)) in
                [(0, 'd'), (9, 'a'), (5, 'b'), (5, 'c')].iter().enumerate()
            {
                let (guard, entered) = (&guard, &entered);
                scope.spawn(move || {
                    let _inside = guard.enter(*level);
                    entered.lock().unwrap().push(*name);
                });
                while guard.0.lock().waiting.len() <= n_before {
                    thread::yield_now();
                }
            }
            drop(inside);
        });
        assert_eq!(*entered.lock().unwrap(), ['a', 'b', 'c', 'd']);
        assert!(!guard.0.lock().is_taken);
    }
}
