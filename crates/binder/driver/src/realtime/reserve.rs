//! Lanes of real-time threads: each thread keeps lanes to the processes that it calls, and asks the
//! broker for loopers at its priority there.
//!
//! A thread keeps at most [`MOST`] lanes to a peer: one for calls, which the fast path keeps
//! between calls, and one for loans. Calls that are nested deeper use any lane.

use crate::channel::Channel;
use crate::engine::Engine;
use crate::engine::broker::Link;
use crate::engine::real_time::{Purpose, Reservation, UNASKED};
use crate::sys::clock::now;
use crate::sys::thread::{self, tid};
use baton_abi::control::{End, ProcessId, Request};
use baton_abi::lane::status;
use baton_abi::sched_priority::SchedPriority;
use baton_shm::sync::Ordering;
use baton_state::transaction::{LaneId, Refusal};
use baton_state::work::Tid;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Lanes that a thread keeps to one peer.
const MOST: usize = 2;
/// Longest wait of a first call for its looper; after that the pool serves it.
const FIRST: Duration = Duration::from_millis(100);
/// The pause between two checks that the server still provides loopers.
const SLICE: Duration = Duration::from_millis(10);

impl Engine {
    /// A free lane that the calling thread keeps, if it is a real-time thread.
    pub(crate) fn reserved_lane(
        &self,
        peer: ProcessId,
        purpose: Purpose,
    ) -> Option<(Arc<Channel>, usize)> {
        let Some(priority) = thread::real_time_priority() else {
            self.end_own_reservations();
            return None;
        };
        let take = |free: &dyn Fn(&Channel, u32) -> bool| {
            let all = self.real_time.reservations.all.lock();
            let mut ours = all.iter().filter(|ours| ours.tid == tid() && ours.peer == peer);
            ours.find_map(|ours| {
                let channel = ours.channel.upgrade()?;
                free(&channel, ours.lane).then_some((channel, ours.lane))
            })
        };
        let found = take(&|channel, lane| channel.client_lanes.take_this(lane));
        let (channel, lane) = match (found, purpose) {
            (None, Purpose::Call) => take(&|channel, lane| self.take_own_lane(channel, lane))?,
            (found, _) => found?,
        };
        self.ask_for_looper(&channel, lane, priority);
        Some((channel, lane as usize))
    }

    /// The lane that the calling thread keeps to a process, reserved now if it is none yet; in
    /// whose ring its one-way transactions go. `None` of a thread that keeps none: it is no
    /// real-time thread, and what it has sent as one has been taken in.
    pub(crate) fn ring_to(&self, peer: ProcessId) -> Result<Option<(Arc<Channel>, usize)>, Errno> {
        let priority = thread::real_time_priority();
        if priority.is_none() && self.end_own_reservations() {
            return Ok(None);
        }
        let ours = || {
            let mut all = self.real_time.reservations.all.lock();
            let ours = all.iter_mut().find(|ours| ours.tid == tid() && ours.peer == peer)?;
            let is_locked = std::mem::replace(&mut ours.ring_is_locked, true);
            Some((ours.channel.upgrade()?, ours.lane, is_locked))
        };
        let mut found = ours();
        match (&found, priority) {
            (Some((channel, lane, _)), Some(priority)) => {
                self.ask_for_looper(channel, *lane, priority);
            }
            (None, Some(_)) => {
                let (channel, lane) = self.lane_to(peer, Purpose::Call)?;
                channel.client_lanes.give(lane as u32);
                found = ours();
            }
            (_, None) => {}
        }
        Ok(found.map(|(channel, lane, is_locked)| {
            if !is_locked {
                self.mlock_lane_ring(&channel, lane as usize);
            }
            (channel, lane as usize)
        }))
    }

