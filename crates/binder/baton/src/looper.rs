//! Threads that serve: all day as a looper, or for as long as their own call has no answer.

use crate::driver::{Callbacks, Driver};
use crate::handler::Handler;
use crate::{Parcel, Process, Received, Request};
use baton_abi::control::Strength;
use baton_abi::uapi::*;
use baton_driver::typed::{
    ActiveSet, Answered, INLINE_BYTES, PinnedLooper, References, RouteCache, Served, Server, Taken,
    Until, tid, while_serving,
};
use baton_shm::futex::Wait;
use baton_shm::lock::Guard;
use baton_shm::mailbox::Seen;
use baton_state::transaction::{Incoming, Target};
use baton_state::{Return, State};
use rustix::io::Errno;
use std::any::Any;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

impl Process {
    /// Serves on this thread, with every other one that serves, until the process is closed.
    /// Returns the reason: `EBADF` after [`Process::close`], and in a child of fork.
    pub fn serve(&self) -> Errno {
        let tid = tid();
        let (driver, engine) = (&self.driver, &self.driver.engine);
        if engine.is_inherited() {
            return Errno::BADF;
        }
        let route_cache = RouteCache::default();
        let mut looper = Looper { driver, callbacks: &self.callbacks, route_cache };
        driver.serve_real_time();
        let mut state = engine.lock();
        state.enter_looper(tid);
        state.thread(tid).return_once = false;
        loop {
            let process_work = state.takes_process_work(tid);
            let server: &mut dyn Server = &mut looper;
            state = match engine.await_work(state, tid, process_work, Until::News, Some(server)) {
                Ok(state) => state,
                Err(Errno::INTR) => engine.lock(),
                Err(errno) => {
                    engine.forget_thread(tid);
                    return errno;
                }
            };
            while let Some(item) = state.next_return(tid, process_work) {
                looper.learn(&state, &item);
                state = driver.handle_return(state, item);
            }
        }
    }
}

