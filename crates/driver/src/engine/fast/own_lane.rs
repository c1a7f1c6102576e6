//! A lane that is a thread's as long as it has a route by it.
//!
//! It keeps no channel: one whose peer is gone must not stay for a thread that calls no more. Nor
//! does a call count itself among those who do, which would be two atomic operations. It is inside
//! an entry meanwhile, and the channel goes when nobody is:
//!
//! ```text
//!   caller                                   engine
//!   enters by the epoch of its route         the channel is on no list  (under the state's lock)
//!   uses the channel                         revokes entries on the way
//!   comes out                                control thread: is anybody inside who uses it?
//!                                              yes: asks again later        no: lets it go
//! ```

use super::in_flight;
use crate::channel::{Channel, Lane, Progress};
use crate::engine::Engine;
use crate::engine::wait_policy::WaitPolicy;
use baton_abi::control::ProcessId;
use baton_shm::revocation::{Revocation, Revocations};
use baton_state::transaction::LaneId;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// No epoch that a revocation comes to.
const NEVER: u64 = u64::MAX;

/// The lane.
pub(super) struct OwnLane {
    channel: Weak<Channel>,
    /// Where that is, while there is one.
    at: NonNull<Channel>,
    /// The channel's.
    revocation: Arc<Revocation>,
    via: LaneId,
    /// Its areas, of the channel's memory.
    areas: Lane<'static>,
    /// Who is at the other end.
    pub peer: ProcessId,
    /// When the engine had the channel; [`NEVER`] if the lane is the thread's no more.
    epoch: Cell<u64>,
    /// How the thread's waits on it go.
    pub policy: WaitPolicy,
}

/// The thread may use the lane's channel as long as this is there.
pub(super) struct Inside<'a> {
    in_flight: &'a in_flight::InFlight,
    lane: &'a OwnLane,
}

impl OwnLane {
    /// Takes it, if nobody uses it.
    pub fn take(channel: &Arc<Channel>, number: u32, epoch: u64) -> Option<OwnLane> {
        if !channel.take_this_lane(number) {
            return None;
        }
        // A call finds it so, and leaves it so.
        channel.set_progress(number as usize, Progress::Departed);
        let (via, peer) = (channel.via(number as usize), channel.peer);
        let areas = channel.lane(number as usize).ok()?;
        // SAFETY: lent by `channel` only, which gives the channel too.
        let areas = unsafe { std::mem::transmute::<Lane<'_>, Lane<'static>>(areas) };
        let (epoch, policy) = (Cell::new(epoch), WaitPolicy::new());
        let (at, revocation) = (NonNull::from(&**channel), Arc::clone(&channel.revocation));
        let channel = Arc::downgrade(channel);
        Some(OwnLane { channel, at, revocation, via, areas, peer, epoch, policy })
    }

    /// Which it is.
    pub fn via(&self) -> LaneId {
        self.via
    }

    /// What stands on a plain call's way by it.
    #[inline(always)]
    fn way<'a>(&'a self, engine: &'a Engine) -> Revocations<'a> {
        Revocations(&engine.fast.revocation, &self.revocation)
    }

    /// Whether something has been shut on its way since it was taken: nobody can enter by it any
    /// more.
    pub fn is_stale(&self, engine: &Engine) -> bool {
        self.way(engine).epoch() != self.epoch.get()
    }

    /// Begins a call on one of its channel's lanes. `None` if it is stale: see
    /// [`in_flight::InFlight::leave`].
    #[inline(always)]
    pub fn enter<'a>(
        &'a self,
        engine: &Engine,
        in_flight: &'a in_flight::InFlight,
        number: u32,
        (handle, token): (u32, u64),
    ) -> Option<Inside<'a>> {
        in_flight.come_to(LaneId { channel: self.via.channel, lane: number }, self.peer);
        let entered = in_flight.begin_call((self.way(engine), self.epoch.get()), handle, token);
        // Not `then_some`: one that is dropped comes out, and what a keeper has made of the call is
        // lost.
        entered.then(|| Inside { in_flight, lane: self })
    }

    /// Whether it is one of this channel's.
    pub fn is_on(&self, channel: &Channel) -> bool {
        std::ptr::eq(self.at.as_ptr(), channel)
    }

    /// It is the state's, or the next thread's.
    pub fn is_no_more(&self) {
        self.epoch.set(NEVER);
    }
}

impl Inside<'_> {
    /// The channel, and the lane's areas.
    #[inline(always)]
    pub fn channel(&self) -> (&Channel, Lane<'_>) {
        // SAFETY: at the epoch by which it has entered the engine had the channel on its lists. Off
        // them it keeps it until no in_flight says that its thread is inside for this channel
        // (`Engine::reclaim`), and nobody enters by that epoch any more.
        (unsafe { self.lane.at.as_ref() }, self.lane.areas)
    }

    /// Who is at the other end.
    pub fn peer(&self) -> ProcessId {
        self.lane.peer
    }

    /// The call is over. False if the state has it.
    #[inline(always)]
    pub fn end_call(&self) -> bool {
        self.in_flight.end_call()
    }
}

impl Drop for Inside<'_> {
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
            channel.give_lane(self.via.lane);
        }
    }
}
