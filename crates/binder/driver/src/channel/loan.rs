//! Loans: lanes that are taken before their call is made, so that the program writes the payload in
//! place.
//!
//! The data's offset depends on the length of the chain before it, and so on the transactions that
//! the thread serves. If the call has another chain or another lane than the loan, the data is
//! copied.

use super::{Channel, Lane};
use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::lane::{ChainEntry, Message};
use baton_shm::client_lanes::Progress;
use baton_shm::mapping::View;
use baton_state::transaction::LaneId;
use std::cell::Cell;
use std::sync::Arc;

/// A lane on which no call is made yet. Dropping it gives the lane back.
pub struct LoanedLane {
    channel: Arc<Channel>,
    lane: usize,
    /// Offset of the data in the area.
    data_at: usize,
    bytes: usize,
    /// No call has taken it over.
    is_held: Cell<bool>,
}

impl LoanedLane {
    /// Loans a lane that has just been taken, for a call with so many callers in its chain and so
    /// many bytes of data.
    pub(crate) fn new(
        channel: Arc<Channel>,
        lane: usize,
        chain: usize,
        bytes: usize,
    ) -> LoanedLane {
        // A plain call expects this progress.
        channel.client_lanes.set_progress(lane, Progress::Departed);
        let data_at = size_of::<Message>() + chain * size_of::<ChainEntry>();
        LoanedLane { channel, lane, data_at, bytes, is_held: Cell::new(true) }
    }

    /// Bytes of data.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The lane's areas.
    pub fn areas(&self) -> Lane<'_> {
        self.channel.lane(self.lane).expect("it was mapped when it was taken")
    }

    /// The area, and the offset of the data in it.
    pub fn place(&self) -> (View<'_>, usize) {
        (self.areas().outgoing(), self.data_at)
    }

    /// Gives the lane to a call to this process, if the lane leads there. The call then gives the
    /// lane back.
    pub fn take(&self, peer: ProcessId) -> Option<(Arc<Channel>, usize)> {
        let leads_there = self.channel.peer == peer && !self.channel.ends().dead;
        let taken = leads_there && self.is_held.replace(false);
        taken.then(|| (Arc::clone(&self.channel), self.lane))
    }

    /// The lane, if it is one of this channel, and its data is laid out for a call with a chain of
    /// one.
    pub fn plain_lane(&self, channel: ChannelId) -> Option<LaneId> {
        let plain = self.data_at == size_of::<Message>() + size_of::<ChainEntry>();
        (plain && self.channel.id == channel).then(|| self.channel.via(self.lane))
    }

    /// The lane is no longer the loan's to give back.
    pub fn leave(&self) {
        self.is_held.set(false);
    }

    /// Copies the data to this place of an area, unless it lies there already.
    pub fn copy_to(&self, map: View<'_>, at: usize) {
        let (from, from_at) = self.place();
        if from != map || from_at != at {
            View::copy(from, from_at, map, at, self.bytes);
        }
    }
}

impl Drop for LoanedLane {
    fn drop(&mut self) {
        if self.is_held.get() {
            self.channel.client_lanes.give(self.lane as u32);
        }
    }
}