impl Driver {
    /// Deals with what is no answer: serves, acknowledges, tells recipients.
    pub fn handle_return<'a>(
        self: &'a Arc<Self>,
        mut state: Guard<'a, State>,
        item: Return,
    ) -> Guard<'a, State> {
        let engine = &self.engine;
        match item {
            Return::Transaction(incoming, (ptr, _)) => {
                // Under the lock: another thread may raise this one from then on.
                let before = engine.adopt(&mut state, incoming.requested_priority());
                engine.unlock(state);
                let mut state = self.serve_one(incoming, ptr, before.is_none());
                engine.give_priority_back(&mut state, before);
                state
            }
            Return::Node(news) => {
                let ((ptr, cookie), callbacks) = (news.object, self.callbacks.upgrade());
                let mut ended = None;
                for command in news.returns {
                    match command {
                        BR_ACQUIRE => state.acknowledge(ptr, cookie, Strength::Strong),
                        BR_INCREFS => state.acknowledge(ptr, cookie, Strength::Weak),
                        BR_DECREFS => {
                            ended = callbacks.as_ref().and_then(|all| all.end_released(ptr));
                        }
                        _ => {}
                    }
                }
                engine.unlock(state);
                // Not under the lock: handlers are the program's, and so is what goes with them.
                let _ = caught(|| drop((ended, callbacks)));
                engine.lock()
            }
            Return::Cookie(BR_DEAD_BINDER, cookie) => {
                state.death_done(tid(), cookie);
                engine.unlock(state);
                let callbacks = self.callbacks.upgrade();
                let told = callbacks.and_then(|all| all.recipients.lock().remove(&cookie));
                for (_, recipient) in told.map_or_else(Vec::new, |told| told.waiting) {
                    let _ = caught(recipient);
                }
                engine.lock()
            }
            // Replies are taken by the call that they answer.
            Return::Reply(_)
            | Return::Bare(_)
            | Return::Cookie(..)
            | Return::Frozen(..)
            | Return::Nothing => state,
        }
    }

    /// Serves a transaction, and returns the locked state. `may_serve_on`: the thread has no
    /// priority to give back before it serves another one.
    fn serve_one(
        self: &Arc<Self>,
        incoming: Incoming,
        ptr: u64,
        may_serve_on: bool,
    ) -> Guard<'_, State> {
        let two_way = incoming.flags & TF_ONE_WAY == 0;
        let handler = self.handler(ptr);
        let mut request = Request { received: Received::in_buffer(self, incoming) };
        let answer = handler.map_or(Err(Errno::NOENT), |handler| handle(&handler, &request));
        if two_way {
            drop(request);
            self.reply(&answer);
            // The answer is the program's, and is dropped before the lock is taken.
            drop(answer);
            return self.engine.lock();
        }
        drop(answer);
        request.received.free_and_lock(may_serve_on)
    }

    /// Serves a transaction of the fast path, whichever way its answer goes.
    #[inline(always)]
    pub fn serve_taken(
        self: &Arc<Self>,
        taken: &Taken<'_>,
        handler: &Arc<Handler>,
        request: &mut Request<'_>,
    ) -> Answered {
        // The answer is not moved out of the closure: that would be a tenth of what all this takes.
        let (mut is_ours, mut answered) = (false, Answered::No);
        let ended = while_serving(|| {
            caught(|| {
                let answer = handler(request);
                request.received.free_here();
                is_ours = true;
                answered = self.answer_taken(taken, &answer);
            })
        });
        match ended {
            Ok(()) => answered,
            Err(panic) if is_ours => std::panic::resume_unwind(ManuallyDrop::into_inner(panic)),
            Err(_) => self.answer_taken(taken, &Err(Errno::FAULT)),
        }
    }

    /// Serves what comes at a lane until there is anything else to do, and says how the wait for it
    /// has ended. `serves` is true while the program's code runs.
    #[inline(always)]
    fn serve_at(
        self: &Arc<Self>,
        pinned: &mut PinnedLooper<'_, Arc<Handler>>,
        request: &mut Request<'_>,
        serves: &Cell<bool>,
    ) -> Wait {
        loop {
            match pinned.wait() {
                Ok(Seen::Message) => {}
                Ok(Seen::Nothing) if !pinned.is_disturbed() => continue,
                Ok(_) => return Wait::Woken,
                Err(ended) => return ended,
            }
            let Some((posted, handler)) = pinned.find() else {
                match self.serve_references(pinned, request, serves) {
                    Answered::Yes => continue,
                    Answered::No => return Wait::Woken,
                }
            };
            if !pinned.take(&posted, request.received.here()) {
                return Wait::Woken;
            }
            serves.set(true);
            let answer = while_serving(|| handler(request));
            serves.set(false);
            if self.answer_taken(pinned.taken(), &answer) == Answered::No {
                return Wait::Woken;
            }
        }
    }

    /// Serves a request with few references. [`Answered::No`] if it stays on its lane, too.
    #[inline(never)]
    fn serve_references(
        self: &Arc<Self>,
        pinned: &PinnedLooper<'_, Arc<Handler>>,
        request: &mut Request<'_>,
        serves: &Cell<bool>,
    ) -> Answered {
        let taken = pinned.take_with_references(request.received.here());
        let Some(handler) = taken else { return Answered::No };
        serves.set(true);
        let answer = while_serving(|| handler(request));
        serves.set(false);
        request.received.free_here();
        self.answer_taken(pinned.taken(), &answer)
    }

    #[inline(always)]
    fn answer_taken(
        self: &Arc<Self>,
        taken: &Taken<'_>,
        answer: &Result<Parcel, Errno>,
    ) -> Answered {
        let engine = &self.engine;
        let answered = match answer {
            Ok(parcel) if parcel.objects.is_none() && parcel.data.len() <= INLINE_BYTES => {
                taken.answer(engine, &parcel.data)
            }
            Ok(parcel) => self.answer_with_objects(taken, parcel),
            Err(_) => taken.give_up(engine),
        };
        if answered == Answered::No {
            self.reply(answer);
        }
        answered
    }

    #[inline(never)]
    fn answer_with_objects(self: &Arc<Self>, taken: &Taken<'_>, answer: &Parcel) -> Answered {
        let engine = &self.engine;
        match self.few_objects(answer) {
            Some(objects) => {
                let references = References { offsets: answer.offsets(), objects: &objects };
                taken.answer_with_references(engine, &answer.data, references)
            }
            None => taken.give_up(engine),
        }
    }

    fn reply(self: &Arc<Self>, answer: &Result<Parcel, Errno>) {
        self.send(tid(), Target::Reply, 0, 0, answer.as_ref().map_err(|errno| *errno));
    }
}

/// A thread that serves.
struct Looper<'a> {
    driver: &'a Arc<Driver>,
    callbacks: &'a Callbacks,
    route_cache: RouteCache<Arc<Handler>>,
}

impl Looper<'_> {
    fn learn(&mut self, state: &State, item: &Return) {
        let Return::Transaction(incoming, (ptr, _)) = item else { return };
        if incoming.serving.is_some()
            && let Some(handler) = self.callbacks.handler(*ptr)
        {
            self.route_cache.insert(&self.driver.engine, state, incoming, handler);
        }
    }
}

impl Server for Looper<'_> {
    fn forget_stale(&mut self, active: &ActiveSet) {
        self.route_cache.forget_stale(&self.driver.engine);
        self.route_cache.follow(active);
    }

    fn last_lane(&self, active: &ActiveSet) -> Option<(usize, u32)> {
        self.route_cache.last_lane(active)
    }

    fn serve_pinned(&mut self, active: &ActiveSet, any_work: u32) -> Option<Wait> {
        let Looper { driver, route_cache, .. } = self;
        let mut pinned = route_cache.pin(&driver.engine, active, any_work)?;
        let mut request = Request { received: Received::awaited(driver) };
        let (serves, mut outcome) = (Cell::new(false), Wait::Woken);
        // One guard for all that is served there.
        let ended = caught(|| outcome = driver.serve_at(&mut pinned, &mut request, &serves));
        match ended {
            Ok(()) => {}
            Err(_) if serves.get() => {
                driver.answer_taken(pinned.taken(), &Err(Errno::FAULT));
            }
            Err(panic) => std::panic::resume_unwind(ManuallyDrop::into_inner(panic)),
        }
        Some(outcome)
    }

    fn serve_next(&mut self, active: &ActiveSet, any_work: u32, posted: bool) -> Served {
        let driver = self.driver;
        let mut request = Request { received: Received::awaited(driver) };
        let (news, here) = ((any_work, posted), request.received.here());
        let (taken, handler) = match self.route_cache.take(&driver.engine, active, news, here) {
            Ok(taken) => taken,
            Err(served) => return served,
        };
        match driver.serve_taken(&taken, handler, &mut request) {
            Answered::Yes => Served::Wait,
            Answered::No => Served::Look,
        }
    }
}

