//! Loopers of real-time callers in a server of the raw interface: the program's own threads.
//!
//! A looper that comes to read becomes *dedicated* to a lane ([`super::dedicated`]), if the pool
//! can spare it: it waits there alone, inside its read, and serves at the rank that the broker
//! gives it. Else its program is asked for one more looper, as long as it lets the pool have one.
//!
//! Between two reads the thread is the program's, which may keep it. A caller that has not been
//! taken in for a millisecond says so, and if the thread does not come for a [`ROUND`] more, the
//! lane is the pool's.
//!
//! **Invariant**: of a thread that attends, the channel, the state and the thread's
//! [`DedicatedUapi`](super::fast) are changed by itself, or under the state's lock while it is not
//! in its read.

use super::Engine;
use super::accept::Among;
use super::dedicated::DedicatedLooper;
use super::stay;
use crate::channel::{Channel, lanes_of};
use crate::thread;
use crate::thread_end;
use baton_abi::control::Request;
use baton_shm::futex::Wait;
use baton_shm::lock::Guard;
use baton_state::State;
use baton_state::dedicated::Round;
use baton_state::thread::Waiting;
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use rustix::event::Timespec;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From one round to the next. A pool that serves longer without a look is one that may wait for
/// somebody.
const ROUND: Duration = Duration::from_millis(20);

/// When the control thread is to see whether the pool lacks those dedicated.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// Runs while `expected`.
    timer: OwnedFd,
    expected: AtomicBool,
}

impl Watchdog {
    pub fn new() -> Result<Watchdog, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Watchdog { timer, expected: AtomicBool::new(false) })
    }

    /// Polls readable when it is time.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// A round is due a while from now, or sooner: nobody who expects another one puts it off.
    pub fn expect(&self) {
        if self.expected.swap(true, Ordering::SeqCst) {
            return;
        }
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let then = Timespec { tv_sec: 0, tv_nsec: ROUND.subsec_nanos().into() };
        let once = Itimerspec { it_interval: never, it_value: then };
        // It cannot fail: the descriptor is a timer and the time is one.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// It has come. What is to be seen from now on expects another one.
    fn begin(&self) {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.expected.store(false, Ordering::SeqCst);
    }
}

impl Engine {
    /// The control thread's round.
    pub(super) fn watchdog(&self) {
        self.watchdog.begin();
        let mut state = self.lock();
        for via in state.take_absent() {
            if let Some(channel) = self.channel(via.channel) {
                self.end_absence(&mut state, &channel, via);
                self.activate(&channel);
            }
        }
        // What waits for an event still does; the next round finds it.
        self.accept(&mut state, Among::Watched);
        let round = state.watchdog();
        if round != Round::Last {
            self.watchdog.expect();
        }
        let Round::Missed(loopers) = round else { return self.unlock(state) };
        // Who waits for the state comes by.
        let is_contended = self.state.is_contended();
        self.unlock(state);
        let are_at_work = is_contended || loopers.into_iter().any(thread::is_running);
        let mut state = self.lock();
        state.end_round(are_at_work);
        self.unlock(state);
    }

