//! Transactions of the fast path, which the state does not know of until it has to.

use crate::message::{LaneId, Serving};
use crate::process::State;
use crate::thread::{Calling, ExtendedError, Frame, Waiting};
use crate::work::{Completion, Tid, Work};

impl State {
    /// A thread's call that is under way, as [`State::departed`] would have left it. The thread
    /// waits on the lane.
    pub fn adopt_call(&mut self, tid: Tid, calling: Calling) {
        let id = self.next_number() as u32;
        let handle = calling.handle.and_then(|handle| self.references.get_mut(handle));
        if let Some(reference) = handle {
            reference.sending += 1;
        }
        self.tokens.insert(calling.token, tid);
        self.set_waiting(tid, Waiting::Lane(calling.via));
        let thread = self.thread(tid);
        thread.error = ExtendedError { id, ..ExtendedError::default() };
        thread.todo.push_deferred(Work::Complete(Completion::Taken));
        thread.stack.push(Frame::Calling(calling));
    }

    /// The call that was adopted is not made after all. False if it has failed meanwhile.
    pub fn disown_call(&mut self, tid: Tid, via: LaneId) -> bool {
        self.set_waiting(tid, Waiting::No);
        let under_way = self.thread(tid).calls_on().is_some_and(|calling| calling.via == via);
        if under_way {
            self.thread(tid).todo.take_last_if(|work| matches!(work, Work::Complete(_)));
            self.pop_call(tid);
        }
        under_way
    }

    /// A thread serves a transaction that was taken in past the state.
    pub fn adopt_service(&mut self, tid: Tid, serving: Serving) {
        self.set_waiting(tid, Waiting::No);
        self.outstanding += 1;
        self.thread(tid).stack.push(Frame::Serving(serving));
    }

    /// The transaction that was adopted is left where it was.
    pub fn disown_service(&mut self, tid: Tid) {
        self.outstanding -= 1;
        self.thread(tid).stack.pop();
    }
}
