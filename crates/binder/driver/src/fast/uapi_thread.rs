//! A looper of the uapi front end on the fast path. The looper returns to its program with a
//! transaction and answers by a later ioctl. In between its operation in flight holds the
//! transaction, and this module keeps the lane on which it came.
//!
//! **Invariant**: a thread that owes an answer here either gives it by [`Engine::answer_fast`], or
//! makes it the state's by [`Engine::settle`] before it does anything else on the device, or when
//! it ends.

use super::buffered::{Buffered, FastRead, LocalObject, PendingMessage, Told};
use super::dedicated_uapi::DedicatedUapi;
use super::references::{Carries, Counted};
use super::route_cache::RouteCache;
use super::serve::Taken;
use crate::channel::INLINE_BYTES;
use crate::channel::payload::Payload;
use crate::engine::Engine;
use crate::sys::thread::tid;
use crate::wait::server::{ActiveSet, Served, Server};
use baton_shm::futex::Wait;
use baton_shm::sync::Ordering;
use baton_state::State;
use baton_state::buffer::Offset;
use baton_state::thread::Waiting;
use baton_state::transaction::Incoming;
use baton_state::work::Tid;
use rustix::process::{Pid, getpid};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local!(static UAPI_THREAD: RefCell<Option<UapiThread>> = const { RefCell::new(None) });

/// A thread of the program, at the last engine for which it has served a plain transaction.
struct UapiThread {
    engine: Weak<Engine>,
    number: u64,
    process: Pid,
    route_cache: RouteCache<LocalObject>,
    /// The lane to which the thread is dedicated, if there is one.
    dedicated: Option<DedicatedUapi>,
    /// The program has the last transaction, and has not answered it.
    owes: bool,
}

/// Runs `body` with the calling thread's `UapiThread`, if that is of this engine.
fn with<T>(engine: &Engine, body: impl FnOnce(&mut UapiThread) -> Option<T>) -> Option<T> {
    let used = UAPI_THREAD.try_with(|uapi_thread| {
        // A signal handler may have interrupted its use.
        let mut uapi_thread = uapi_thread.try_borrow_mut().ok()?;
        body(uapi_thread.as_mut().filter(|uapi_thread| uapi_thread.number == engine.number)?)
    });
    used.ok().flatten()
}

impl Engine {
    /// Caches the client and the node of a transaction that the state has admitted, for the fast
    /// path.
    pub(crate) fn cache_client(
        self: &Arc<Engine>,
        state: &State,
        incoming: &Incoming,
        object: LocalObject,
    ) {
        let _ = UAPI_THREAD.try_with(|uapi_thread| {
            let Ok(mut uapi_thread) = uapi_thread.try_borrow_mut() else { return };
            let uapi_thread = uapi_thread.get_or_insert_with(|| UapiThread::new(self));
            if uapi_thread.number != self.number && uapi_thread.is_settled() {
                *uapi_thread = UapiThread::new(self);
            }
            if uapi_thread.number == self.number && !uapi_thread.owes {
                uapi_thread.cache_client(self, state, incoming, object);
            }
        });
    }