fn handle(handler: &Arc<Handler>, request: &Request<'_>) -> Result<Parcel, Errno> {
    let mut answer = Err(Errno::FAULT);
    let _ = while_serving(|| caught(|| answer = handler(request)));
    answer
}

/// Runs the program's code: a panic, which the panic hook has told of, must not leave a caller
/// without an answer nor the pool with a looper that is gone.
#[inline(always)]
fn caught(body: impl FnOnce()) -> Result<(), Panicked> {
    // AssertUnwindSafe: what the body shares with others is the program's, which chose locks or
    // not.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).map_err(ManuallyDrop::new)
}

/// What a panic said: its program's, and dropping that may panic again.
type Panicked = ManuallyDrop<Box<dyn Any + Send>>;

#[cfg(test)]
mod tests {
    use super::*;
    use baton_broker::{Config, Running};
    use rustix::fd::AsFd;
    use std::io::{Read, Write};
    use std::sync::Barrier;

    /// More calls than pin a looper to a lane.
    const MANY: u32 = 200;

    /// Requests and answers alike, to a looper that is pinned and to others.
    #[test]
    fn few_descriptors_go_past_the_state() {
        let directory = tempfile::tempdir().unwrap();
        let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
        let [server, client] = [(); 2].map(|()| Process::open("binder", broker.socket()).unwrap());
        let object = server
            .object(|request| {
                let mut answer = Parcel::new();
                answer.write_owned_fd(request.received.fd(0).ok_or(Errno::BADMSG)?);
                Ok(answer)
            })
            .add();
        server.become_context_manager(object).unwrap();
        let serving = server.clone();
        let looper = std::thread::spawn(move || serving.serve());
        let manager = client.context_manager().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut request = Parcel::new();
        request.write_fd(writer.as_fd());
        for _ in 0..MANY {
            let answer = manager.call(1, &request).unwrap();
            for fd in [answer.fd(0).unwrap(), answer.take_fd(0).unwrap()] {
                std::fs::File::from(fd).write_all(b"once").unwrap();
                let mut bytes = [0; 4];
                reader.read_exact(&mut bytes).unwrap();
                assert_eq!(&bytes, b"once");
            }
            assert!(answer.take_fd(0).is_none() && answer.fd(0).is_none());
        }
        // A control thread takes a call in if its looper gets no processor for long.
        assert!(server.driver.engine.lock().received < u64::from(MANY) / 2);
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "all others are closed");
        server.close();
        looper.join().unwrap();
    }

    /// At either end or at both, in the middle of a call for which the ends know each other.
    #[test]
    fn a_call_that_the_state_takes_over_is_answered() {
        const HOLD: u32 = 1;
        let directory = tempfile::tempdir().unwrap();
        let broker = Running::start(Config::at(directory.path().join("broker.sock"))).unwrap();
        let [server, client] = [(); 2].map(|()| Process::open("binder", broker.socket()).unwrap());
        let held = Arc::new([(); 2].map(|()| Barrier::new(2)));
        let holds = Arc::clone(&held);
        let object = server
            .object(move |request| {
                if request.code() == HOLD {
                    holds.iter().for_each(|barrier| _ = barrier.wait());
                }
                Ok(Parcel::from(request.data()))
            })
            .add();
        server.become_context_manager(object).unwrap();
        let serving = server.clone();
        let looper = std::thread::spawn(move || serving.serve());
        let manager = client.context_manager().unwrap();
        let call = |code, value: u32| {
            let request = value.to_ne_bytes();
            let answer = manager.call(code, &Parcel::from(&request[..])).unwrap();
            assert_eq!(answer.data(), request);
        };
        for ends in [[false, true], [true, false], [true, true]] {
            (0..MANY).for_each(|value| call(0, value));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    held[0].wait();
                    for (process, _) in [&server, &client].into_iter().zip(ends).filter(|end| end.1)
                    {
                        let engine = &process.driver.engine;
                        let mut state = engine.lock();
                        engine.revoke(&mut state);
                        engine.unlock(state);
                    }
                    held[1].wait();
                });
                call(HOLD, 7);
            });
        }
        (0..MANY).for_each(|value| call(0, value));
        server.close();
        looper.join().unwrap();
    }
}
