//! Lanes that are taken before their call is made, so that its bytes are written where they go.
//!
//! Where the data begins depends on the chain before it, and so on what the thread serves. A loan
//! that was made for another chain than that of its call, or for another lane, is copied to where
//! the call has to have it.

use super::client_lanes::Progress;
use super::{Channel, Lane};
use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::lane::{ChainEntry, Message};
use baton_shm::mapping::View;
use baton_state::transaction::LaneId;
use std::cell::Cell;
use std::sync::Arc;

/// A lane that no call is made on yet. Dropped, it goes back.
pub struct LoanedLane {
    channel: Arc<Channel>,
    lane: usize,
    /// Where the data begins in the area.
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
        // The plain call finds it so.
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

    /// The map, and where in it the data begins.
    pub fn place(&self) -> (View<'_>, usize) {
        (self.areas().outgoing(), self.data_at)
    }

    /// Gives the lane to a call to this process, if it leads there; then it is the call's to give
    /// back.
    pub fn take(&self, peer: ProcessId) -> Option<(Arc<Channel>, usize)> {
        let leads_there = self.channel.peer == peer && !self.channel.ends().dead;
        let taken = leads_there && self.is_held.replace(false);
        taken.then(|| (Arc::clone(&self.channel), self.lane))
    }

    /// The lane, if it is one of this channel, and written for a call with no others above it.
    pub fn plain_lane(&self, channel: ChannelId) -> Option<LaneId> {
        let plain = self.data_at == size_of::<Message>() + size_of::<ChainEntry>();
        (plain && self.channel.id == channel).then(|| self.channel.via(self.lane))
    }

    /// The lane is no longer the loan's to give back.
    pub fn leave(&self) {
        self.is_held.set(false);
    }

    /// Brings the data to where a call has to have it: for most, where it is.
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
