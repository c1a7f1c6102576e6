//! Priority inheritance of one-way transactions: while one of a real-time sender waits for another
//! one of the same node, the thread that serves that one has the sender's priority.
//!
//! The process raises the thread in its own right, as far as RLIMIT_RTPRIO or CAP_SYS_NICE allow.
//! Without that right the thread keeps its priority.
//!
//! A thread that was raised serves the waiting transaction itself, if it reads next: nobody has to
//! wake up for it, and the state is locked once.
//!
//! **Invariant**: a thread is raised by a thread that holds the state's lock, while the state says
//! that it serves. It takes the transaction's own priority over under that lock, before it can be
//! raised. It ends the raise itself, before it serves anything else than the transaction for which
//! it was raised.

use crate::engine::Engine;
use crate::sys::priority::{self, Before};
use crate::sys::thread::{self, tid};
use baton_abi::sched_priority::SchedPriority;
use baton_state::State;
use baton_state::priority::RequestedPriority;
use baton_state::thread::Raise;
use baton_state::work::Tid;

impl Engine {
    /// Gives a thread that serves a one-way transaction this priority, unless it has a better one.
    pub(crate) fn raise(&self, state: &mut State, server: Tid, to: SchedPriority) {
        let thread = state.thread(server);
        if thread.raised.is_some_and(|raise| raise.to >= to) {
            return;
        }
        if let Some(before) = priority::raise(server, to) {
            let from = thread.raised.map_or(before, |raise| raise.from);
            thread.raised = Some(Raise { from, to });
            // It may sleep for this lock, as an ordinary thread.
            self.state.wake(server);
        }
    }

    /// Whether the calling thread runs at a real-time priority, be it one that it was raised to.
    pub(crate) fn is_urgent(&self, state: &State) -> bool {
        let is_raised = || state.threads.get(tid()).is_some_and(|it| it.raised.is_some());
        thread::is_real_time() || is_raised()
    }

    /// Gives the calling thread the priority at which it is to serve, unless it was raised to that.
    /// `None` if nothing has changed.
    pub fn adopt(&self, state: &mut State, wanted: RequestedPriority) -> Option<Before> {
        if state.thread(tid()).raised.is_some() {
            priority::ask_again();
            return None;
        }
        priority::adopt(wanted)
    }

    /// The calling thread has served: gives it the priority back that it had before
    /// [`Engine::adopt`], or before it was raised. Others may wait for what it has caused, so that
    /// is carried out before.
    pub fn give_priority_back(&self, state: &mut State, before: Option<Before>) {
        if before.is_some() || state.thread(tid()).raise_is_over() {
            self.carry_out(state);
        }
        self.end_raise(state);
        before.into_iter().for_each(priority::restore);
    }

    /// Gives the calling thread the priority back that it had before it was raised, if it was, and
    /// does not [serve on](baton_state::thread::Thread::serves_on).
    pub(crate) fn end_raise(&self, state: &mut State) {
        let thread = state.thread(tid());
        if thread.raise_is_over()
            && let Some(raise) = thread.raised.take()
        {
            priority::end_raise(raise.from);
        }
    }
}
