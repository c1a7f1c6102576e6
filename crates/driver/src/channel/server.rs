//! A channel at the server's end: what has come, and what the client is told.

use super::{Channel, Ends, Lane, lanes_of};
use crate::engine::mute::FORGIVEN;
use baton_abi::lane::*;
use baton_abi::sched_priority::SchedPriority;
use baton_shm::futex::Wait;
use baton_shm::lane_owner::{LaneOwner, Owner};
use baton_shm::lock::Guard;
use baton_shm::mailbox::Seen;
use baton_shm::mapping::View;
use baton_shm::ring::Corrupt;
use baton_shm::sync::{AtomicU64, Ordering, fence_after_update};
use baton_state::work::Tid;
use bytemuck::bytes_of_mut;

/// Requests of others after which nobody waits for a silent client any more: each makes a wait
/// slower, and a client that comes back has the doorbell.
pub const RECENT_REQUESTS: u64 = 64;

/// Requests of others after which nobody looks for a silent client's any more: a look is 5 ns, and
/// a client that comes back rings the doorbell once.
pub const ACTIVE_REQUESTS: u64 = 1024;

/// There is a one-way transaction to look at.
pub struct OneWay;

impl Channel {
    /// Lanes of the pool with a request, new ones and those that could not be taken before; and
    /// lanes with another owner that their clients have announced all the same: a client in a hurry
    /// does that. These owners are nudged.
    pub fn ready_lanes(&self, ends: &mut Ends) -> (u64, u64) {
        let word = self.head.double_word(header::READY);
        // SeqCst: after the announcement of a sleeper; see `bell`.
        if word.load(Ordering::SeqCst) != 0 {
            let announced = word.swap(0, Ordering::SeqCst);
            ends.ready |= announced;
            ends.announced |= announced;
        }
        let is_owned = |lane: &usize| self.lane_owner(*lane as u32) != Owner::Pool;
        let owned: u64 = lanes_of(ends.ready).filter(is_owned).map(|lane| 1 << lane).sum();
        ends.ready &= !owned;
        let areas = lanes_of(owned).filter_map(|lane| self.lane(lane).ok());
        areas.for_each(|areas| areas.inbox().nudge());
        (ends.ready, owned)
    }