    /// A lane for the program's threads to attend.
    pub(super) fn offer(&self, dedicated: &DedicatedLooper) {
        let mut state = self.lock();
        state.offer_lane(dedicated.via());
        let is_served = state.gets_attendants();
        self.unlock(state);
        if is_served {
            // A looper that waits attends it, or asks for another one. The caller waits for that.
            self.wake_looper();
        }
        if !is_served && !self.dedicated_loopers.has_told_of_pool.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "binder", "{}: real-time callers are served by the pool, at its \
                loopers' own \
                priority: it has no looper to spare, and its program wants no more of them, or \
                polls", self.identity.pid);
        }
    }

    /// Threads of ours attend them from now on.
    pub(super) fn take_offers_back(&self, dedicated_loopers: &[Arc<DedicatedLooper>]) {
        let mut state = self.lock();
        dedicated_loopers.iter().for_each(|dedicated| state.withdraw_lane(dedicated.via()));
        self.unlock(state);
    }

    /// A lane is like others again.
    pub(super) fn end_offer(&self, via: LaneId) {
        let mut state = self.lock();
        self.withdraw(&mut state, via);
        self.unlock(state);
    }

    /// A dedicated at the lane is over. There may be another one there by now.
    pub(super) fn withdraw(&self, state: &mut State, via: LaneId) {
        state.withdraw_lane(via);
        if self.dedicated(via).is_some_and(|dedicated| !dedicated.is_over()) {
            state.offer_lane(via);
        }
    }

    /// The calling thread comes to read: from a lane of which it has been relieved it is the pool's
    /// again.
    pub(crate) fn end_dedication(&self, state: &mut State, tid: Tid) {
        let Some(via) = state.thread(tid).relieved_of.take() else { return };
        self.look_after(via);
        // The broker sees to it too, but later: what the thread serves now is no real-time
        // caller's.
        thread::become_ordinary();
        stay::go_free();
    }

    /// A message may have come on a lane for a thread that attends it no longer, and has been woken
    /// for it: nobody else has been told.
    pub(super) fn look_after(&self, via: LaneId) {
        let Some(channel) = self.channel(via.channel) else { return };
        let Ok(areas) = channel.lane(via.lane as usize) else { return };
        if areas.inbox().is_empty() {
            return;
        }
        self.activate(&channel);
        channel.set_ready(via.lane as usize);
        self.wake_looper();
    }

    /// The calling thread, a looper that comes to read and would wait, becomes dedicated if there
    /// is one for it.
    pub(crate) fn become_dedicated<'a>(
        self: &'a Arc<Engine>,
        mut state: Guard<'a, State>,
        tid: Tid,
    ) -> Guard<'a, State> {
        if !state.wants_attendant() {
            return state;
        }
        if !thread::is_ordinary() {
            // One that has attended may have a rank that the broker is about to take back.
            let thread = state.thread(tid);
            let was_unsuited = thread.is_unsuited;
            thread.is_unsuited = !thread.has_attended;
            if thread.is_unsuited && !was_unsuited {
                // It may have been woken in another one's place.
                self.wake_looper();
            }
            return state;
        }
        let Some(via) = state.become_dedicated(tid) else { return state };
        let Some(dedicated) = self.dedicated(via).filter(|dedicated| !dedicated.is_over()) else {
            self.withdraw(&mut state, via);
            return state;
        };
        thread_end::remember_lanes(self);
        dedicated.renew();
        // Before a caller that waits for it calls; and under the lock: whoever relieves it tells
        // the broker after this.
        self.register(&dedicated);
        self.attend_at_once(state, &dedicated)
    }

    /// What lies on the lane already, of which others have been told, is this thread's if it is
    /// still there.
    fn attend_at_once<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        dedicated: &DedicatedLooper,
    ) -> Guard<'a, State> {
        let Ok(areas) = dedicated.areas() else { return state };
        for _ in 0..2 {
            if dedicated.channel.attend(areas, dedicated.lane) {
                return state;
            }
            if self
                .accept_attended(&mut state, &dedicated.channel, dedicated.lane as usize)
                .is_some()
            {
                break;
            }
        }
        // Somebody is at it.
        state.vacate(dedicated.via());
        state
    }

    /// Waits until a read by this thread, which attends a lane, has something to return, or it
    /// attends none any more. Errors as in [`Engine::await_work`].
    pub(super) fn await_attended<'a>(
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
            self.keep_lane(&dedicated.channel, dedicated.lane);
            state = self.lock();
        }
        loop {
            state = self.accept_own(state, &dedicated);
            self.carry_out(&mut state);
            if self.is_closed() {
                return Err(Errno::BADF);
            }
            if dedicated.is_over() && state.attends(tid) == Some(via) {
                self.withdraw(&mut state, via);
            }
            if state.attends(tid) != Some(via) {
                // What it was woken for, while it goes back to its program with something else.
                self.look_after(via);
                return Ok(state);
            }
            if state.has_work(tid, false) {
                return Ok(state);
            }
            if nonblocking {
                return Err(Errno::AGAIN);
            }
            state.set_waiting(tid, Waiting::Lane(via));
            // Under the lock: whoever relieves it tells the broker after this.
            self.register(&dedicated);
            drop(state);
            let outcome = areas.inbox().wait(None);
            self.stay_with_caller(&dedicated);
            state = self.lock();
            state.set_waiting(tid, Waiting::No);
            if outcome == Err(Wait::Interrupted) && !state.has_work(tid, false) {
                return Err(Errno::INTR);
            }
        }
    }

    /// Lanes that their callers have told of although they are attended: those whose threads are
    /// still away a round later are the pool's.
    #[inline]
    pub(super) fn look_for_absent(&self, state: &mut State, channel: &Channel, told: u64) {
        for lane in lanes_of(told) {
            let via = channel.via(lane);
            // It may be about to leave: whether it has left is seen a round later.
            if is_posted(channel, via) && state.is_attended(via) {
                state.note_absent(via);
            }
        }
    }

    fn end_absence(&self, state: &mut State, channel: &Channel, via: LaneId) {
        if !is_posted(channel, via) || !state.is_attended(via) {
            return;
        }
        if !state.is_away(via) || !is_idle(channel, via) {
            // Its caller has told of it once.
            return state.note_absent(via);
        }
        if let Ok(areas) = channel.lane(via.lane as usize) {
            state.vacate(via);
            channel.leave_lane(areas, via.lane);
        }
    }

    /// A thread of the program's attends the lane no longer.
    pub(super) fn leave_unattended(&self, via: LaneId, tid: Tid) {
        let LaneId { channel: id, lane } = via;
        if let Some(channel) = self.channel(id)
            && let Ok(areas) = channel.lane(lane as usize)
        {
            if channel.leave_lane(areas, lane) {
                self.activate(&channel);
                channel.set_ready(lane as usize);
                self.wake_looper();
            }
            channel.release_lane(lane);
        }
        self.broker.tell(&Request::LeaveRealTime { channel: id, lane });
        // The thread's rank is about to be another one.
        thread::ranks_changed();
        self.end_reservations(tid);
    }

    /// A thread that has not said so has ended: what was kept for it is not any more.
    pub(crate) fn forget_lanes(&self, tid: Tid) {
        let mut state = self.lock();
        state.vacate_of(tid);
        self.unlock(state);
        self.end_reservations(tid);
    }
}

/// Whether a call lies on the lane.
fn is_posted(channel: &Channel, via: LaneId) -> bool {
    channel.lane(via.lane as usize).is_ok_and(|areas| !areas.inbox().is_empty())
}

/// Whether nobody serves the lane past the state.
fn is_idle(channel: &Channel, via: LaneId) -> bool {
    let idle = channel.start_serving(via.lane);
    if idle {
        channel.end_serving(via.lane);
    }
    idle
}
