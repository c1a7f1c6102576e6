//! The looper of one real-time caller.

use crate::driver::Driver;
use crate::handler::Handler;
use crate::{Received, Request};
use baton_driver::typed::{self, Answered, DedicatedLooper, LaneCache, tid};
use baton_state::{Return, State};
use std::ffi::CStr;
use std::sync::{Arc, Weak};

/// What the thread is called that is dedicated.
const NAME: &CStr = c"baton-lane";

impl Driver {
    /// Real-time callers get threads of their own from now on.
    pub fn serve_real_time(self: &Arc<Self>) {
        let driver = Arc::downgrade(self);
        self.engine.provide(move |dedicated| start(&driver, dedicated));
    }

    fn serve_lane(self: &Arc<Self>, dedicated: &DedicatedLooper, was_standby: bool) {
        let (engine, tid) = (&self.engine, tid());
        let cache = engine.own_lane(dedicated);
        if was_standby {
            engine.provide_standby();
        }
        let Some(own) = cache else { return engine.forget_thread(tid) };
        let mut cache = LaneCache::default();
        let mut state = engine.lock();
        while let Some(woken) =
            engine.await_dedicated(state, dedicated, || self.serve_posted(&mut cache, dedicated))
        {
            state = woken;
            while let Some(item) = state.next_return(tid, false) {
                self.learn(&mut cache, &state, &item);
                state = self.handle_return(state, item);
            }
        }
        engine.leave_dedicated(dedicated, tid, own);
    }

    /// Serves what has been posted. False if that is not for the fast path.
    fn serve_posted(
        self: &Arc<Self>,
        cache: &mut LaneCache<Arc<Handler>>,
        dedicated: &DedicatedLooper,
    ) -> bool {
        let mut request = Request { received: Received::awaited(self) };
        let (lane, here) = (dedicated.lane as usize, request.received.here());
        let taken = cache.take(&self.engine, &dedicated.channel, lane, here);
        taken.is_some_and(|(taken, handler)| {
            self.serve_taken(&taken, handler, &mut request) == Answered::Yes
        })
    }

    fn learn(&self, cache: &mut LaneCache<Arc<Handler>>, state: &State, item: &Return) {
        let Return::Transaction(incoming, (ptr, _)) = item else { return };
        if let Some(handler) = self.handler(*ptr) {
            cache.insert(&self.engine, state, incoming, handler);
        }
    }
}

/// Starts a thread for a lane, or for the next one.
fn start(driver: &Weak<Driver>, dedicated: Option<Arc<DedicatedLooper>>) {
    let Some(engine) = driver.upgrade().map(|driver| Arc::clone(&driver.engine)) else { return };
    let driver = Weak::clone(driver);
    let body = move || {
        // Whoever heard of the lane may be a real-time thread.
        typed::become_ordinary();
        let was_standby = dedicated.is_none();
        let Some(dedicated) = dedicated.or_else(|| engine.await_lane()) else { return };
        // Both, so that what it serves stays while it serves.
        let Some(process) = driver.upgrade().and_then(|driver| driver.process()) else { return };
        // It cannot fail: the name is short.
        let _ = rustix::thread::set_name(NAME);
        process.driver.serve_lane(&dedicated, was_standby);
    };
    if let Err(errno) = typed::start("baton-spare", body) {
        tracing::warn!(target: "binder", "no thread for a real-time caller: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parcel, Process, SchedPriority};
    use baton_broker::{Config, Running};
    use std::time::Duration;

    /// Longer than anything takes.
    const LONG: Duration = Duration::from_secs(600);
    const STRANGERS: u64 = 20;

    /// A stranger's first call is the state's to take in. None of the real-time caller's is.
    #[test]
    fn strangers_leave_a_real_time_callers_way_alone() {
        let directory = tempfile::tempdir().unwrap();
        let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
        let open = || Process::open("binder", broker.socket()).unwrap();
        let server = open();
        let object = server.object(|_| Ok(Parcel::new())).add();
        server.become_context_manager(object).unwrap();
        let serving = server.clone();
        let looper = std::thread::spawn(move || serving.serve());
        let taken_in = || server.driver.engine.lock().received;
        let call = |process: &Process| {
            let manager = process.context_manager().unwrap();
            manager.call(0, &Parcel::new()).unwrap();
        };
        let client = open();
        // A server that does not serve yet has no loopers.
        call(&client);
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                if !typed::set_real_time_priority(
                    Some(SchedPriority::fifo(1)),
                    typed::Children::Inherit,
                ) {
                    return println!(
                        "skipped: {} (no real-time priority here)",
                        std::thread::current().name().unwrap_or_default()
                    );
                }
                let manager = client.context_manager().unwrap();
                assert_eq!(manager.prepare(LONG), Ok(true));
                let call_on = || drop(manager.call(0, &Parcel::new()).unwrap());
                loop {
                    let before = taken_in();
                    call_on();
                    if taken_in() == before {
                        break;
                    }
                }
                let before = taken_in();
                for _ in 0..STRANGERS {
                    let stranger = scope.spawn(|| {
                        let stranger = open();
                        call(&stranger);
                        stranger
                    });
                    let stranger = stranger.join().unwrap();
                    call_on();
                    stranger.close();
                    while server.driver.engine.lock().peers.len() > 1 {
                        std::thread::yield_now();
                    }
                    call_on();
                }
                assert_eq!(taken_in() - before, STRANGERS);
            });
            caller.join().unwrap();
        });
        server.close();
        looper.join().unwrap();
    }
}
