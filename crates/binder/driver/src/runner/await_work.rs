//! Waiting until a thread's read has something to return.

use super::accept::{ChannelSet, Look};
use crate::engine::Engine;
use crate::sys::clock::{now, now_ns, stamp};
use crate::wait::policy::{WaitPolicy, left_until};
use crate::wait::server::Server;
use baton_shm::futex::Wait;
use baton_shm::lock::Guard;
use baton_shm::mailbox::{Mailbox, Seen};
use baton_shm::sync::Ordering;
use baton_state::State;
use baton_state::thread::Waiting;
use baton_state::work::Tid;
use rustix::io::Errno;
use std::time::Instant;

/// How long a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until there is work.
    News,
    /// Until there is work, or this time has come.
    Deadline(Instant),
    /// Not at all.
    Now,
}

impl Engine {
    /// Waits until a read by this thread has something to return. Returns early if the thread has
    /// come without `process_work` because of work of its own, which others have taken over since.
    /// `EAGAIN` if the read may not wait, `ETIMEDOUT` once the deadline has passed, `EINTR` after a
    /// signal. Meanwhile `server` serves plain calls without the state.
    pub fn await_work<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
        process_work: bool,
        until: Until,
        mut server: Option<&mut dyn Server>,
    ) -> Result<Guard<'a, State>, Errno> {
        if !process_work && let Some(via) = state.idle_dedicated_to(tid) {
            return self.await_dedicated_lane(state, (tid, via), until == Until::Now);
        }
        // Requests that `server` can take in must not come in by the state.
        if server.is_some() && process_work && !state.has_work(tid, true) && !self.is_closed() {
            // What the thread has freed may make room for a message, which comes in then.
            self.carry_out(&mut state);
            if !state.has_work(tid, true) {
                state = self.sleep(state, tid, process_work, until, &mut server)?;
            }
        }
        // A message may come together with its ticket, after the look for events.
        let mut may_look_again = true;
        loop {
            if self.broker.has_events() {
                drop(state);
                self.take_events();
                state = self.lock();
            }
            let answered = self.accept_answer(&mut state, tid);
            let look = if process_work {
                if until != Until::Now {
                    self.pool.attention.begin_look(now_ns());
                }
                self.accept(&mut state, ChannelSet::Watched)
            } else {
                Look::All
            };
            // The next item of the process's work is this thread's, if it has none of its own.
            let takes_one = process_work && state.thread(tid).todo.is_empty();
            self.carry_out_and_take(&mut state, usize::from(takes_one));
            if state.has_work(tid, process_work) {
                return Ok(state);
            }
            if self.is_closed() {
                return Err(Errno::BADF);
            }
            if !process_work && state.takes_process_work(tid) {
                // A more urgent transaction has taken the one over that the thread was to serve: it
                // reads again, as a looper of the pool.
                self.end_raise(&mut state);
                return Ok(state);
            }
            if let Look::Cut { .. } = look {
                drop(state);
                state = self.lock();
                continue;
            }
            let later = look.later();
            if !answered || later.is_some() {
                if std::mem::take(&mut may_look_again) && self.broker.has_events() {
                    continue;
                }
                drop(state);
                state = self.catch_up(later, (!answered).then_some(tid));
                continue;
            }
            match until {
                Until::Now => {
                    self.ring_for_call(&mut state, tid);
                    return Err(Errno::AGAIN);
                }
                Until::Deadline(deadline) if deadline <= now() => {
                    return Err(Errno::TIMEDOUT);
                }
                Until::News | Until::Deadline(_) => {}
            }
            state = self.sleep(state, tid, process_work, until, &mut server)?;
            may_look_again = true;
            if process_work && server.is_none() && state.pool.wants_dedicated() {
                // This thread may have been woken to become dedicated.
                return Ok(state);
            }
        }
    }

    /// Rings the doorbell for the thread's call, if the server has not taken it in yet: the
    /// server's control thread finds out whether it will.
    pub(crate) fn ring_for_call(&self, state: &mut State, tid: Tid) {
        if let Some(calling) = state.thread(tid).calls_on()
            && let Some(channel) = self.channel(calling.via.channel)
        {
            channel.ring_if_untaken(calling.via.lane as usize);
        }
    }

    pub(crate) fn sleep<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
        process_work: bool,
        until: Until,
        server: &mut Option<&mut dyn Server>,
    ) -> Result<Guard<'a, State>, Errno> {
        let innermost = state.thread(tid).calls_on().map(|calling| calling.via);
        let deadline = match until {
            Until::Deadline(deadline) => Some(deadline),
            Until::News | Until::Now => None,
        };
        let outcome = if let Some(via) = innermost {
            let Some(channel) = self.channel(via.channel) else { return Ok(state) };
            let lane = channel.lane(via.lane as usize)?;
            state.set_waiting(tid, Waiting::Lane(via));
            drop(state);
            let (settings, stamps) = (&self.pool.settings, self.broker.stamps);
            let policy = WaitPolicy::of_one(settings, &channel, via.lane);
            let posted = stamp(stamps);
            let is_there = || (!lane.inbox().is_empty()).then_some(posted);
            match policy.yields_to_peer(stamps, &channel, via.lane, is_there) {
                true => Ok(Seen::Message),
                false => policy.await_answer_by(settings, &channel, via.lane, lane, deadline),
            }
        } else if process_work {
            state.set_waiting(tid, Waiting::Bell);
            // Acquire pairs with the release in `wake_looper`.
            let any_work = self.pool.any_work.load(Ordering::Acquire);
            drop(state);
            match self.pool.await_client(any_work, server) {
                Wait::Woken => Ok(Seen::Nudge),
                other => Err(other),
            }
        } else {
            let word = self.own_word(tid);
            state.set_waiting(tid, Waiting::Own);
            drop(state);
            Mailbox::new(&word).wait(deadline.map(left_until))
        };
        state = self.lock();
        state.set_waiting(tid, Waiting::No);
        match outcome {
            Err(Wait::Interrupted) if !state.has_work(tid, process_work) => {
                // The next read takes an answer that came with the signal.
                Err(Errno::INTR)
            }
            _ => Ok(state),
        }
    }
}
