//! A lane that a thread keeps for its plain calls, as long as a route uses the lane.
//!
//! The lane does not keep its channel alive: a channel whose peer is gone must not stay for a
//! thread that calls no more. A call does not count itself at the channel either, which would take
//! two atomic operations. Instead the calling thread is inside an [entry](crate::engine::in_flight)
//! meanwhile, and the channel goes when no thread is inside for it:
//!
//! ```text
//!   caller                                   engine
//!   enters by the epoch of its route         the channel is on no list  (under the state's lock)
//!   uses the channel                         revokes entries on the way
//!   comes out                                control thread: is anybody inside who uses it?
//!                                              yes: asks again later        no: lets it go
//! ```

use crate::channel::{Channel, Lane};
use crate::engine::in_flight::{CALLING, InFlight, Operations};
use crate::wait::policy::WaitPolicy;
use baton_abi::control::ProcessId;
use baton_shm::client_lanes::Progress;
use baton_shm::revocation::{Revocation, Revocations};
use baton_state::transaction::LaneId;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// An epoch that no revocation reaches.
const NEVER: u64 = u64::MAX;

/// The lane.
pub(super) struct OwnLane {
    channel: Weak<Channel>,
    /// The channel's address, while it is alive.
    at: NonNull<Channel>,
    /// The revocation of this channel alone.
    revocation: Arc<Revocation>,
    via: LaneId,
    /// The lane's areas, in the channel's memory.
    areas: Lane<'static>,
    /// The process at the other end.
    pub peer: ProcessId,
    /// An epoch at which the engine had the channel; [`NEVER`] once the lane is not the thread's.
    epoch: Cell<u64>,
    /// How the thread waits for answers on it.
    pub policy: WaitPolicy,
}

/// A thread inside an entry: it may use the lane's channel as long as this lives.
pub(super) struct LaneEntry<'a> {
    in_flight: &'a InFlight,
    lane: &'a OwnLane,
}

impl OwnLane {
    /// Takes a lane that is free. `None` if it is not.
    pub fn take(channel: &Arc<Channel>, number: u32, epoch: u64) -> Option<OwnLane> {
        if !channel.client_lanes.take_this(number) {
            return None;
        }
        // Each call begins and ends with this progress.
        channel.client_lanes.set_progress(number as usize, Progress::Departed);
        let (via, peer) = (channel.via(number as usize), channel.peer);
        let areas = channel.lane(number as usize).ok()?;
        // SAFETY: lent by `channel` only, which gives the channel too.
        let areas = unsafe { std::mem::transmute::<Lane<'_>, Lane<'static>>(areas) };
        let (epoch, policy) = (Cell::new(epoch), WaitPolicy::new());
        let (at, revocation) = (NonNull::from(&**channel), Arc::clone(&channel.revocation));
        let channel = Arc::downgrade(channel);
        Some(OwnLane { channel, at, revocation, via, areas, peer, epoch, policy })
    }

    /// The lane.
    pub fn via(&self) -> LaneId {
        self.via
    }

    /// The revocations that a call on it checks.
    #[inline(always)]
    fn revocations<'a>(&'a self, operations: &'a Operations) -> Revocations<'a> {
        Revocations(&operations.revocation, &self.revocation)
    }

    /// Whether the epoch has ended: no call can begin on the lane any more.
    pub fn is_stale(&self, operations: &Operations) -> bool {
        self.revocations(operations).epoch() != self.epoch.get()
    }

    /// Begins a call on a lane of this channel. `None` if the epoch has ended: then see
    /// [`InFlight::leave`].
    #[inline(always)]
    pub fn enter<'a>(
        &'a self,
        operations: &Operations,
        in_flight: &'a InFlight,
        number: u32,
        (handle, token): (u32, u64),
    ) -> Option<LaneEntry<'a>> {
        in_flight.set_lane(LaneId { channel: self.via.channel, lane: number }, self.peer);
        let revocations = (self.revocations(operations), self.epoch.get());
        let entered = in_flight.begin(CALLING, revocations, handle, token);
        // Not `then_some`: that would make an `LaneEntry` and drop it, which ends the entry.
        entered.then(|| LaneEntry { in_flight, lane: self })
    }

    /// Whether the lane is one of this channel.
    pub fn is_on(&self, channel: &Channel) -> bool {
        std::ptr::eq(self.at.as_ptr(), channel)
    }

    /// Gives the lane up: the state or another thread has it from now on.
    pub fn disown(&self) {
        self.epoch.set(NEVER);
    }
}

impl LaneEntry<'_> {
    /// The channel and the lane's areas.
    #[inline(always)]
    pub fn channel(&self) -> (&Channel, Lane<'_>) {
        // SAFETY: at the epoch by which it has entered the engine had the channel on its lists. Off
        // the lists, the engine keeps the channel until no operation's thread is inside for it
        // (`Engine::reclaim`), and no thread enters by that epoch any more.
        (unsafe { self.lane.at.as_ref() }, self.lane.areas)
    }
}

impl Drop for LaneEntry<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.in_flight.come_out();
    }
}

impl Drop for OwnLane {
    fn drop(&mut self) {
        if self.epoch.get() != NEVER
            && let Some(channel) = self.channel.upgrade()
        {
            channel.client_lanes.give(self.via.lane);
        }
    }
}
