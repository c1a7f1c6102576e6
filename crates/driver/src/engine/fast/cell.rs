//! What a thread does on the fast path, where whoever holds the state's lock can see it.

use crate::state::thread::Calling;
use crate::state::transaction::{Serving, Via};
use crate::state::work::Tid;
use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::lane::ChainEntry;
use baton_shm::gate::{Gate, Pass};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const CALLING: u32 = 1;
const SERVING: u32 = 2;

/// One thread's. Only that thread writes it.
#[derive(Debug)]
pub(super) struct Cell {
    pub tid: Tid,
    /// Its own slot of the front page, if there was one left.
    pub slot: Option<u8>,
    pass: Pass,
    channel: AtomicU64,
    lane: AtomicU32,
    peer: AtomicU64,
    /// Calling: by which handle. Serving: whether the answer may carry descriptors.
    handle: AtomicU32,
    /// Calling: what the call gives out. Serving: what the caller gave out.
    token: AtomicU64,
}

/// What was under way.
#[derive(Debug)]
pub(super) enum Errand {
    Calling(Calling),
    Serving(Serving),
}

impl Cell {
    pub fn new(tid: Tid, slot: Option<u8>) -> Cell {
        Cell {
            tid,
            slot,
            pass: Pass::default(),
            channel: AtomicU64::new(0),
            lane: AtomicU32::new(0),
            peer: AtomicU64::new(0),
            handle: AtomicU32::new(0),
            token: AtomicU64::new(0),
        }
    }

    fn note(&self, via: Via, peer: ProcessId, handle: u32, token: u64) {
        // Relaxed: `Pass::enter` releases them.
        self.channel.store(via.channel.0, Ordering::Relaxed);
        self.lane.store(via.lane, Ordering::Relaxed);
        self.peer.store(peer.0, Ordering::Relaxed);
        self.handle.store(handle, Ordering::Relaxed);
        self.token.store(token, Ordering::Relaxed);
    }

    /// Begins a call. False if the gate has been shut since the epoch: see [`Cell::leave`].
    pub fn begin_call(
        &self,
        (gate, epoch): (&Gate, u64),
        (via, peer): (Via, ProcessId),
        handle: u32,
        token: u64,
    ) -> bool {
        self.note(via, peer, handle, token);
        self.pass.enter(gate, epoch, CALLING)
    }

    /// Begins to serve. False if the gate has been shut since the epoch: see [`Cell::leave`].
    pub fn begin_service(
        &self,
        (gate, epoch): (&Gate, u64),
        (via, peer): (Via, ProcessId),
        accepts_fds: bool,
        caller: u64,
    ) -> bool {
        self.note(via, peer, u32::from(accepts_fds), caller);
        self.pass.enter(gate, epoch, SERVING)
    }

    /// It is over, or has not begun. False if the state has it.
    pub fn leave(&self) -> bool {
        self.pass.leave()
    }

    /// With the state's lock held: what is under way, which is the state's from now on.
    pub fn seize(&self) -> Option<Errand> {
        let errand = self.pass.seize()?;
        let lane = self.lane.load(Ordering::Relaxed);
        let via = Via { channel: ChannelId(self.channel.load(Ordering::Relaxed)), lane };
        let peer = ProcessId(self.peer.load(Ordering::Relaxed));
        let (handle, token) =
            (self.handle.load(Ordering::Relaxed), self.token.load(Ordering::Relaxed));
        Some(match errand {
            CALLING => {
                let (owns_lane, dead) = (true, false);
                Errand::Calling(Calling { via, peer, handle: Some(handle), token, owns_lane, dead })
            }
            _ => {
                let chain = vec![ChainEntry { process: peer.0, token }];
                Errand::Serving(Serving { via, peer, accepts_fds: handle != 0, chain })
            }
        })
    }
}
