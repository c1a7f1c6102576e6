//! Where one thread waits for a notification, an interrupt or a point in time.
//!
//! A thread has one parker and waits in one place at a time. Whoever notifies has taken the thread
//! out of a monitor's queue before, so that a notification belongs to the wait that is under way.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// One thread's parker.
#[derive(Debug, Default)]
pub struct Parker {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    notified: bool,
    interrupted: bool,
}

impl Parker {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Forgets notifications of earlier waits.
    pub fn prepare(&self) {
        self.lock().notified = false;
    }

    /// Ends a wait.
    pub fn notify(&self) {
        self.lock().notified = true;
        self.changed.notify_all();
    }

    /// Ends a wait, or the next one.
    pub fn interrupt(&self) {
        self.lock().interrupted = true;
        self.changed.notify_all();
    }

    /// Whether the thread has been interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.lock().interrupted
    }

    /// Whether the thread has been interrupted; it is no longer afterwards.
    pub fn take_interrupt(&self) -> bool {
        std::mem::take(&mut self.lock().interrupted)
    }

    /// Whether the wait that ends has been notified.
    pub fn is_notified(&self) -> bool {
        self.lock().notified
    }

    /// Waits until a notification, an interrupt or the deadline, whichever is first.
    pub fn park(&self, deadline: Option<Instant>) {
        let mut state = self.lock();
        while !state.notified && !state.interrupted {
            let Some(deadline) = deadline else {
                state = self.changed.wait(state).expect("no holder panics");
                continue;
            };
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).expect("no holder panics").0;
        }
    }
}
