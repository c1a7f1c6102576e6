//! The rings of a channel: one of its own, for ordinary senders, and one of each lane, for the
//! real-time thread that keeps the lane.

use super::one_way_ring::{OneWayRing, RingEnd};
use super::{Channel, OneWayAccount};
use baton_abi::control::End;
use baton_abi::lane::*;
use baton_shm::lock::Guard;
use baton_shm::mapping::{Access, Mapping, View};
use baton_shm::ready_lanes::lanes_of;
use baton_shm::ring::Corrupt;
use baton_shm::sync::Ordering;
use baton_state::account::Resource;
use rustix::io::Errno;

/// An empty ring of a lane starts over from here on, so that its first pages, which are locked in
/// memory, hold all records of a sender that waits between them.
const LANE_RESTART: usize = 16 << 10;
/// An empty ring of a channel starts over from here on. Until the server has read the skip, at
/// least half of the ring is free.
const CHANNEL_RESTART: usize = RING_BYTES / 2;

impl Channel {
    /// The channel's own ring.
    pub(super) fn channel_ring(&self) -> OneWayRing<'_> {
        OneWayRing {
            view: self.head.view(),
            at: RING_AT,
            tail: self.head.double_word(header::RING_TAIL),
            head: self.head.double_word(header::RING_HEAD),
            restart: CHANNEL_RESTART,
        }
    }

    /// A lane's ring, mapped at its first use.
    fn lane_ring(&self, lane: usize) -> Result<OneWayRing<'_>, Errno> {
        let map = match self.lane_rings[lane].get() {
            Some(map) => map,
            None => self.map_lane_ring(lane)?,
        };
        Ok(OneWayRing {
            view: map.view(),
            at: LANE_RECORDS_AT,
            tail: map.double_word(lane_ring::TAIL),
            head: map.double_word(lane_ring::HEAD),
            restart: LANE_RESTART,
        })
    }

    #[cold]
    fn map_lane_ring(&self, lane: usize) -> Result<&Mapping<LANE_RING_BYTES>, Errno> {
        let mut mapped = self.mapped.lock();
        if let Some(map) = self.lane_rings[lane].get() {
            return Ok(map);
        }
        let held = match self.end {
            End::Client => None,
            End::Server => Some(self.account.take(Resource::Lanes, 1).ok_or(Errno::DQUOT)?),
        };
        let at = LANE_RINGS_AT + lane * LANE_RING_BYTES;
        let map = Mapping::part(&self.file, at, Access::ReadWrite)?;
        mapped.extend(held);
        Ok(self.lane_rings[lane].get_or_init(|| map))
    }

    /// The end of a lane's ring at this end of the channel.
    fn ring_end(&self, lane: usize) -> Guard<'_, RingEnd> {
        self.ring_ends[lane].lock()
    }

    /// The lanes whose rings have been used, by the client's word.
    pub fn used_rings(&self) -> u64 {
        // Acquire pairs with the release in `put_real_time`.
        self.head.double_word(header::LANE_RINGS).load(Ordering::Acquire)
    }

    /// Whether a one-way record lies in the lane's ring, by the client's word.
    pub fn has_real_time(&self, lane: usize) -> bool {
        self.used_rings() >> lane & 1 == 1
            && self.lane_ring(lane).is_ok_and(|ring| !ring.is_empty())
    }

    /// Whether a one-way record lies in the ring of any lane, by the client's word.
    pub fn has_any_real_time(&self) -> bool {
        lanes_of(self.used_rings()).any(|lane| self.has_real_time(lane))
    }

    /// Client: the records of this process that lie in the lane's ring, and those in the server's
    /// receive buffer.
    pub fn real_time_account(&self, lane: usize) -> Result<OneWayAccount, Errno> {
        let head = self.lane_ring(lane)?.head.load(Ordering::Acquire);
        let pending = &mut self.ring_end(lane).pending;
        Ok(self.account(pending, head))
    }

    /// Client: puts a one-way record of the real-time thread that keeps the lane into the lane's
    /// ring. `Ok(false)` if there is no room.
    pub fn put_real_time(
        &self,
        lane: usize,
        message: &Message,
        allocation: usize,
        write: impl FnOnce(View<'_>, usize),
    ) -> Result<bool, Corrupt> {
        let ring = self.lane_ring(lane).map_err(|_| Corrupt)?;
        let end = &mut *self.ring_end(lane);
        let put = ring.put(&mut end.producer, message, write)?;
        if put {
            end.pending.push(end.producer.position(), allocation);
        }
        if self.used_rings() >> lane & 1 == 0 {
            self.head.double_word(header::LANE_RINGS).fetch_or(1 << lane, Ordering::Release);
        }
        Ok(put)
    }

    /// Server: the header of the oldest one-way record in a lane's ring, and its offset in
    /// [`Channel::real_time_records`].
    pub fn first_real_time(&self, lane: usize) -> Result<Option<(Message, usize)>, Corrupt> {
        if self.used_rings() >> lane & 1 == 0 {
            return Ok(None);
        }
        let ring = self.lane_ring(lane).map_err(|_| Corrupt)?;
        ring.first(&mut self.ring_end(lane).consumer)
    }

    /// Server: the position up to which a lane's ring has been read.
    pub fn real_time_read(&self, lane: usize) -> u64 {
        self.ring_end(lane).consumer.position()
    }

    /// Server: the records of a lane whose ring has been found.
    pub fn real_time_records(&self, lane: usize) -> Option<View<'_>> {
        self.lane_rings[lane].get().map(Mapping::view)
    }

    /// Server: removes the oldest record from a lane's ring, after it has been copied.
    pub fn release_real_time(&self, lane: usize, message: &Message) {
        if let Ok(ring) = self.lane_ring(lane) {
            ring.release(&mut self.ring_end(lane).consumer, message);
        }
    }

    /// Locks the pages of a lane's ring that a sender uses which waits between its records.
    pub fn mlock_lane_ring(&self, lane: usize) -> Result<(), Errno> {
        self.lane_ring(lane)?.view.lock_in_memory(0, LANE_RECORDS_AT + LANE_RESTART)
    }

    /// Unlocks what [`Channel::mlock_lane_ring`] has locked.
    pub fn munlock_lane_ring(&self, lane: usize) {
        if let Some(map) = self.lane_rings[lane].get() {
            map.view().release(0, LANE_RECORDS_AT + LANE_RESTART);
        }
    }
}
