//! Loopers of real-time callers: each waits on one lane alone, at its caller's priority.
//!
//! The broker tells the engine of such a lane, the front end provides a thread, and the thread
//! becomes *dedicated* to the lane:
//!
//! ```text
//!   register   the broker gives the thread the caller's priority, unless it has (see `standby`)
//!   own        the thread owns the lane, and the mailbox says so to the client
//!   serve      look, take in, answer, sleep on the lane's own word
//!   leave      what has come meanwhile is the pool's
//! ```
//!
//! A dedicated looper never spins: at its priority it could keep its own caller from running. It
//! stays on its caller's processor instead: see [`crate::wait::affinity`].
//!
//! A new dedicated looper may have to wait for a looper of the pool that still serves the lane.
//! That looper may need this thread's processor, so the wait is a short sleep.
//!
//! **Invariant**: the thread owns the lane ([`baton_shm::lane_owner`]) while it is dedicated to
//! it, and at no other time.

use crate::channel::Lane;
use crate::engine::Engine;
use crate::engine::real_time::{DedicatedLooper, OwnRing};
use crate::sys::thread::{self, tid};
use crate::wait::policy::WaitPolicy;
use baton_abi::control::{ChannelId, End, Request};
use baton_abi::lane::LANES;
use baton_abi::sched_priority::SchedPriority;
use baton_shm::blocking::pause;
use baton_shm::lock::{Guard, Lock};
use baton_shm::mailbox::Seen;
use baton_state::State;
use baton_state::thread::Waiting;
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a dedicated looper leaves its processor to the thread that serves its lane.
const PAUSE: Duration = Duration::from_micros(100);

/// The part of the warning that says what happens instead.
const BORROWED: &str = ". They lend it while they wait; what a looper calls, or does for callers \
    by the raw interface, \
    is done as by an ordinary thread";

impl Engine {
    /// Sets the front end's provider. It is asked at once for a thread for each lane that waits for
    /// one, and for one standby looper.
    pub fn provide(&self, provider: impl Fn(Option<Arc<DedicatedLooper>>) + Send + Sync + 'static) {
        if self.real_time.loopers.provider.set(Box::new(provider)).is_ok() {
            self.publish(&self.lock());
            let waiting = self.real_time.loopers.all.lock().clone();
            // The driver's own threads become dedicated to these lanes, and the program's do not.
            let lanes = waiting.iter().map(|dedicated| dedicated.via());
            self.with_state(|state| lanes.for_each(|via| state.withdraw_lane(via)));
            waiting.into_iter().for_each(|dedicated| self.give(dedicated));
            self.provide_standby();
        }
    }

    /// Asks the front end for a thread that waits for the next lane.
    pub fn provide_standby(&self) {
        self.real_time.loopers.provider.get().into_iter().for_each(|provider| provider(None));
    }

    /// Whether the front end starts the loopers of lanes.
    pub(crate) fn provides_loopers(&self) -> bool {
        self.real_time.loopers.provider.get().is_some()
    }

    fn give(&self, dedicated: Arc<DedicatedLooper>) {
        let Some(provider) = self.real_time.loopers.provider.get() else {
            return self.offer(&dedicated);
        };
        if !dedicated.is_given.swap(true, Ordering::AcqRel) {
            provider(Some(dedicated));
        }
    }

    /// The lane's dedicated looper, which may not have come yet.
    pub(crate) fn dedicated(&self, via: LaneId) -> Option<Arc<DedicatedLooper>> {
        self.real_time.loopers.all.lock().iter().find(|dedicated| dedicated.via() == via).cloned()
    }

    /// Provides a dedicated looper for a lane that the broker has given to a real-time caller.
    /// `looper` is the standby looper that the broker has chosen; 0 if none.
    pub(crate) fn begin_dedicated(
        &self,
        id: ChannelId,
        lane: u32,
        priority: SchedPriority,
        looper: Tid,
    ) {
        let channel = self.channel(id).filter(|channel| channel.end == End::Server);
        let Some(channel) = channel.filter(|_| (lane as usize) < LANES) else { return };
        let via = channel.via(lane as usize);
        let dedicated = {
            let mut all = self.real_time.loopers.all.lock();
            if let Some(dedicated) = all.iter().find(|dedicated| dedicated.via() == via) {
                *dedicated.priority.lock() = priority;
                return dedicated.raise(&dedicated.is_news);
            }
            let dedicated = Arc::new(DedicatedLooper {
                channel,
                lane,
                number: self.real_time.loopers.count.fetch_add(1, Ordering::Relaxed),
                priority: Lock::new(priority),
                is_given: AtomicBool::new(looper != 0),
                is_over: AtomicBool::new(false),
                is_news: AtomicBool::new(true),
                ring_is_locked: AtomicBool::new(false),
                borrows: AtomicBool::new(false),
            });
            all.push(Arc::clone(&dedicated));
            dedicated
        };
        if !self.give_to_standby(&dedicated, looper) {
            dedicated.is_given.store(false, Ordering::Release);
            self.give(dedicated);
        }
    }