    /// Reserves the lane that the calling thread has just taken, if it is a real-time thread.
    pub(crate) fn reserve(&self, channel: &Arc<Channel>, lane: usize) {
        let Some(priority) = thread::real_time_priority() else { return };
        let (tid, peer, lane) = (tid(), channel.peer, lane as u32);
        {
            let mut all = self.real_time.reservations.all.lock();
            all.retain(|old| old.channel.strong_count() > 0);
            let ours = all.iter().filter(|ours| ours.tid == tid && ours.peer == peer);
            if ours.count() >= MOST {
                return;
            }
            channel.client_lanes.reserve(lane);
            let (channel, era) = (Arc::downgrade(channel), UNASKED);
            let ring_is_locked = false;
            all.push(Reservation { tid, peer, channel, lane, priority, ring_is_locked, era });
            self.real_time.reservations.count.store(all.len(), Ordering::Relaxed);
        }
        self.mlock_lane(channel, lane);
        self.ask_for_looper(channel, lane, priority);
    }

    /// Whether the next call on this lane can be made like the last one: the thread's priority and
    /// the broker are the same as then.
    pub(crate) fn is_served_at_priority(&self, channel: &Channel, lane: u32) -> bool {
        let Some(priority) = thread::real_time_priority_again() else { return true };
        // Another broker may have come since the call asked for its looper.
        let asked = (priority, self.broker.link().era);
        let all = self.real_time.reservations.all.lock();
        let ours = all.iter().find(|ours| ours.is_of(channel, lane));
        ours.is_some_and(|ours| (ours.priority, ours.era) == asked)
    }

    /// Asks the broker for a looper, unless this broker was asked for the same priority before.
    fn ask_for_looper(&self, channel: &Arc<Channel>, lane: u32, priority: SchedPriority) {
        channel.show_bound(lane, thread::bound_to());
        let link = self.broker.link();
        let asked = {
            let mut all = self.real_time.reservations.all.lock();
            let ours = all.iter_mut().find(|ours| ours.is_of(channel, lane));
            let Some(ours) = ours else { return };
            let before = (ours.priority, ours.era);
            (ours.priority, ours.era) = (priority, link.era);
            before == (priority, link.era)
        };
        if asked {
            return;
        }
        let request = Request::RealTime { channel: channel.id, lane, tid: tid() };
        let Err(errno) = link.ask(&request) else {
            if self.await_looper(channel, lane, FIRST) {
                self.see_looper(channel, lane);
            }
            return;
        };
        // The server has not rejoined this broker yet, or too many requests came at once: the next
        // call asks again.
        if matches!(errno, Errno::NOENT | Errno::AGAIN) {
            let mut all = self.real_time.reservations.all.lock();
            all.iter_mut().filter(|ours| ours.tid == tid()).for_each(|ours| ours.era = UNASKED);
        } else if errno != Errno::CONNREFUSED
            && !self.real_time.reservations.has_warned.swap(true, Ordering::Relaxed)
        {
            let pid = self.identity.pid;
            let why = match errno {
                Errno::SRCH => "the broker's pid namespace does not have it".to_owned(),
                errno => errno.to_string(),
            };
            tracing::warn!(
                target: "binder",
                "{pid}:{} is not served at its real-time priority: {why}",
                tid()
            );
        }
    }

    /// Waits until the lane has its looper, if the server provides such loopers; the pool serves an
    /// earlier call. False if there is none after `longest`.
    fn await_looper(&self, channel: &Channel, lane: u32, longest: Duration) -> bool {
        let Ok(areas) = channel.lane(lane as usize) else { return false };
        let (start, outbox) = (now(), areas.outbox());
        loop {
            let comes = channel.status_word(status::LANE_LOOPERS) != 0
                && channel.status_word(status::FROZEN) == 0
                && !channel.ends().dead;
            let left = longest.saturating_sub(now() - start);
            let slice = left.min(if comes { SLICE } else { Duration::ZERO });
            if outbox.await_dedicated(Some(slice)).is_ok() {
                return true;
            }
            if slice.is_zero() {
                return false;
            }
        }
    }

    /// Notes whether the looper of the calling thread's lane has to be lent its priority. A program
    /// of the raw interface never lends: a signal interrupts its calls, but not a thread that
    /// lends.
    fn see_looper(&self, channel: &Channel, lane: u32) {
        if self.buffer.program_map() != 0 {
            return;
        }
        let pid = self.lock().peers.get(&channel.peer).map_or(0, |peer| peer.pid);
        channel.see_looper(lane, pid);
    }