    /// Waits as a looper for a plain request.
    pub(crate) fn read_fast(&self, tid: Tid) -> FastRead<'_> {
        let read = with(self, |uapi_thread| {
            if uapi_thread.owes {
                return None;
            }
            let read = match &mut uapi_thread.dedicated {
                Some(dedicated) => self.read_dedicated(tid, dedicated),
                None => self.read_of_pool(tid, &mut uapi_thread.route_cache),
            };
            uapi_thread.owes = matches!(read, FastRead::PendingReturn(..));
            if matches!(read, FastRead::Relieved) {
                uapi_thread.dedicated = None;
            }
            Some(read)
        });
        read.unwrap_or(FastRead::No)
    }

    fn read_of_pool(&self, tid: Tid, route_cache: &mut RouteCache<LocalObject>) -> FastRead<'_> {
        if self.is_polling() || self.broker.has_events() || self.is_closed() {
            return FastRead::No;
        }
        let mut state = self.lock();
        // A thread that is dedicated to a lane is here before its first call from there.
        let is_wanted = state.has_process_work()
            || state.pool.wants_dedicated()
            || state.is_to_ask(tid)
            || state.dedicated_to(tid).is_some();
        if is_wanted || route_cache.is_stale(self) || !state.is_free(tid) {
            return FastRead::No;
        }
        state.set_waiting(tid, Waiting::Bell);
        // Acquire pairs with the release in `wake_looper`.
        let any_work = self.pool.any_work.load(Ordering::Acquire);
        drop(state);
        let mut looper = Looper { engine: self, tid, route_cache, pending: None };
        let outcome = self.pool.await_client(any_work, &mut Some(&mut looper));
        if let Some((brought, object)) = looper.pending {
            return FastRead::PendingReturn(brought, object);
        }
        let mut state = self.lock();
        state.set_waiting(tid, Waiting::No);
        match outcome {
            Wait::Interrupted if !state.has_work(tid, true) => FastRead::Interrupted,
            _ => FastRead::Look(state),
        }
    }

    /// Answers the transaction that the thread has taken in last. `None` if the state has to answer
    /// it.
    pub(crate) fn answer_fast(
        &self,
        tid: Tid,
        named: (u32, u32),
        payload: Payload<'_>,
        carries: impl Carries,
    ) -> Option<Told> {
        with(self, |uapi_thread| {
            if !uapi_thread.owes || payload.bytes() > INLINE_BYTES {
                return None;
            }
            let told = match &mut uapi_thread.dedicated {
                // A dedicated thread applies no events, neither before a request nor before an
                // answer.
                Some(dedicated) if carries.references().is_none() => {
                    self.answer_dedicated(tid, dedicated, named, payload)?
                }
                Some(_) => return None,
                None if self.broker.has_events() => return None,
                None => {
                    let active = uapi_thread.route_cache.active()?;
                    let taken = uapi_thread.route_cache.taken(&active)?;
                    self.answer_taken(tid, taken, named, payload, carries)?
                }
            };
            uapi_thread.owes = false;
            Some(told)
        })
    }

    #[inline(always)]
    pub(super) fn answer_taken(
        &self,
        tid: Tid,
        taken: Taken<'_>,
        named: (u32, u32),
        payload: Payload<'_>,
        carries: impl Carries,
    ) -> Option<Told> {
        if taken.has_left() {
            return None;
        }
        let mut state = self.lock();
        if !state.is_free(tid) {
            return None;
        }
        if let Some(references) = carries.references() {
            let to = (taken.in_flight, taken.channel);
            let mut counted = Counted::of_answer(self, state, to, references)?;
            if !taken.leave(self) {
                counted.take_back(self, taken.channel);
                return None;
            }
            counted.state.has_sent(tid);
            let news = counted.state.take_own_news(tid);
            let wants_looper = counted.state.wants_looper(tid);
            taken.post_counted(self, named, payload, counted);
            return Some((news, wants_looper));
        }
        if !taken.leave(self) {
            return None;
        }
        state.has_sent(tid);
        let wants_looper = state.wants_looper(tid);
        drop(state);
        taken.post(self, payload.bytes(), named, |area, at| payload.copy_to(area, at));
        Some((Vec::new(), wants_looper))
    }

    /// Gives the state everything that the thread has open on the fast path.
    pub(crate) fn settle(&self) {
        with(self, |uapi_thread| {
            uapi_thread.settle(self);
            uapi_thread.come_back(self);
            Some(())
        });
    }

    /// Gives the state the transaction that the thread has not answered, because the thread comes
    /// to read.
    pub(crate) fn settle_answer(&self) {
        with(self, |uapi_thread| {
            uapi_thread.settle(self);
            Some(())
        });
    }

    /// Whether the state knows everything that the thread has open.
    pub(super) fn is_settled(&self) -> bool {
        with(self, |uapi_thread| (!uapi_thread.is_settled()).then_some(())).is_none()
    }

    /// Frees a buffer without the state's lock. False if the state has to free it.
    pub(super) fn free_slot_at(&self, buffer: Offset) -> bool {
        with(self, |uapi_thread| uapi_thread.dedicated.as_ref()?.free(buffer).then_some(()))
            .is_some()
    }
}

