//! The priorities at which the calling thread serves, from the read that brings a transaction to
//! the reply.
//!
//! A thread that serves nested transactions undoes the changes in reverse order. Most transactions
//! change nothing, and are not kept here.

use super::Device;
use crate::sys::priority::{self, Before};
use baton_shm::lock::Guard;
use baton_state::State;
use baton_state::priority::RequestedPriority;
use baton_state::work::Tid;
use std::cell::{Cell, RefCell};

thread_local! {
    static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
    /// Whether there are changes.
    static IS_UP: Cell<bool> = const { Cell::new(false) };
}

/// A change of priority.
struct Step {
    engine: u64,
    /// How many transactions the thread has to answer since the change; 0 for a one-way one.
    depth: usize,
    before: Before,
}

impl Device {
    /// The thread serves at this priority from now on; `depth` as in [`Step`]. Under the lock:
    /// another thread may raise this one from then on.
    pub(super) fn take_priority(
        &self,
        state: &mut State,
        tid: Tid,
        (depth, wanted): (usize, RequestedPriority),
    ) {
        if let Some(before) = self.engine.adopt(state, wanted) {
            let step = Step { engine: self.engine.number, depth, before };
            STEPS.with_borrow_mut(|steps| steps.push(step));
            IS_UP.set(true);
            state.thread(tid).is_off_priority = depth == 0;
        }
    }

    /// The thread answers the innermost of so many transactions.
    pub(super) fn leave_priority(&self, depth: impl FnOnce() -> usize) {
        if IS_UP.get() {
            self.step_down(depth());
        }
    }

    /// The thread reads, and serves nothing any more. A raise ends under the lock, as it began.
    pub(super) fn leave_priorities<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
    ) -> Guard<'a, State> {
        self.engine.give_priority_back(&mut state, None);
        if !IS_UP.get() {
            return state;
        }
        let thread = state.thread(tid);
        thread.is_off_priority = false;
        let serves_nothing = thread.stack.is_empty();
        self.engine.unlock(state);
        if serves_nothing {
            self.step_down(0);
        }
        self.engine.lock()
    }

    #[cold]
    fn step_down(&self, depth: usize) {
        STEPS.with_borrow_mut(|steps| {
            let is_left = |step: &&Step| step.engine == self.engine.number && step.depth >= depth;
            while let Some(step) = steps.last().filter(is_left) {
                priority::restore(step.before);
                steps.pop();
            }
            IS_UP.set(!steps.is_empty());
        });
    }
}