    /// Prepares a real-time thread's first call by this handle: reserves a lane and asks for a
    /// looper. Waits up to `longest` for that looper, and returns whether it is there.
    pub fn prepare_lane(&self, tid: Tid, handle: u32, longest: Duration) -> Result<bool, Refusal> {
        thread::refresh_priority();
        let peer = self.route(tid, handle)?.peer;
        let (channel, lane) = self.lane_to(peer, Purpose::Call).map_err(Refusal::lost)?;
        let is_served = thread::real_time_priority().is_some()
            && self.await_looper(&channel, lane as u32, longest);
        if is_served {
            self.see_looper(&channel, lane as u32);
        }
        channel.client_lanes.give(lane as u32);
        self.with_state(|state| self.remember_route(state, tid, handle, channel.via(lane)));
        Ok(is_served)
    }

    /// Tells the next broker of the lanes that are ordinary again: the one before may have died
    /// before it told their servers, and the next one knows of no such lane. False if the next
    /// broker is gone as well. No reservation may end until the broker's place is taken.
    pub(crate) fn tell_ended_lanes(&self, link: &Link, channels: &[Arc<Channel>]) -> bool {
        let clients = channels.iter().filter(|channel| channel.end == End::Client);
        let lanes =
            clients.flat_map(|channel| channel.client_lanes.ended().map(|lane| channel.via(lane)));
        lanes
            .into_iter()
            .all(|LaneId { channel, lane }| link.tell(&Request::Ordinary { channel, lane }))
    }

    /// Whether the calling thread keeps lanes.
    pub(crate) fn keeps_lanes(&self) -> bool {
        self.real_time.reservations.count.load(Ordering::Relaxed) != 0
            && self.real_time.reservations.all.lock().iter().any(|ours| ours.tid == tid())
    }

    /// Ends the reservations of the calling thread, which is no real-time thread any more, except
    /// where the server has yet to take in what it has sent: what it sends now comes after that.
    /// True if none is left.
    fn end_own_reservations(&self) -> bool {
        let tid = tid();
        self.end_reservations_if(tid, |channel, lane| !channel.has_real_time(lane as usize));
        !self.keeps_lanes()
    }

    /// Ends the reservations of a thread that has ended, or is no looper any more.
    pub(crate) fn end_reservations(&self, tid: Tid) {
        self.end_reservations_if(tid, |channel, lane| {
            if channel.has_real_time(lane as usize) {
                // Before the server hears that the sender is gone.
                channel.notify_of_real_time(lane as usize, false, false);
            }
            true
        });
    }

    fn end_reservations_if(&self, tid: Tid, ends: impl Fn(&Channel, u32) -> bool) {
        if self.real_time.reservations.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut all = self.real_time.reservations.all.lock();
        all.retain(|ours| {
            if ours.tid != tid {
                return true;
            }
            let Some(channel) = ours.channel.upgrade() else { return false };
            if !ends(&channel, ours.lane) {
                return true;
            }
            channel.client_lanes.unreserve(ours.lane);
            channel.munlock_lane(ours.lane);
            self.broker.tell(&Request::Ordinary { channel: channel.id, lane: ours.lane });
            false
        });
        self.real_time.reservations.count.store(all.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::{broker, channel};

    /// The broker had not known the lane's server, or it is another one by now: only a call that
    /// asks again changes that.
    #[test]
    fn a_call_is_not_repeated_before_its_looper_is_asked_for() {
        let broker = broker();
        let (server, client, channel) = channel(&broker);
        let caller = || {
            if !thread::set_real_time_priority(
                Some(SchedPriority::fifo(1)),
                thread::Children::Inherit,
            ) {
                return println!(
                    "skipped: {} (no real-time priority here)",
                    std::thread::current().name().unwrap_or_default()
                );
            }
            let lane = channel.take_lane().unwrap();
            client.reserve(&channel, lane);
            assert!(client.is_served_at_priority(&channel, lane as u32), "the broker has answered");
            for era in [UNASKED, client.broker.link().era + 1] {
                let ask_another = |ours: &mut Reservation| ours.era = era;
                client.real_time.reservations.all.lock().iter_mut().for_each(ask_another);
                assert!(!client.is_served_at_priority(&channel, lane as u32), "{era}");
            }
        };
        std::thread::scope(|scope| scope.spawn(caller).join().unwrap());
        client.close();
        server.close();
    }
}