impl UapiThread {
    fn new(engine: &Arc<Engine>) -> UapiThread {
        let (number, process) = (engine.number, getpid());
        let (engine, route_cache) = (Arc::downgrade(engine), RouteCache::default());
        UapiThread { engine, number, process, route_cache, dedicated: None, owes: false }
    }

    fn cache_client(
        &mut self,
        engine: &Engine,
        state: &State,
        incoming: &Incoming,
        object: LocalObject,
    ) {
        let lane = incoming.serving.as_ref().map(|serving| serving.via);
        if lane.is_none() || state.dedicated_to(tid()) != lane {
            return self.route_cache.insert(engine, state, incoming, object);
        }
        if self.dedicated.as_ref().is_none_or(|dedicated| Some(dedicated.via()) != lane) {
            self.dedicated = lane.and_then(|via| DedicatedUapi::new(engine, via));
        }
        if let Some(dedicated) = &mut self.dedicated {
            dedicated.insert(engine, state, incoming, object);
        }
    }

    /// Whether the state knows everything that the thread has open.
    fn is_settled(&self) -> bool {
        !self.owes && !self.dedicated.as_ref().is_some_and(DedicatedUapi::bypasses_state)
    }

    fn come_back(&mut self, engine: &Engine) {
        self.dedicated.iter_mut().for_each(|dedicated| dedicated.come_back(engine, tid()));
    }

    fn settle(&mut self, engine: &Engine) {
        if !std::mem::take(&mut self.owes) {
            return;
        }
        let in_flight = match &self.dedicated {
            Some(dedicated) => dedicated.in_flight(),
            None => self.route_cache.in_flight(),
        };
        in_flight.into_iter().for_each(|in_flight| engine.give_up(in_flight));
    }
}

impl Drop for UapiThread {
    fn drop(&mut self) {
        // In a child of fork the holders of the engine's locks may be gone.
        if !self.is_settled()
            && self.process == getpid()
            && let Some(engine) = self.engine.upgrade()
        {
            self.settle(&engine);
            self.come_back(&engine);
        }
    }
}

/// A looper of the pool that waits for one transaction.
struct Looper<'a> {
    engine: &'a Engine,
    tid: Tid,
    route_cache: &'a mut RouteCache<LocalObject>,
    pending: Option<(PendingMessage, LocalObject)>,
}

impl Server for Looper<'_> {
    fn forget_stale(&mut self, active: &ActiveSet) {
        self.route_cache.forget_stale(self.engine);
        self.route_cache.follow(active);
    }

    fn last_lane(&self, active: &ActiveSet) -> Option<(usize, u32)> {
        self.route_cache.last_lane(active)
    }

    /// Never pinned: the looper returns to its program with each transaction.
    fn serve_pinned(&mut self, _: &ActiveSet, _: u32) -> Option<Wait> {
        None
    }

    fn serve_next(&mut self, active: &ActiveSet, any_work: u32, posted: bool) -> Served {
        let (engine, tid, news) = (self.engine, self.tid, (any_work, posted));
        let mut receiver = Buffered::new(tid);
        let (_, object) = match self.route_cache.take(engine, active, news, &mut receiver) {
            Ok(taken) => taken,
            Err(served) => return served,
        };
        self.pending = receiver.brought.map(|brought| (brought, *object));
        Served::Leave
    }
}
