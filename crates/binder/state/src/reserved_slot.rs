//! Reserved slots: room that is set aside for the next plain message of a real-time caller, so that
//! its looper takes it in without the state.
//!
//! The state may take a slot over at any time: for a message that finds no other room, or when the
//! looper's cached validation is revoked. A message in such a slot becomes an ordinary buffer.
//!
//! **Invariant**: a message in a slot is for a node that the caller's process holds strongly, as
//! long as its route has not been revoked: a thread that revokes the route takes over the slots of
//! that peer before the state changes, and the buffer then holds the node.

use crate::buffer::Offset;
use crate::work::Tid;
use baton_abi::control::{NodeId, ProcessId};
use baton_shm::reserved_slot::{self, SlotState};
use baton_shm::sync::{AtomicU64, Ordering};

/// Most bytes of a message that comes in without the state. Real-time callers send short messages.
/// Each dedicated looper has one slot, whose room no other sender can use.
pub const SLOT_BYTES: usize = 4096;

/// The slot of one thread.
#[derive(Debug)]
pub struct ReservedSlot {
    word: reserved_slot::ReservedSlot,
    /// Its place in the mapping.
    pub buffer: Offset,
    pub(crate) tid: Tid,
    /// The sender of its messages.
    pub(crate) peer: ProcessId,
    /// The node of the message in it.
    node: AtomicU64,
}

impl ReservedSlot {
    /// A slot in this buffer, for messages that the thread takes in of the peer's.
    pub(crate) fn new(buffer: Offset, tid: Tid, peer: ProcessId) -> ReservedSlot {
        let (word, node) = (reserved_slot::ReservedSlot::default(), AtomicU64::new(0));
        ReservedSlot { word, buffer, tid, peer, node }
    }

    /// Called by the slot's thread: begins to fill the slot with a message for this node. False if
    /// a message lies there, or the slot was taken over.
    #[inline(always)]
    pub fn begin_fill(&self, node: NodeId) -> bool {
        if !self.word.is_free() {
            return false;
        }
        // Relaxed: the word's change releases it to the thread that takes the slot over.
        self.node.store(node.0, Ordering::Relaxed);
        self.word.begin_fill()
    }

    /// See [`reserved_slot::ReservedSlot::finish_fill`]; if false
    /// [`State::finish_taken_over_slot`](crate::State::finish_taken_over_slot).
    #[inline(always)]
    pub fn finish_fill(&self) -> bool {
        self.word.finish_fill()
    }

    /// See [`reserved_slot::ReservedSlot::cancel_fill`]; if false
    /// [`State::give_plain_room_back`](crate::State).
    pub fn cancel_fill(&self) -> bool {
        self.word.cancel_fill()
    }

    /// See [`reserved_slot::ReservedSlot::free`].
    #[inline(always)]
    pub fn free(&self) -> bool {
        self.word.free()
    }

    /// See [`reserved_slot::ReservedSlot::is_taken_over`].
    pub fn is_taken_over(&self) -> bool {
        self.word.is_taken_over()
    }

    /// Takes the slot away from its thread: how far a message had come, and its node.
    pub(crate) fn take_over(&self) -> (SlotState, NodeId) {
        let state = self.word.take_over();
        // Relaxed: the swap above acquires the store of `begin_fill`.
        (state, NodeId(self.node.load(Ordering::Relaxed)))
    }
}
