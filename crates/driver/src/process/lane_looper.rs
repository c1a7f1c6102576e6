//! The looper of one real-time caller.

use super::{Handler, Inner, Process, Received, Request};
use crate::engine::duty::Duty;
use crate::engine::fast::{Answered, Seat};
use crate::engine::tid;
use crate::state::{Return, State};
use crate::thread;
use std::ffi::CStr;
use std::sync::{Arc, Weak};

/// What the thread is called that is on duty.
const NAME: &CStr = c"baton-lane";

impl Process {
    /// Real-time callers get threads of their own from now on.
    pub(super) fn serve_real_time(&self) {
        let process = Arc::downgrade(&self.inner);
        self.inner.engine.provide(move |duty| start(&process, duty));
    }

    fn serve_lane(&self, duty: &Duty, was_spare: bool) {
        let (engine, tid) = (&self.inner.engine, tid());
        let seat = engine.attend_lane(duty);
        if was_spare {
            engine.provide_spare();
        }
        let Some(own) = seat else { return engine.forget_thread(tid) };
        let mut seat = Seat::new();
        let mut state = engine.lock();
        while let Some(woken) =
            engine.await_duty(state, duty, || self.serve_posted(&mut seat, duty))
        {
            state = woken;
            while let Some(item) = state.next_return(tid, false) {
                self.learn(&mut seat, &state, &item);
                state = self.attend(state, item);
            }
        }
        engine.leave_duty(duty, tid, own);
    }

    /// Serves what has been posted. False if that is not for the fast path.
    fn serve_posted(&self, seat: &mut Seat<Arc<Handler>>, duty: &Duty) -> bool {
        let mut request = Request { received: Received::awaited(&self.inner) };
        let (lane, here) = (duty.lane as usize, request.received.here());
        let taken = seat.take(&self.inner.engine, &duty.channel, lane, here);
        taken.is_some_and(|(taken, handler)| {
            self.serve_taken(&taken, handler, &request) == Answered::Yes
        })
    }

    fn learn(&self, seat: &mut Seat<Arc<Handler>>, state: &State, item: &Return) {
        let Return::Transaction(incoming, (ptr, _)) = item else { return };
        if let Some(handler) = self.inner.objects.lock().get(ptr) {
            seat.learn(&self.inner.engine, state, incoming, handler.clone());
        }
    }
}

/// Starts a thread for a lane, or for the next one.
fn start(process: &Weak<Inner>, duty: Option<Arc<Duty>>) {
    let Some(engine) = process.upgrade().map(|inner| Arc::clone(&inner.engine)) else { return };
    let process = Weak::clone(process);
    let body = move || {
        // Whoever heard of the lane may be a real-time thread.
        thread::become_ordinary();
        let was_spare = duty.is_none();
        let Some(duty) = duty.or_else(|| engine.await_lane()) else { return };
        let Some(inner) = process.upgrade() else { return };
        // It cannot fail: the name is short.
        let _ = rustix::thread::set_name(NAME);
        Process { inner }.serve_lane(&duty, was_spare);
    };
    if let Err(errno) = thread::start("baton-spare", body) {
        tracing::warn!(target: "binder", "no thread for a real-time caller: {errno}");
    }
}