    /// The lock of the thread to which a lane is dedicated. The next such thread waits for it, and
    /// the last one leaves at the priority of the one that waits.
    pub fn dedicated_lock(&self, lane: u32) -> Guard<'_, ()> {
        self.dedicated_locks[lane as usize].lock()
    }

    #[inline(always)]
    fn ownership(&self, lane: u32) -> &LaneOwner {
        &self.owners[lane as usize % LANES]
    }

    /// Who takes what arrives on a lane.
    #[inline(always)]
    pub fn lane_owner(&self, lane: u32) -> Owner {
        self.ownership(lane).owner()
    }

    /// The thread takes every request on the lane until [`Channel::release_ownership`]. False if it
    /// has to try again: another looper leaves the lane, or a request lies there, which it takes
    /// first.
    pub fn dedicate(&self, lane: Lane<'_>, number: u32, tid: Tid) -> bool {
        let owner = self.ownership(number);
        if !owner.dedicate(tid) {
            // The pinned looper leaves the lane once it has looked.
            lane.inbox().nudge();
            return false;
        }
        owner.show_dedicated(lane.inbox())
    }

    /// The thread owns the lane no more. True if a request lies there, which the next look of the
    /// pool finds.
    pub fn release_ownership(&self, lane: Lane<'_>, number: u32, tid: Tid) -> bool {
        let mut ends = self.ends();
        let has_request = self.ownership(number).release(tid, lane.inbox());
        ends.ready |= u64::from(has_request) << number;
        has_request
    }

    /// The calling looper of the pool stays with the lane until [`Channel::unpin`]. False if the
    /// lane has another owner, if a thread serves it, or if a looper is pinned to another lane of
    /// the channel: [`Channel::nudge_pinned`] wakes one.
    pub fn pin(&self, lane: Lane<'_>, number: u32) -> bool {
        let _ends = self.ends();
        let has_pinned = self.owners.iter().any(|lane| lane.owner() == Owner::Pinned);
        !has_pinned && self.ownership(number).pin(lane.inbox())
    }

    /// The pinned looper, which calls this, gives the lane back to the pool, which finds there what
    /// has arrived meanwhile.
    pub fn unpin(&self, lane: Lane<'_>, number: u32) {
        let mut ends = self.ends();
        ends.ready |= u64::from(self.ownership(number).unpin(lane.inbox())) << number;
    }

    /// The looper that is pinned to the lane sleeps there, unless `is_wanted` says that there is
    /// something else to do.
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
        let seen = lane.inbox().wait_unless(None, is_wanted);
        self.pinned_sleeper.store(0, Ordering::Relaxed);
        seen
    }

    /// After work has been published by a SeqCst read-modify-write: wakes the looper that is pinned
    /// at a lane, if it sleeps. False if there is none.
    pub fn nudge_pinned(&self) -> bool {
        fence_after_update();
        let sleeper = self.pinned_sleeper.load(Ordering::Relaxed).checked_sub(1);
        let areas = sleeper.and_then(|lane| self.lane(lane as usize).ok());
        areas.inspect(|areas| areas.inbox().nudge()).is_some()
    }

    /// To which processor the lane's real-time caller says that it is bound.
    #[inline]
    pub fn callers_processor(&self, lane: u32) -> Option<u32> {
        self.head.word(header::BOUND + 4 * lane as usize).load(Ordering::Relaxed).checked_sub(1)
    }

    /// Lanes with a new request, if there is nothing else.
    #[inline]
    pub fn new_lanes(&self) -> Result<u64, OneWay> {
        let ready = self.head.double_word(header::READY).load(Ordering::SeqCst);
        if self.has_one_way() { Err(OneWay) } else { Ok(ready) }
    }

    /// Those of these lanes that say to have a request with another nice value than 0.
    #[inline]
    pub fn niced(&self, lanes: u64) -> u64 {
        self.head.double_word(header::NICED).load(Ordering::Relaxed) & lanes
    }

    /// The nice value that the request on a lane says to have.
    pub fn nice(&self, lane: usize) -> SchedPriority {
        SchedPriority::nice(self.lane(lane).map_or(0, |areas| areas.header().param))
    }

    /// Takes one lane's new request away from all others who look.
    pub fn claim_ready(&self, lane: usize) -> bool {
        let word = self.head.double_word(header::READY);
        word.fetch_and(!(1 << lane), Ordering::SeqCst) >> lane & 1 == 1
    }

    /// A request stays where it is: whoever looks next finds it. `announced`: its client had told
    /// of it, and the caller has claimed it.
    pub fn leave_ready(&self, lane: usize, announced: bool) {
        let mut ends = self.ends();
        ends.ready |= 1 << lane;
        ends.announced |= u64::from(announced) << lane;
    }

    /// There is nothing to take in on these lanes, or no more. How many of them the client had
    /// announced.
    pub fn clear_ready(&self, lanes: u64) -> u32 {
        let mut ends = self.ends();
        let announced = ends.announced & lanes;
        ends.ready &= !lanes;
        ends.announced &= !lanes;
        announced.count_ones()
    }

    /// The calling thread, which acts for `owner`, serves the lane until [`Channel::end_serving`].
    /// False if the lane has another owner, or a thread serves it.
    #[inline(always)]
    pub fn start_serving(&self, lane: u32, owner: Owner) -> bool {
        self.ownership(lane).start_serving(owner)
    }

    /// Whether a thread serves the lane.
    pub fn is_served(&self, lane: u32) -> bool {
        self.ownership(lane).is_served()
    }

    /// No thread serves the lane any more, but for a pinned looper. Call it before the client can
    /// see the answer.
    #[inline(always)]
    pub fn end_serving(&self, lane: u32) {
        self.ownership(lane).end_serving();
    }

    fn has_one_way(&self) -> bool {
        let read = self.one_way_read.load(Ordering::Relaxed);
        self.ring_tail().load(Ordering::Acquire) != read && !self.full.load(Ordering::Relaxed)
    }

    /// How far the one-way ring has been read.
    pub fn one_way_read(&self) -> u64 {
        self.one_way_read.load(Ordering::Relaxed)
    }

    /// The client has wanted something: that makes up for some looks for nothing.
    #[inline]
    pub fn count_fruitful(&self) {
        // Relaxed: what is lost between two threads does not matter.
        let fruitless = self.fruitless.load(Ordering::Relaxed);
        if fruitless != 0 {
            self.fruitless.store(fruitless.saturating_sub(FORGIVEN), Ordering::Relaxed);
        }
    }

    /// Looks here that have come to nothing, with these.
    pub fn count_fruitless(&self, times: u32) -> u32 {
        self.fruitless.fetch_add(times, Ordering::Relaxed).saturating_add(times)
    }

    /// Likewise.
    pub fn fruitless(&self) -> u32 {
        self.fruitless.load(Ordering::Relaxed)
    }

    /// They count no longer.
    pub fn forgive(&self) {
        self.fruitless.store(0, Ordering::Relaxed);
    }

    /// Whether no looper looks here, and the doorbell wakes nobody.
    pub fn is_muted(&self) -> bool {
        self.muted.load(Ordering::Relaxed)
    }

    /// From now on that is so. False if it was already.
    pub fn mute(&self) -> bool {
        let mutes = !self.muted.swap(true, Ordering::SeqCst);
        if mutes {
            self.inactive.store(true, Ordering::SeqCst);
            // Whatever is there: rounds are made.
            let _ = self.own_bell().map(|bell| bell.deactivate(|| false));
        }
        mutes
    }

    /// Loopers look at the channel again.
    pub fn unmute(&self) {
        self.times_muted.fetch_add(1, Ordering::Relaxed);
        self.muted.store(false, Ordering::SeqCst);
    }

    /// How often it has been so and is so no longer.
    pub fn times_muted(&self) -> u32 {
        self.times_muted.load(Ordering::Relaxed)
    }

    /// The client has wanted something, as the process's request with this number.
    pub fn wanted(&self, request: u64) {
        self.wanted_at.store(request, Ordering::Relaxed);
    }

    /// Whether the client wanted something within the last [`RECENT_REQUESTS`].
    pub fn is_recent(&self, requests: u64) -> bool {
        requests.wrapping_sub(self.wanted_at.load(Ordering::Relaxed)) <= RECENT_REQUESTS
    }

    /// Whether loopers look here no more.
    pub fn is_inactive(&self) -> bool {
        self.inactive.load(Ordering::Relaxed)
    }

    /// For how many requests of others the client has wanted nothing.
    pub fn silence(&self, requests: u64) -> u64 {
        requests.wrapping_sub(self.wanted_at.load(Ordering::Relaxed))
    }

    /// Loopers look here no more, if there is nothing: from now on the client always rings the
    /// doorbell. True if it is so.
    pub fn deactivate(&self) -> bool {
        // A client without a bell rings the doorbell anyway.
        let bell = self.own_bell();
        // Before the look: whoever leaves something here afterwards sees it, by the ends' lock.
        self.inactive.store(true, Ordering::Relaxed);
        let inactive = match bell {
            Some(bell) => bell.deactivate(|| self.is_wanted()),
            None => !self.is_wanted(),
        };
        self.inactive.store(inactive, Ordering::Relaxed);
        inactive
    }

    /// Whether loopers have to look here: a message has come, new or not, or a one-way record waits
    /// for room, or a lane has a looper of its own.
    pub fn is_wanted(&self) -> bool {
        let is_owned = |lane: &LaneOwner| lane.owner() != Owner::Pool;
        self.owners.iter().any(is_owned) || self.has_message()
    }

    /// Whether there is a message, new or not, or one that waits for room, as far as is announced.
    pub fn has_message(&self) -> bool {
        self.has_news() || self.full.load(Ordering::Relaxed) || self.ends().ready != 0
    }

    /// Loopers look here again.
    pub fn reactivate(&self) {
        self.inactive.store(false, Ordering::Relaxed);
        self.own_bell().inspect(|bell| bell.reactivate());
    }

    /// The oldest one-way record, if there is one, and where it lies.
    pub fn first_one_way(&self, ends: &mut Ends) -> Result<Option<(Message, usize)>, Corrupt> {
        loop {
            let available = ends.consumer.available(self.ring_tail())?;
            if available == 0 {
                return Ok(None);
            }
            if available < size_of::<Message>() {
                return Err(Corrupt);
            }
            let at = RING_AT + ends.consumer.place();
            let mut message = Message::default();
            self.head.view().read(at, bytes_of_mut(&mut message));
            let bytes = message.word as usize;
            if bytes == 0 || bytes > available || !bytes.is_multiple_of(64) {
                return Err(Corrupt);
            }
            match Kind::from_raw(message.kind) {
                Some(Kind::Skip) => {
                    self.release(ends, bytes);
                }
                Some(Kind::OneWay) => {
                    let fits = message.parts().is_some_and(|parts| parts.end <= bytes);
                    return if fits { Ok(Some((message, at))) } else { Err(Corrupt) };
                }
                _ => return Err(Corrupt),
            }
        }
    }

    /// The oldest one-way record has been copied.
    pub fn release_one_way(&self, ends: &mut Ends, message: &Message) {
        self.release(ends, message.word as usize);
    }

    fn release(&self, ends: &mut Ends, bytes: usize) {
        let head = self.head.double_word(header::RING_HEAD);
        self.one_way_read.store(ends.consumer.release(head, bytes), Ordering::Relaxed);
    }

    /// Whether anything new has come since the last look, as far as can be seen without a lock.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.head.double_word(header::READY).load(Ordering::SeqCst) != 0 || self.has_one_way()
    }

    fn ring_tail(&self) -> &AtomicU64 {
        self.head.double_word(header::RING_TAIL)
    }

    /// Publishes what the client has in the receive buffer.
    pub fn publish_account(&self, (bytes, buffers): (usize, usize)) {
        self.head.word(header::ONE_WAY_BYTES).store(bytes as u32, Ordering::Release);
        self.head.word(header::ONE_WAY_BUFFERS).store(buffers as u32, Ordering::Release);
    }

    /// The header and the ring.
    pub fn head(&self) -> View<'_> {
        self.head.view()
    }
}
