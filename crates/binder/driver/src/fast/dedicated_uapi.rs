//! A dedicated looper of the uapi front end, on the fast path.
//!
//! From its second transaction on the looper takes no lock: ordinary threads may hold the state's
//! lock for work that strangers cause. Its requests lie in its [`ReservedSlot`], and other threads
//! announce changes by its [`EventFlag`]. The looper *bypasses* the state until it has news or its
//! program uses the device in another way: see [`Engine::settle`].
//!
//! **Invariant**: [`State::begin_bypass`] and the thread's [`StateBypass`] agree on whether the
//! thread bypasses the state. Exception: a thread whose transaction has been taken over learns that
//! with its answer.
//!
//! [`ReservedSlot`]: baton_state::transaction::ReservedSlot
//! [`EventFlag`]: baton_shm::event_flag::EventFlag

use super::buffered::{Buffered, FastRead, LocalObject, StateBypass, Told};
use super::lane_cache::LaneCache;
use super::references::Nothing;
use super::serve::Taken;
use crate::channel::payload::Payload;
use crate::engine::Engine;
use crate::engine::in_flight::InFlight;
use crate::engine::real_time::DedicatedLooper;
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use baton_state::State;
use baton_state::buffer::Offset;
use baton_state::thread::Waiting;
use baton_state::transaction::{Incoming, LaneId};
use baton_state::work::Tid;
use std::sync::Arc;

/// A dedicated thread's lane, its cache of the client, and its bypass of the state.
pub(super) struct DedicatedUapi {
    dedicated: Arc<DedicatedLooper>,
    cache: LaneCache<LocalObject>,
    bypass: StateBypass,
}

impl DedicatedUapi {
    /// The looper of a lane to which the thread is dedicated already.
    pub fn new(engine: &Engine, via: LaneId) -> Option<DedicatedUapi> {
        let bypass = StateBypass { via, slot: None, flag: None, has_sent: false };
        Some(DedicatedUapi {
            dedicated: engine.dedicated(via)?,
            cache: LaneCache::default(),
            bypass,
        })
    }

    /// The lane.
    pub fn via(&self) -> LaneId {
        self.bypass.via
    }

    /// See [`LaneCache::insert`].
    pub fn insert(
        &mut self,
        engine: &Engine,
        state: &State,
        incoming: &Incoming,
        object: LocalObject,
    ) {
        self.cache.insert(engine, state, incoming, object);
    }

    /// The thread's operation in flight.
    pub fn in_flight(&self) -> Option<&InFlight> {
        self.cache.in_flight()
    }

    /// The transaction that the thread has taken in last.
    pub fn taken(&self) -> Option<Taken<'_>> {
        let lane = self.dedicated.areas().ok()?;
        Some(Taken {
            in_flight: self.in_flight()?,
            channel: &self.dedicated.channel,
            lane,
            via: self.via(),
        })
    }

    /// Whether the thread bypasses the state.
    pub fn bypasses_state(&self) -> bool {
        self.bypass.flag.is_some()
    }

    /// Ends the thread's bypass of the state.
    pub fn come_back(&mut self, engine: &Engine, tid: Tid) {
        if self.bypasses_state() {
            engine.with_state(|state| self.bypass.end(state, tid));
        }
    }

    /// Frees the thread's slot. False if `buffer` is another one, or if the state has to free it.
    #[inline]
    pub fn free(&self, buffer: Offset) -> bool {
        let own = self.bypass.slot.as_ref().filter(|slot| slot.buffer == buffer);
        self.bypasses_state() && own.is_some_and(|slot| slot.free())
    }
}

impl Engine {
    /// Waits for a plain request on the lane.
    pub(super) fn read_dedicated<'a>(&'a self, tid: Tid, own: &mut DedicatedUapi) -> FastRead<'a> {
        let DedicatedUapi { dedicated, cache, bypass } = own;
        let Ok(areas) = dedicated.areas() else { return FastRead::No };
        let wanted = self.is_closed() || dedicated.is_over() || dedicated.is_news();
        let may_wait = !wanted && !cache.is_stale(self, &dedicated.channel);
        let arrived = may_wait && bypass.flag.as_ref().is_some_and(|flag| flag.begin_wait());
        if !arrived {
            let mut state = self.lock();
            bypass.end(&mut state, tid);
            if state.dedicated_to(tid) != Some(dedicated.via()) {
                return FastRead::Relieved;
            }
            if !may_wait || !state.is_free(tid) {
                return FastRead::No;
            }
            state.set_waiting(tid, Waiting::Lane(dedicated.via()));
        }
        let seen = match areas.inbox().look() {
            Seen::Nothing => {
                let seen = match &bypass.flag {
                    Some(flag) => flag.wait_on(areas.inbox(), dedicated.channel.longest_sleep()),
                    None => dedicated.channel.sleep_at(areas, || false),
                };
                self.pool.stay_with_caller(&dedicated.channel, dedicated.lane);
                seen
            }
            seen => Ok(seen),
        };
        if seen == Ok(Seen::Message) {
            let mut receiver = Buffered::of_dedicated(tid, bypass);
            let lane = dedicated.lane as usize;
            let taken = cache.take(self, &dedicated.channel, lane, &mut receiver);
            if let Some((brought, (_, object))) = receiver.brought.zip(taken) {
                return FastRead::PendingReturn(brought, *object);
            }
        }
        let mut state = self.lock();
        bypass.end(&mut state, tid);
        state.set_waiting(tid, Waiting::No);
        match seen {
            Err(Wait::Interrupted) if !state.has_work(tid, false) => FastRead::Interrupted,
            _ => FastRead::No,
        }
    }

    /// See [`Engine::answer_fast`].
    pub(super) fn answer_dedicated(
        &self,
        tid: Tid,
        own: &mut DedicatedUapi,
        named: (u32, u32),
        payload: Payload<'_>,
    ) -> Option<Told> {
        let taken = own.taken()?;
        if !own.bypass.holds() {
            return self.answer_taken(tid, taken, named, payload, Nothing);
        }
        if taken.has_left() || !taken.leave(self) {
            return None;
        }
        taken.post(self, payload.bytes(), named, |area, at| payload.copy_to(area, at));
        own.bypass.has_sent = true;
        Some((Vec::new(), false))
    }
}
