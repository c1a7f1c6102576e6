//! A channel at the server's end: announced lanes, their owners, the one-way ring, muting.

use super::{Channel, Ends, Lane};
use baton_abi::lane::*;
use baton_abi::sched_priority::SchedPriority;
use baton_shm::futex::Wait;
use baton_shm::lane_owner::{LaneOwner, Owner};
use baton_shm::lock::Guard;
use baton_shm::mailbox::Seen;
use baton_shm::mapping::View;
use baton_shm::ready_lanes::lanes_of;
use baton_shm::ring::Corrupt;
use baton_shm::sync::{AtomicU64, Ordering, fence_after_update};
use baton_state::work::Tid;

/// After so many requests of others no looper waits on a silent client's bell any more: each bell
/// makes a wait slower, and a client that comes back rings the doorbell.
pub const RECENT_REQUESTS: u64 = 64;

/// After so many requests of others no looper looks at a silent client's channel any more: a look
/// takes 5 ns, and a client that comes back rings the doorbell once.
pub const ACTIVE_REQUESTS: u64 = 1024;

/// Number of fruitless looks that one request makes up for.
pub const FORGIVEN: u32 = 4;

/// In [`Channel::in_a_row`]: the number of requests, and above it the lane.
const LANE_SHIFT: u32 = 16;
const COUNT_MASK: u32 = (1 << LANE_SHIFT) - 1;

/// A one-way transaction waits in the ring.
pub struct OneWay;

impl Channel {
    /// Two sets of lanes: the pool's lanes with a request, new or left by an earlier look; and
    /// announced lanes with another owner. A client whose request stays untaken announces it to the
    /// pool too; the owners of such lanes are nudged. A lane in whose ring a one-way record lies is
    /// in one of the sets until the record has been taken.
    pub fn ready_lanes(&self, ends: &mut Ends) -> (u64, u64) {
        let word = self.head.double_word(header::READY);
        // SeqCst: the load comes after the announcement of a sleeper; see `bell`.
        if word.load(Ordering::SeqCst) != 0 {
            let announced = word.swap(0, Ordering::SeqCst);
            ends.ready.announce(announced);
        }
        let owned = ends.ready.remove_owned(|lane| self.is_pools(lane as u32));
        let areas = lanes_of(owned).filter_map(|lane| self.lane(lane).ok());
        areas.for_each(|areas| areas.inbox().nudge());
        let ready = ends.ready.all();
        // This look may end before it takes them.
        let with_records = lanes_of(owned).filter(|&lane| self.has_real_time(lane));
        with_records.for_each(|lane| ends.ready.leave(lane as u32, false));
        (ready, owned)
    }

