//! A channel at the client's end: lanes, the bell, the one-way ring.

use super::one_way_ring::Pending;
use super::{Channel, Ends, OneWayAccount};
#[cfg(simulated)]
use baton_abi::control::End;
use baton_abi::lane::*;
use baton_shm::bell::{Attentive, Bell, Ring};
use baton_shm::client_lanes::Progress;
#[cfg(simulated)]
use baton_shm::lane_owner::Owner;
use baton_shm::mailbox::Reader;
use baton_shm::mapping::View;
use baton_shm::ring::Corrupt;
use baton_shm::sync::{AtomicU32, Ordering};
#[cfg(simulated)]
use baton_state::transaction::LaneId;

/// How often a client rings again for a sleeper that it has missed.
const MISSES: u32 = 2;

impl Channel {
    /// Takes a lane that no call has. `None` if all are in use.
    pub fn take_lane(&self) -> Option<usize> {
        let areas = |lane| self.lane(lane).ok();
        let is_given_back = |lane| areas(lane).is_some_and(|areas| areas.inbox().is_given_back());
        self.client_lanes.reclaim(is_given_back, |lane| self.empty_lane(lane));
        let is_dedicated = |lane| areas(lane).is_some_and(|areas| areas.outbox().is_dedicated());
        self.client_lanes.take(is_dedicated)
    }

    /// Frees a lane on which neither end has anything open any more, with empty mailboxes.
    pub fn renew_lane(&self, lane: u32) {
        self.empty_lane(lane);
        self.client_lanes.give(lane);
    }

    fn empty_lane(&self, lane: u32) {
        if let Ok(areas) = self.lane(lane as usize) {
            areas.inbox().reset();
            areas.outbox().reset();
        }
    }

    /// A word of the server's status page.
    pub fn status_word(&self, offset: usize) -> u32 {
        self.front.as_ref().map_or(0, |front| front.word(offset).load(Ordering::Acquire))
    }

    /// Announces a new request or one-way record to the server: wakes a looper, or rings the
    /// doorbell. `must_look`: rings the doorbell also if all loopers are busy, because none may
    /// come by. True if a looper has been woken.
    #[inline(always)]
    pub fn announce(&self, must_look: bool) -> bool {
        let Some(front) = &self.front else { return false };
        let attendance = front.word(status::ATTENDANCE).load(Ordering::Acquire);
        let seen = match self.ring(front.word(status::SLEEPERS)) {
            _ if attendance != Attendance::Loopers as u32 => false,
            Ring::Woken => return true,
            Ring::NoSleeper => !must_look,
            Ring::Missed | Ring::Nobody => false,
        };
        if !seen {
            self.socket.ring();
        }
        false
    }

    /// Like [`Channel::announce`], for a one-way record in the channel's ring, unless loopers will
    /// look anyway: see [`crate::wait::attention`].
    pub fn announce_one_way(&self, must_look: bool) {
        let is_looked_at = || {
            let front = self.front.as_ref()?;
            let has_loopers = self.status_word(status::ATTENDANCE) == Attendance::Loopers as u32;
            let is_attentive = Attentive::new(front.word(status::ATTENTIVE)).is_on();
            Some(has_loopers && is_attentive && self.bell()?.is_active())
        };
        if must_look || is_looked_at() != Some(true) {
            self.announce(must_look);
        }
    }

    /// Rings the bell, repeatedly for a looper that is just about to sleep: a second ring is
    /// cheaper than the doorbell.
    fn ring(&self, elsewhere: &AtomicU32) -> Ring {
        let Some(bell) = self.bell().or_else(|| self.first_bell()) else { return Ring::Nobody };
        let mut ring = bell.ring(elsewhere);
        for _ in 0..MISSES {
            if ring != Ring::Missed {
                break;
            }
            std::thread::yield_now();
            ring = bell.ring(elsewhere);
        }
        ring
    }

