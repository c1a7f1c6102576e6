//! A lane that is a thread's as long as it has a route by it.
//!
//! It keeps no channel: one whose peer is gone must not stay for a thread that calls no more. Nor does a call count itself
//! among those who do, which would be two atomic operations. It is inside the gate meanwhile, and the channel goes
//! when nobody is:
//!
//! ```text
//!   caller                                   engine
//!   enters by the epoch of its route         the channel is on no list      (under the state's lock)
//!   uses the channel                         shuts a gate on the way
//!   comes out                                control thread: is anybody inside who uses it?
//!                                              yes: asks again later        no: lets it go
//! ```

use super::PLACED_EVERY;
use super::cell::Inside;
use crate::channel::{Channel, Lane, Progress};
use crate::engine::Engine;
use crate::state::transaction::Via;
use baton_abi::control::ProcessId;
use baton_shm::gate::{Gate, Way};
use std::cell::Cell;
use std::sync::{Arc, Weak};

/// The lane.
pub(super) struct OwnLane {
    channel: Weak<Channel>,
    /// The channel's.
    gate: Arc<Gate>,
    via: Via,
    /// Its areas, of the channel's memory.
    areas: Lane<'static>,
    /// Who is at the other end.
    pub peer: ProcessId,
    /// When the engine had the channel.
    epoch: u64,
    is_ours: Cell<bool>,
    calls: Cell<u32>,
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
        let (is_ours, calls) = (Cell::new(true), Cell::new(0));
        let (channel, gate) = (Arc::downgrade(channel), Arc::clone(&channel.gate));
        Some(OwnLane { channel, gate, via, areas, peer, epoch, is_ours, calls })
    }

    /// Which it is.
    pub fn via(&self) -> Via {
        self.via
    }

    /// What stands on a plain call's way by it.
    #[inline(always)]
    pub fn way<'a>(&'a self, engine: &'a Engine) -> Way<'a> {
        Way(&engine.fast.gate, &self.gate)
    }

    /// Whether it is one of this channel's.
    pub fn is_on(&self, channel: &Channel) -> bool {
        std::ptr::eq(self.channel.as_ptr(), channel)
    }

    /// It is the state's, or the next thread's.
    pub fn is_no_more(&self) {
        self.is_ours.set(false);
    }

    /// Its channel, and its areas.
    ///
    /// # Panics
    /// If the thread has entered for another channel, or by another epoch.
    #[inline(always)]
    pub fn channel<'a>(&'a self, inside: &'a Inside<'_>) -> (&'a Channel, Lane<'a>) {
        assert!(inside.is_by(self.epoch, self.via.channel), "another lane's channel");
        // SAFETY: at that epoch the engine had the channel on its lists. Off them it keeps it until no cell says that
        // its thread is inside for this channel (`Engine::bury`), and nobody enters by that epoch any more.
        let channel = unsafe { &*self.channel.as_ptr() };
        (channel, self.areas)
    }

    /// Whether it is time to say where the thread runs.
    #[inline(always)]
    pub fn is_to_be_placed(&self) -> bool {
        let calls = self.calls.get();
        self.calls.set(calls.wrapping_add(1));
        calls.is_multiple_of(PLACED_EVERY)
    }
}

impl Drop for OwnLane {
    fn drop(&mut self) {
        if self.is_ours.get()
            && let Some(channel) = self.channel.upgrade()
        {
            channel.give_lane(self.via.lane);
        }
    }
}