    /// The lock of the thread to which a lane is dedicated. The next such thread waits for the
    /// lock, and so lends its priority to the thread that leaves.
    pub fn dedicated_lock(&self, lane: u32) -> Guard<'_, ()> {
        self.dedicated_locks[lane as usize].lock()
    }

    #[inline(always)]
    fn ownership(&self, lane: u32) -> &LaneOwner {
        &self.owners[lane as usize % LANES]
    }

    /// The owner of a lane, which takes the requests that arrive there.
    #[inline(always)]
    pub fn lane_owner(&self, lane: u32) -> Owner {
        self.ownership(lane).owner()
    }

    /// Whether the pool owns a lane.
    #[inline(always)]
    pub fn is_pools(&self, lane: u32) -> bool {
        self.ownership(lane).is_pools()
    }

    /// Makes the thread the lane's owner until [`Channel::release_ownership`]. False if the thread
    /// has to try again: another looper still has to leave the lane, or the thread has to take a
    /// request there first.
    pub fn dedicate(&self, lane: Lane<'_>, number: u32, tid: Tid) -> bool {
        let owner = self.ownership(number);
        if !owner.dedicate(tid) {
            // The pinned looper leaves the lane once it has looked.
            lane.inbox().nudge();
            return false;
        }
        owner.show_dedicated(lane.inbox())
    }

    /// Gives the lane of this thread back to the pool. True if a request lies there, which the
    /// pool's next look finds.
    pub fn release_ownership(&self, lane: Lane<'_>, number: u32, tid: Tid) -> bool {
        let mut ends = self.ends();
        let has_request = self.ownership(number).release(tid, lane.inbox());
        if has_request {
            ends.ready.leave(number, false);
        }
        has_request
    }

    /// Pins the calling looper of the pool to the lane until [`Channel::unpin`]. False if the lane
    /// has another owner, if a thread serves it, or if a looper is pinned to another lane of the
    /// channel: [`Channel::nudge_pinned`] can wake only one looper.
    pub fn pin(&self, lane: Lane<'_>, number: u32) -> bool {
        let _ends = self.ends();
        let has_pinned = self.owners.iter().any(|lane| lane.owner() == Owner::Pinned);
        !has_pinned && self.ownership(number).pin(lane.inbox())
    }

    /// Called by the pinned looper: gives the lane back to the pool, with the requests that have
    /// arrived. The next looper is pinned after as many requests as this one.
    pub fn unpin(&self, lane: Lane<'_>, number: u32) {
        self.in_a_row.store(0, Ordering::Relaxed);
        let mut ends = self.ends();
        if self.ownership(number).unpin(lane.inbox()) {
            ends.ready.leave(number, false);
        }
    }

    /// Called by the pinned looper: sleeps on the lane's mailbox, unless `is_wanted` says that
    /// there is something else to do.
    #[inline]
    pub fn sleep_pinned(
        &self,
        lane: Lane<'_>,
        number: u32,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<Seen, Wait> {
        // Relaxed: the mailbox has a fence between this and `is_wanted`, which pairs with that in
        // `nudge_pinned`.
        self.pinned_sleeper.store(number + 1, Ordering::Relaxed);
        let seen = self.sleep_at(lane, is_wanted);
        self.pinned_sleeper.store(0, Ordering::Relaxed);
        seen
    }

    /// Whether the looper that is pinned to a lane sleeps.
    pub fn has_pinned_sleeper(&self) -> bool {
        self.pinned_sleeper.load(Ordering::Relaxed) != 0
    }

    /// Wakes the looper that is pinned to a lane, if it sleeps. False if none does. Called after
    /// work has been published by a SeqCst read-modify-write.
    pub fn nudge_pinned(&self) -> bool {
        fence_after_update();
        let sleeper = self.pinned_sleeper.load(Ordering::Relaxed).checked_sub(1);
        let areas = sleeper.and_then(|lane| self.lane(lane as usize).ok());
        areas.inspect(|areas| areas.inbox().nudge()).is_some()
    }

    /// The processor to which the lane's real-time caller says that it is bound.
    #[inline]
    pub fn callers_processor(&self, lane: u32) -> Option<u32> {
        self.head.word(header::BOUND + 4 * lane as usize).load(Ordering::Relaxed).checked_sub(1)
    }

    /// The lanes that have been announced; `Err` if a one-way transaction waits.
    #[inline]
    pub fn new_lanes(&self) -> Result<u64, OneWay> {
        let ready = self.head.double_word(header::READY).load(Ordering::SeqCst);
        if self.has_one_way() { Err(OneWay) } else { Ok(ready) }
    }

    /// The lanes among these whose client says that their request has a nice value other than 0.
    #[inline]
    pub fn niced(&self, lanes: u64) -> u64 {
        self.head.double_word(header::NICED).load(Ordering::Relaxed) & lanes
    }

    /// The nice value of the request on a lane, by the client's word.
    pub fn nice(&self, lane: usize) -> SchedPriority {
        SchedPriority::nice(self.lane(lane).map_or(0, |areas| areas.header().param))
    }

    /// Claims an announced lane: no other looper finds it announced. False if another looper has
    /// claimed the lane.
    pub fn claim_ready(&self, lane: usize) -> bool {
        let word = self.head.double_word(header::READY);
        word.fetch_and(!(1 << lane), Ordering::SeqCst) >> lane & 1 == 1
    }

    /// Leaves a request for the next look. `announced`: the caller has claimed its announcement.
    pub fn leave_ready(&self, lane: usize, announced: bool) {
        self.ends().ready.leave(lane as u32, announced);
    }

    /// Forgets the announcements of these lanes, whose requests the caller has taken and not yet
    /// cleared.
    pub fn clear_ready(&self, lanes: u64) {
        self.ends().ready.remove(lanes);
    }

    /// Forgets the announcements of those among these lanes that have neither a request for the
    /// pool nor a one-way record: a message on a served lane is for the thread that serves it.
    /// Returns how many the client had made.
    pub fn forget_ready(&self, lanes: u64) -> u32 {
        let is_empty = |lane| self.lane(lane).is_ok_and(|areas| areas.inbox().is_empty());
        let has_none =
            |lane| (self.is_served(lane as u32) || is_empty(lane)) && !self.has_real_time(lane);
        self.ends().ready.forget(lanes, has_none)
    }

    /// Marks the lane as served by the calling thread, which acts for `owner`, until
    /// [`Channel::end_serving`]. False if the lane has another owner, or a thread serves it.
    #[inline(always)]
    pub fn start_serving(&self, lane: u32, owner: Owner) -> bool {
        self.ownership(lane).start_serving(owner)
    }

    /// Whether a thread serves the lane.
    pub fn is_served(&self, lane: u32) -> bool {
        self.ownership(lane).is_served()
    }

    /// Marks the lane as not served; a pinned looper keeps its mark. To be called before the client
    /// can see the answer.
    #[inline(always)]
    pub fn end_serving(&self, lane: u32) {
        self.ownership(lane).end_serving();
    }

    /// Whether a record lies in the channel's ring that does not wait for room.
    pub fn has_one_way(&self) -> bool {
        self.has_unread_one_way() && !self.full.load(Ordering::Relaxed)
    }

    /// Whether a record lies in the channel's ring.
    pub fn has_unread_one_way(&self) -> bool {
        let read = self.one_way_read.load(Ordering::Relaxed);
        self.ring_tail().load(Ordering::Acquire) != read
    }

    /// The oldest record of the channel's ring, or of a lane's, waits for room in the receive
    /// buffer. True if some record waits already.
    pub fn wait_for_room(&self, lane: Option<usize>) -> bool {
        let waits =
            self.full.load(Ordering::Relaxed) || self.full_rings.load(Ordering::Relaxed) != 0;
        match lane {
            Some(lane) => _ = self.full_rings.fetch_or(1 << lane, Ordering::Relaxed),
            None => self.full.store(true, Ordering::Relaxed),
        }
        waits
    }

    /// No record waits for room any more: the next look finds those that did.
    pub fn end_wait_for_room(&self) {
        self.full.store(false, Ordering::Relaxed);
        let lanes = self.full_rings.swap(0, Ordering::Relaxed);
        lanes_of(lanes).for_each(|lane| self.set_ready(lane));
    }

    /// The position up to which the one-way ring has been read.
    pub fn one_way_read(&self) -> u64 {
        self.one_way_read.load(Ordering::Relaxed)
    }

    /// Counts a request of the client, which makes up for some fruitless looks.
    #[inline]
    pub fn count_fruitful(&self) {
        // Relaxed: a count that is lost between two threads does not matter.
        let fruitless = self.fruitless.load(Ordering::Relaxed);
        if fruitless != 0 {
            self.fruitless.store(fruitless.saturating_sub(FORGIVEN), Ordering::Relaxed);
        }
    }

    /// Counts a request that the pool has taken on the lane.
    #[inline]
    pub fn count_in_a_row(&self, lane: u32) {
        // Relaxed: a count that is lost between two threads does not matter.
        let count = (self.in_a_row(lane) + 1).min(COUNT_MASK);
        self.in_a_row.store(lane << LANE_SHIFT | count, Ordering::Relaxed);
    }

    /// How many of the last requests that the pool has taken came in a row on this lane.
    #[inline]
    pub fn in_a_row(&self, lane: u32) -> u32 {
        let word = self.in_a_row.load(Ordering::Relaxed);
        if word >> LANE_SHIFT == lane { word & COUNT_MASK } else { 0 }
    }

    /// The lane among these, which are at least one, whose turn it is: the first one after the lane
    /// from which the pool has taken the last request.
    #[inline]
    pub fn next_in_turn(&self, lanes: u64) -> u32 {
        let last = self.in_a_row.load(Ordering::Relaxed);
        let beyond = if last == 0 { 0 } else { lanes & (u64::MAX << (last >> LANE_SHIFT)) << 1 };
        (if beyond != 0 { beyond } else { lanes }).trailing_zeros()
    }

    /// Counts looks here that found nothing, and returns how many there are.
    pub fn count_fruitless(&self, times: u32) -> u32 {
        self.fruitless.fetch_add(times, Ordering::Relaxed).saturating_add(times)
    }

    /// How many looks here found nothing, less those that requests have made up for.
    pub fn fruitless(&self) -> u32 {
        self.fruitless.load(Ordering::Relaxed)
    }

    /// Forgets the fruitless looks.
    pub fn forgive(&self) {
        self.fruitless.store(0, Ordering::Relaxed);
    }

    /// Whether no looper looks here, and the doorbell wakes nobody.
    pub fn is_muted(&self) -> bool {
        self.muted.load(Ordering::Relaxed)
    }

    /// Mutes the channel. False if it was muted already.
    pub fn mute(&self) -> bool {
        let mutes = !self.muted.swap(true, Ordering::SeqCst);
        if mutes {
            self.inactive.store(true, Ordering::SeqCst);
            // This holds even if a message lies there: the rounds look at muted channels.
            let _ = self.own_bell().map(|bell| bell.deactivate(|| false));
        }
        mutes
    }

    /// Unmutes the channel, and forgets the fruitless looks.
    pub fn unmute(&self) {
        self.forgive();
        self.times_muted.fetch_add(1, Ordering::Relaxed);
        self.muted.store(false, Ordering::SeqCst);
    }

    /// How often the channel has been unmuted.
    pub fn times_muted(&self) -> u32 {
        self.times_muted.load(Ordering::Relaxed)
    }

    /// Notes that the process's request with this number was this client's.
    pub fn wanted(&self, request: u64) {
        self.wanted_at.store(request, Ordering::Relaxed);
    }

    /// Whether one of the last [`RECENT_REQUESTS`] requests was this client's.
    pub fn is_recent(&self, requests: u64) -> bool {
        self.silence(requests) <= RECENT_REQUESTS
    }

    /// Whether the channel is not in the active set.
    pub fn is_inactive(&self) -> bool {
        self.inactive.load(Ordering::Relaxed)
    }

    /// How many requests of others have come since the client's last one.
    pub fn silence(&self, requests: u64) -> u64 {
        requests.wrapping_sub(self.wanted_at.load(Ordering::Relaxed))
    }

    /// Makes the channel inactive, unless a message lies there. The client of an inactive channel
    /// always rings the doorbell. True if the channel is inactive.
    pub fn deactivate(&self) -> bool {
        // A client without a bell rings the doorbell anyway.
        let bell = self.own_bell();
        // Set before the look: a thread that leaves a request here afterwards sees the mark, by the
        // ends' lock.
        self.inactive.store(true, Ordering::Relaxed);
        let inactive = match bell {
            Some(bell) => bell.deactivate(|| self.is_wanted()),
            None => !self.is_wanted(),
        };
        self.inactive.store(inactive, Ordering::Relaxed);
        inactive
    }

    /// Whether the channel has to stay active: a message has come, a one-way record waits for room,
    /// or a lane has a looper of its own.
    pub fn is_wanted(&self) -> bool {
        !self.owners.iter().all(LaneOwner::is_pools) || self.has_message()
    }

    /// Whether a message has been announced, new or not, or a one-way record waits for room.
    pub fn has_message(&self) -> bool {
        self.has_news()
            || self.full.load(Ordering::Relaxed)
            || self.full_rings.load(Ordering::Relaxed) != 0
            || self.ends().ready.all() != 0
    }

    /// Makes the channel active.
    pub fn reactivate(&self) {
        self.inactive.store(false, Ordering::Relaxed);
        self.own_bell().inspect(|bell| bell.reactivate());
    }

    /// The header of the oldest one-way record in the channel's ring, and its offset.
    pub fn first_one_way(&self, ends: &mut Ends) -> Result<Option<(Message, usize)>, Corrupt> {
        let ring = self.channel_ring();
        let read = ends.consumer.position();
        let first = ring.first(&mut ends.consumer);
        if ends.consumer.position() != read {
            // A skip has been read.
            self.one_way_read.store(ends.consumer.position(), Ordering::Relaxed);
        }
        first
    }

    /// Removes the oldest one-way record from the channel's ring, after it has been copied.
    pub fn release_one_way(&self, ends: &mut Ends, message: &Message) {
        let read = self.channel_ring().release(&mut ends.consumer, message);
        self.one_way_read.store(read, Ordering::Relaxed);
    }

    /// Whether the client has announced anything since the last look. Takes no lock.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.head.double_word(header::READY).load(Ordering::SeqCst) != 0 || self.has_one_way()
    }

    fn ring_tail(&self) -> &AtomicU64 {
        self.head.double_word(header::RING_TAIL)
    }

    /// Publishes to the client how many bytes and buffers its one-way transactions use.
    pub fn publish_account(&self, (bytes, buffers): (usize, usize)) {
        self.head.word(header::ONE_WAY_BYTES).store(bytes as u32, Ordering::Release);
        self.head.word(header::ONE_WAY_BUFFERS).store(buffers as u32, Ordering::Release);
    }

    /// The header and the ring.
    pub fn head(&self) -> View<'_> {
        self.head.view()
    }
}