    /// The bell of a channel on which nothing has come from the server yet. A doorbell would wake
    /// the server's control thread instead of a looper.
    #[cold]
    fn first_bell(&self) -> Option<Bell<'_>> {
        if !self.socket.was_taken_up() {
            self.socket.take_introduction();
        }
        self.bell()
    }

    /// Whether the call on this lane was posted and its server has taken it in.
    pub fn was_taken(&self, lane: u32) -> bool {
        self.client_lanes.is_posted(lane)
            && self.lane(lane as usize).is_ok_and(|lane| lane.outbox().is_empty())
    }

    /// Shows the server to which processor the lane's real-time caller is bound, if it is.
    pub fn show_bound(&self, lane: u32, processor: Option<u32>) {
        let shown = processor.map_or(0, |processor| processor + 1);
        self.head.word(header::BOUND + 4 * lane as usize).store(shown, Ordering::Relaxed);
    }

    /// Shows the server the nice value of the request that is about to be posted on the lane.
    #[inline(always)]
    pub fn show_nice(&self, lane: usize, nice: i32) {
        if self.client_lanes.set_niced(lane, nice != 0) {
            // READY is set after it.
            self.head.double_word(header::NICED).fetch_xor(1 << lane, Ordering::Release);
        }
    }

    /// Called after a request has been posted on the lane: announces the request, unless its reader
    /// looks at the mailbox itself. `must_look` as in [`Channel::announce`].
    #[inline(always)]
    pub fn notify_of_request(&self, lane: usize, reader: Reader, must_look: bool) {
        let expected = match reader {
            // A dedicated thread may stay with its program: see `ring_if_untaken`.
            Reader::Watching | Reader::Dedicated => false,
            // A thread that sleeps on the mailbox is pinned to the lane, or dedicated to it.
            Reader::Woken => true,
            Reader::Elsewhere | Reader::Polling | Reader::Closed => {
                self.set_ready(lane);
                self.announce(must_look)
            }
        };
        self.client_lanes
            .set_progress(lane, if expected { Progress::Expected } else { Progress::Posted });
    }

    /// Rings the doorbell for a request that has not been taken in yet: the server's control thread
    /// checks whether a looper will.
    pub fn ring_if_untaken(&self, lane: usize) {
        if self.lane(lane).is_ok_and(|lane| !lane.outbox().is_empty()) {
            self.set_ready(lane);
            self.socket.ring();
        }
    }

    /// The requests that lie on this client's lanes, with their areas. The server may have changed
    /// them.
    pub fn untaken_requests(&self) -> impl Iterator<Item = (Message, View<'_>)> {
        let mapped = (0..LANES).filter(|&lane| self.lanes[lane].get().is_some());
        let areas = mapped.filter_map(|lane| self.lane(lane).ok());
        let untaken = areas.filter(|areas| !areas.outbox().is_empty());
        untaken.map(|areas| (areas.sent(), areas.outgoing()))
    }

    /// The one-way records of this client, in the channel's ring and in the receive buffer.
    pub fn one_way_account(&self, ends: &mut Ends) -> OneWayAccount {
        let head = self.head.double_word(header::RING_HEAD).load(Ordering::Acquire);
        self.account(&mut ends.pending, head)
    }

    /// The account with these records in a ring, whose reader is at `head`. Forgets those that have
    /// been read.
    pub(super) fn account(&self, pending: &mut Pending, head: u64) -> OneWayAccount {
        pending.forget_taken(head);
        let (pending, pending_bytes) = pending.n_and_bytes();
        OneWayAccount {
            pending_bytes,
            pending,
            taken_bytes: self.head.word(header::ONE_WAY_BYTES).load(Ordering::Acquire) as usize,
            taken: self.head.word(header::ONE_WAY_BUFFERS).load(Ordering::Acquire) as usize,
        }
    }

    /// Puts a one-way record into the channel's ring. `Ok(false)` if there is no room.
    pub fn put_one_way(
        &self,
        ends: &mut Ends,
        message: &Message,
        allocation: usize,
        write: impl FnOnce(View<'_>, usize),
    ) -> Result<bool, Corrupt> {
        let put = self.channel_ring().put(&mut ends.producer, message, write)?;
        if put {
            ends.pending.push(ends.producer.position(), allocation);
        }
        Ok(put)
    }

    /// Called after a one-way record has been put into the lane's ring. `must_announce`: the lane's
    /// dedicated looper may not look soon, even if it sleeps at the lane.
    pub fn notify_of_real_time(&self, lane: usize, must_announce: bool, must_look: bool) {
        let looks = self.lane(lane).is_ok_and(|areas| areas.outbox().alert());
        if !looks || must_announce || must_look {
            self.set_ready(lane);
            self.announce(must_look);
        }
    }
}

#[cfg(simulated)]
impl Channel {
    /// What a living channel keeps for real-time callers, or for calls, each thing with its lane:
    /// for the simulator.
    pub fn kept_for_real_time(&self) -> Vec<(LaneId, String)> {
        if self.ends().dead {
            return Vec::new();
        }
        let of = |lane: u32| {
            let what = match (self.end, self.lane_owner(lane)) {
                (End::Client, _) => self.client_lanes.kept(lane)?.to_owned(),
                (End::Server, Owner::Pool) if self.is_served(lane) => "served".to_owned(),
                (End::Server, owner @ Owner::Dedicated(_)) => format!("{owner:?}"),
                (End::Server, _) => return None,
            };
            Some((self.via(lane as usize), what))
        };
        (0..LANES as u32).filter_map(of).collect()
    }
}