    /// Makes the loopers of a channel's lanes, or of one lane, leave.
    pub(crate) fn end_dedicated(&self, channel: ChannelId, lane: Option<u32>) {
        self.real_time.loopers.all.lock().retain(|dedicated| {
            let ends = dedicated.via().channel == channel
                && lane.is_none_or(|lane| lane == dedicated.lane);
            if ends {
                dedicated.raise(&dedicated.is_over);
            }
            !ends
        });
    }

    /// Makes the calling thread the only one that takes requests on the lane, at its caller's
    /// priority. Requests that lie there already are taken first. `None` if the lane's caller has
    /// left; else the lock that the thread keeps until [`Engine::leave_dedicated`].
    pub fn own_lane<'a>(&self, dedicated: &'a DedicatedLooper) -> Option<Guard<'a, ()>> {
        let (areas, tid) = (dedicated.areas().ok()?, tid());
        touch_stack();
        self.mlock_lane(&dedicated.channel, dedicated.lane);
        self.register(dedicated);
        // The lane's last looper may not have left yet: this waits for it.
        let lock = dedicated.channel.dedicated_lock(dedicated.lane);
        dedicated.borrow();
        let mut state = self.lock();
        let thread = state.thread(tid);
        (thread.return_once, thread.driver_looper_of) = (false, Some(dedicated.via()));
        while !dedicated.channel.dedicate(areas, dedicated.lane, tid) {
            if dedicated.is_over() || self.is_closed() {
                dedicated.channel.release_ownership(areas, dedicated.lane, tid);
                self.unlock(state);
                return None;
            }
            state = self.accept_own(state, dedicated);
            self.unlock(state);
            pause(PAUSE);
            state = self.lock();
        }
        self.unlock(state);
        Some(lock)
    }

    /// Tells the broker which thread is dedicated, if the broker has to know.
    pub(crate) fn register(&self, dedicated: &DedicatedLooper) {
        if !dedicated.is_news.swap(false, Ordering::AcqRel) {
            return;
        }
        let LaneId { channel, lane } = dedicated.via();
        let registered = self.broker.ask(&Request::RealTimeLooper { channel, lane, tid: tid() });
        thread::real_time_priority_again();
        let refused = registered == Err(Errno::PERM);
        // The program's own threads do not borrow: the program may keep them for any time.
        let borrows = refused && self.real_time.loopers.provider.get().is_some();
        dedicated.borrows.store(borrows, Ordering::Relaxed);
        if borrows {
            dedicated.channel.borrow(lane);
        } else {
            dedicated.channel.borrow_no_more(lane);
        }
        if refused && !self.real_time.loopers.has_warned.swap(true, Ordering::Relaxed) {
            let rest = if borrows { BORROWED } else { "" };
            tracing::warn!(target: "binder", "{}: real-time callers have loopers of their own, but \
                not their \
                priority: the broker may not set it{rest}", self.identity.pid);
        }
    }

    /// Waits until the state has something for the dedicated thread. Meanwhile `serve` takes in
    /// requests without the state, and says whether it could. `None` once the thread has to leave.
    pub fn await_dedicated<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        dedicated: &DedicatedLooper,
        mut serve: impl FnMut() -> bool,
    ) -> Option<Guard<'a, State>> {
        let (areas, tid) = (dedicated.areas().ok()?, tid());
        loop {
            state = self.accept_own(state, dedicated);
            if state.has_work(tid, false) {
                return Some(state);
            }
            if dedicated.is_over() || self.is_closed() {
                return None;
            }
            // Other threads that have work for this one nudge it from now on.
            state.set_waiting(tid, Waiting::Lane(dedicated.via()));
            self.unlock(state);
            self.register(dedicated);
            self.serve_lane(dedicated, areas, &mut serve);
            state = self.lock();
            state.set_waiting(tid, Waiting::No);
        }
    }

    #[inline]
    fn wait_dedicated(
        &self,
        dedicated: &DedicatedLooper,
        areas: Lane<'_>,
        policy: &WaitPolicy,
    ) -> Seen {
        let (channel, lane) = (&*dedicated.channel, dedicated.lane);
        policy.next(&self.pool.settings, channel, lane);
        if policy.yields_to_peer(self.broker.stamps, channel, lane, || areas.arrived()) {
            return Seen::Message;
        }
        policy.sleep();
        let seen = channel.sleep_at(areas, || false).unwrap_or(Seen::Nothing);
        self.pool.stay_with_caller(channel, lane);
        channel.show_processor();
        seen
    }

    #[inline]
    fn serve_lane(
        &self,
        dedicated: &DedicatedLooper,
        areas: Lane<'_>,
        serve: &mut impl FnMut() -> bool,
    ) {
        let policy = WaitPolicy::new();
        loop {
            let seen = match areas.inbox().look() {
                Seen::Nothing => self.wait_dedicated(dedicated, areas, &policy),
                seen => seen,
            };
            dedicated.borrow();
            let goes_on = match seen {
                Seen::Message => serve(),
                Seen::Nudge => false,
                Seen::Nothing => true,
            };
            // The calls of a fast caller hide nudges: a message goes first.
            if !goes_on || dedicated.is_over() || dedicated.is_news.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Takes in what is in the ring of the thread's lane, and the request on the lane, by the
    /// general path.
    pub(crate) fn accept_own<'a>(
        &'a self,
        state: Guard<'a, State>,
        dedicated: &DedicatedLooper,
    ) -> Guard<'a, State> {
        let channel = &*dedicated.channel;
        let mut state = self.accept_own_one_ways(state, dedicated);
        let Ok(areas) = dedicated.areas() else { return state };
        if areas.inbox().is_empty() || channel.ends().dead {
            return state;
        }
        dedicated.borrow();
        if self.accept_dedicated(&mut state, channel, dedicated.lane as usize).is_some() {
            // Its grant or ticket has not been taken. If it does not come by a barrier, it never
            // will.
            self.unlock(state);
            self.take_new_events();
            state = self.lock();
            if self.accept_dedicated(&mut state, channel, dedicated.lane as usize).is_some() {
                self.unlock(state);
                state = self.pass_barrier();
                if self.accept_dedicated(&mut state, channel, dedicated.lane as usize).is_some() {
                    self.end_channel(&mut state, channel, "a call without a grant");
                }
            }
        }
        if !areas.inbox().is_empty() && !channel.ends().dead {
            // It may be the answer to a call back, for which the thread sleeps here that serves the
            // lane. The client has woken one sleeper.
            areas.inbox().nudge();
            // The thread that serves the lane may not run as long as this one does.
            self.unlock(state);
            pause(PAUSE);
            state = self.lock();
        }
        state
    }

    fn accept_own_one_ways<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        dedicated: &DedicatedLooper,
    ) -> Guard<'a, State> {
        let (channel, lane) = (&dedicated.channel, dedicated.lane as usize);
        if channel.has_real_time(lane) && !channel.ends().dead {
            if !dedicated.ring_is_locked.swap(true, Ordering::Relaxed) {
                self.mlock_lane_ring(channel, lane);
            }
            let mut before = OwnRing::Taken;
            loop {
                let ring = self.accept_own_ring(&mut state, dedicated);
                match ring {
                    OwnRing::Taken => break,
                    OwnRing::Cut if state.has_work(tid(), false) || dedicated.is_over() => break,
                    OwnRing::Cut => {
                        self.unlock(state);
                        state = self.lock();
                    }
                    // As of a request without its grant or ticket. Another one that waits may have
                    // been sent after the barrier.
                    OwnRing::Waits(_) if ring == before => {
                        let why = "a one-way transaction without a grant";
                        self.end_channel(&mut state, channel, why);
                        break;
                    }
                    OwnRing::Waits(_) => {
                        self.unlock(state);
                        state = self.pass_barrier();
                    }
                }
                before = ring;
            }
        }
        state.claim_one_way(tid(), dedicated.via());
        state
    }

    /// Gives the lane back to the pool, with the requests that have arrived.
    pub fn leave_dedicated(&self, dedicated: &DedicatedLooper, tid: Tid, lock: Guard<'_, ()>) {
        let mut state = self.lock();
        if let Ok(areas) = dedicated.areas() {
            dedicated.channel.release_ownership(areas, dedicated.lane, tid);
            self.pool.activate(&dedicated.channel);
        }
        self.announce_ring(&dedicated.channel, dedicated.lane);
        dedicated.channel.borrow_no_more(dedicated.lane);
        dedicated.channel.munlock_lane(dedicated.lane);
        drop(lock);
        // A message that waits for an event still does: the next look finds it.
        self.accept_first(&mut state);
        self.unlock(state);
        self.forget_thread(tid);
    }
}

/// Touches the pages of the stack that a handler may use, before it is called.
fn touch_stack() {
    const STACK_BYTES: usize = 128 << 10;
    std::hint::black_box(&mut [0u8; STACK_BYTES]);
}
