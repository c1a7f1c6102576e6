//! Loopers of real-time callers in a server of the raw interface: the program's own threads.
//!
//! A looper that comes to read becomes *dedicated* to a lane ([`super::dedicated`]), if the pool
//! can spare it: it waits on that lane alone, inside its read, and serves at the priority that the
//! broker gives it. If the pool cannot spare it, the driver asks the program for one more looper,
//! up to the program's maximum.
//!
//! Between two reads the thread is with the program, which may keep it. A caller whose request has
//! not been taken in for a millisecond announces it. If the thread does not read within one more
//! round of the watchdog, the lane goes back to the pool.
//!
//! **Invariant**: the channel, the state and the [`DedicatedUapi`](crate::fast) of a dedicated
//! thread are changed by that thread, or under the state's lock while the thread is not in its
//! read.

use crate::channel::Channel;
use crate::engine::Engine;
use crate::engine::real_time::DedicatedLooper;
use crate::engine::thread_end;
use crate::sys::thread;
use crate::wait::affinity;
use baton_abi::control::Request;
use baton_shm::futex::Wait;
use baton_shm::lock::Guard;
use baton_shm::ready_lanes::lanes_of;
use baton_state::State;
use baton_state::thread::{Thread, Waiting};
use baton_state::transaction::LaneId;
use baton_state::watchdog::Round;
use baton_state::work::Tid;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Engine {
    /// One round of the watchdog, on the control thread.
    pub(crate) fn watchdog(&self) {
        self.control.watchdog.begin();
        let mut state = self.lock();
        for via in state.take_absent() {
            if let Some(channel) = self.channel(via.channel) {
                self.end_absence(&mut state, &channel, via);
                self.pool.activate(&channel);
            }
        }
        // A message that waits for an event still does: the next round finds it.
        self.accept_first(&mut state);
        let round = state.watchdog();
        if round != Round::Last {
            self.control.watchdog.expect();
        }
        let Round::Missed(loopers) = round else { return self.unlock(state) };
        // A thread that waits for the state is a looper that comes by.
        let is_contended = self.state.is_contended();
        self.unlock(state);
        let are_at_work = is_contended || loopers.into_iter().any(thread::is_running);
        self.with_state(|state| state.end_round(are_at_work));
    }

    /// Offers the lane to the loopers of the program.
    pub(crate) fn offer(&self, dedicated: &DedicatedLooper) {
        let is_served = self.with_state(|state| {
            state.offer_lane(dedicated.via());
            state.pool.may_dedicate()
        });
        if is_served {
            // A looper that waits becomes dedicated, or asks for another looper: the caller waits
            // meanwhile.
            self.pool.wake_looper();
        }
        if !is_served && !self.real_time.loopers.has_warned_of_pool.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "binder", "{}: real-time callers are served by the pool, at its \
                loopers' own \
                priority: it has no looper to spare, and its program wants no more of them, or \
                polls", self.identity.pid);
        }
    }

    /// Relieves the lane's looper: its caller has left. Offers the lane again if it has a new
    /// real-time caller by now.
    pub(crate) fn withdraw(&self, state: &mut State, via: LaneId) {
        state.withdraw_lane(via);
        if self.dedicated(via).is_some_and(|dedicated| !dedicated.is_over()) {
            state.offer_lane(via);
        }
    }

    /// Makes the calling thread an ordinary looper of the pool, if it has been relieved since its
    /// last read.
    pub(crate) fn end_dedication(&self, state: &mut State, tid: Tid) {
        let Some(via) = state.thread(tid).relieved_of.take() else { return };
        self.announce_to_pool(via);
        // The broker takes the priority back later, but the thread may serve an ordinary caller
        // before.
        thread::become_ordinary();
        affinity::unbind_from_caller();
    }

    /// Makes loopers that were relieved ordinary threads again. The broker, which has died, may
    /// have given one its caller's new priority before it heard of the relief.
    pub(crate) fn take_priorities_back(&self, state: &State) {
        let relieved =
            |(_, thread): &(Tid, &Thread)| thread.was_dedicated && thread.dedicated_to.is_none();
        for (tid, _) in state.threads.iter().filter(relieved) {
            thread::take_priority_back(tid);
        }
    }

    /// Announces what lies on a lane, or in its ring, to the pool, if there is something. The
    /// client has woken only the dedicated thread, which has been relieved since.
    pub(crate) fn announce_to_pool(&self, via: LaneId) {
        let Some(channel) = self.channel(via.channel) else { return };
        if is_posted(&channel, via) || channel.has_real_time(via.lane as usize) {
            self.pool.activate(&channel);
            channel.set_ready(via.lane as usize);
            self.pool.wake_looper();
        }
    }

    /// Announces the one-way transactions in a lane's ring to the pool, if there are any. Their
    /// sender has woken only the dedicated thread, which leaves the lane.
    pub(crate) fn announce_ring(&self, channel: &Arc<Channel>, lane: u32) {
        if channel.has_real_time(lane as usize) {
            self.pool.activate(channel);
            channel.set_ready(lane as usize);
            self.pool.wake_looper();
        }
    }

    /// Makes the calling looper dedicated if a lane is vacant. Called when its read would wait.
    pub(crate) fn become_dedicated<'a>(
        self: &'a Arc<Engine>,
        mut state: Guard<'a, State>,
        tid: Tid,
    ) -> Guard<'a, State> {
        // A thread that was raised serves first.
        if !state.pool.wants_dedicated() || state.thread(tid).raised.is_some() {
            return state;
        }
        if !thread::is_ordinary() {
            // The broker may be about to take the priority of a formerly dedicated thread back.
            let thread = state.thread(tid);
            let was_unsuited = thread.is_unsuited;
            thread.is_unsuited = !thread.was_dedicated;
            if thread.is_unsuited && !was_unsuited {
                // This thread may have been woken instead of a looper that can become dedicated.
                self.pool.wake_looper();
            }
            return state;
        }
        let Some(via) = state.become_dedicated(tid) else { return state };
        let Some(dedicated) = self.dedicated(via).filter(|dedicated| !dedicated.is_over()) else {
            self.withdraw(&mut state, via);
            self.end_dedication(&mut state, tid);
            return state;
        };
        thread_end::remember_resources(self);
        dedicated.renew();
        // The request comes before the waiting caller's call, and under the lock, so that the
        // broker hears of a later relief after it.
        self.register(&dedicated);
        self.own_at_once(state, &dedicated, tid)
    }

    /// Makes the thread the owner of the lane, and takes in a request that lies there already. The
    /// lane stays the pool's if a thread of the pool serves it now.
    fn own_at_once<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        dedicated: &DedicatedLooper,
        tid: Tid,
    ) -> Guard<'a, State> {
        let Ok(areas) = dedicated.areas() else { return state };
        for _ in 0..2 {
            if dedicated.channel.dedicate(areas, dedicated.lane, tid) {
                return state;
            }
            let lane = dedicated.lane as usize;
            if self.accept_dedicated(&mut state, &dedicated.channel, lane).is_some() {
                break;
            }
        }
        state.vacate(dedicated.via());
        // It goes on as a looper of the pool, without another look at the program.
        self.end_dedication(&mut state, tid);
        state
    }

    /// Waits until a read by this dedicated thread has something to return, or the thread is
    /// relieved. Errors as in [`Engine::await_work`].
    pub(crate) fn await_dedicated_lane<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        (tid, via): (Tid, LaneId),
        nonblocking: bool,
    ) -> Result<Guard<'a, State>, Errno> {
        let Some(dedicated) = self.dedicated(via) else {
            self.withdraw(&mut state, via);
            return Ok(state);
        };
        let areas = dedicated.areas()?;
        if dedicated.is_news() {
            drop(state);
            self.mlock_lane(&dedicated.channel, dedicated.lane);
            state = self.lock();
        }
        loop {
            state = self.accept_own(state, &dedicated);
            self.carry_out(&mut state);
            if self.is_closed() {
                return Err(Errno::BADF);
            }
            if dedicated.is_over() && state.dedicated_to(tid) == Some(via) {
                self.withdraw(&mut state, via);
            }
            if state.dedicated_to(tid) != Some(via) {
                // The client may have woken this thread for a request, but the thread returns to
                // its program.
                self.announce_to_pool(via);
                return Ok(state);
            }
            if state.has_work(tid, false) {
                return Ok(state);
            }
            if nonblocking {
                return Err(Errno::AGAIN);
            }
            state.set_waiting(tid, Waiting::Lane(via));
            // Under the lock: the broker hears of a relief after this.
            self.register(&dedicated);
            drop(state);
            let outcome = dedicated.channel.sleep_at(areas, || false);
            self.pool.stay_with_caller(&dedicated.channel, dedicated.lane);
            state = self.lock();
            state.set_waiting(tid, Waiting::No);
            if outcome == Err(Wait::Interrupted) && !state.has_work(tid, false) {
                return Err(Errno::INTR);
            }
        }
    }

    /// Notes dedicated lanes whose callers have announced a request. A lane whose thread is still
    /// away a round later goes back to the pool.
    #[inline]
    pub(crate) fn look_for_absent(&self, state: &mut State, channel: &Channel, announced: u64) {
        for lane in lanes_of(announced) {
            let via = channel.via(lane);
            // The thread may just have returned from its program: the next round decides.
            if is_posted(channel, via) && state.has_dedicated(via) {
                state.note_absent(via);
            }
        }
    }

    fn end_absence(&self, state: &mut State, channel: &Channel, via: LaneId) {
        if !is_posted(channel, via) || !state.has_dedicated(via) {
            return;
        }
        if !state.is_away(via) || channel.is_served(via.lane) {
            // The caller announces its request only once, so the next round has to look again.
            return state.note_absent(via);
        }
        state.vacate(via);
        // The pool takes the request in at once.
        self.carry_out_effects(state);
    }

    /// Gives the lane of a relieved thread back to the pool, with a request that lies there.
    pub(crate) fn leave_relieved(&self, via: LaneId, tid: Tid) {
        let LaneId { channel: id, lane } = via;
        if let Some(channel) = self.channel(id)
            && let Ok(areas) = channel.lane(lane as usize)
        {
            channel.release_ownership(areas, lane, tid);
            self.announce_to_pool(via);
            channel.munlock_lane(lane);
        }
        self.broker.tell(&Request::LeaveRealTime { channel: id, lane });
        // The broker is about to change the thread's priority.
        thread::priorities_changed();
        self.end_reservations(tid);
    }

    /// Gives up the lanes of a thread that has ended without BINDER_THREAD_EXIT.
    pub(crate) fn forget_lanes(&self, tid: Tid) {
        self.with_state(|state| state.vacate_of(tid));
        self.end_reservations(tid);
    }
}

/// Whether a request lies on the lane.
fn is_posted(channel: &Channel, via: LaneId) -> bool {
    channel.lane(via.lane as usize).is_ok_and(|areas| !areas.inbox().is_empty())
}
