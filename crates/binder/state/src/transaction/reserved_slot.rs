//! Room that is set aside for the next plain message of a real-time caller's, so that its looper
//! takes it in without the state.
//!
//! It is the state's to give to others at any time: to a message for which there is no room else,
//! or when what the looper goes by is over. A message that lies there then is a buffer like others
//! from there on.
//!
//! **Invariant**: what lies in a slot is for a node that the caller's process holds strongly, as
//! long as the gates on its way have not been shut: whoever shuts them takes over the slots of that
//! peer before the state changes, and the buffer holds the node.

use super::Buffer;
use crate::State;
use crate::buffer::{NoRoom, Offset};
use crate::thread::Waiting;
use crate::transaction::LaneId;
use crate::work::Tid;
use baton_abi::control::{NodeId, ProcessId};
use baton_shm::event_flag::EventFlag;
use baton_shm::reserved_slot::{self, SlotState};
use baton_shm::sync::{AtomicU64, Ordering};
use std::sync::Arc;

/// Most bytes of a message that comes in without the state: what real-time callers send is short,
/// and as many slots as there are loopers dedicated are room that others do not see.
pub const SLOT_BYTES: usize = 4096;

/// One thread's.
#[derive(Debug)]
pub struct ReservedSlot {
    word: reserved_slot::ReservedSlot,
    /// Where.
    pub buffer: Offset,
    tid: Tid,
    /// Whose messages lie there.
    peer: ProcessId,
    /// The node of the one that does.
    node: AtomicU64,
}

impl ReservedSlot {
    /// Its thread: a message for this node is to lie there. False if one does, or the slot has
    /// gone.
    #[inline(always)]
    pub fn begin(&self, node: NodeId) -> bool {
        if !self.word.is_free() {
            return false;
        }
        // Relaxed: released by `begin`, and read by who takes over what has begun.
        self.node.store(node.0, Ordering::Relaxed);
        self.word.begin_fill()
    }

    /// See [`reserved_slot::ReservedSlot::finish_fill`]; if false [`State::lies_there`].
    #[inline(always)]
    pub fn lie(&self) -> bool {
        self.word.finish_fill()
    }

    /// See [`reserved_slot::ReservedSlot::cancel_fill`]; if false [`State::give_plain_room_back`].
    pub fn turn_back(&self) -> bool {
        self.word.cancel_fill()
    }

    /// See [`reserved_slot::ReservedSlot::free`].
    #[inline(always)]
    pub fn end(&self) -> bool {
        self.word.free()
    }

    /// See [`reserved_slot::ReservedSlot::is_taken_over`].
    pub fn is_gone(&self) -> bool {
        self.word.is_taken_over()
    }
}

impl State {
    /// Sets room aside for what the thread takes in of this peer. `None` if there is none to spare.
    pub fn reserve_slot(&mut self, tid: Tid, peer: ProcessId) -> Option<Arc<ReservedSlot>> {
        let buffer = self.buffers.allocate(SLOT_BYTES, false).ok()?;
        let (word, node) = (reserved_slot::ReservedSlot::default(), AtomicU64::new(0));
        let slot = Arc::new(ReservedSlot { word, buffer, tid, peer, node });
        self.slots.push(Arc::clone(&slot));
        Some(slot)
    }

    /// ReservedSlots, all or a peer's, are slots no more. To be called after the gates have been
    /// shut by which messages come to lie there.
    pub fn take_over_slots_of(&mut self, peer: Option<ProcessId>) {
        self.take_over_slots(|slot| peer.is_none_or(|peer| slot.peer == peer));
    }

    /// The same of a thread that is dedicated no more.
    pub(crate) fn take_over_slots_by(&mut self, tid: Tid) {
        self.take_over_slots(|slot| slot.tid == tid);
    }

    /// The same of what lies at this offset.
    pub(super) fn take_over_slot_at(&mut self, buffer: Offset) {
        self.take_over_slots(|slot| slot.buffer == buffer);
    }

    fn take_over_slots(&mut self, concerned: impl Fn(&ReservedSlot) -> bool) {
        let (taken_over, kept) =
            std::mem::take(&mut self.slots).into_iter().partition(|slot| concerned(slot));
        self.slots = kept;
        let taken_over: Vec<Arc<ReservedSlot>> = taken_over;
        taken_over.iter().for_each(|slot| self.take_over_slot(slot));
    }

    fn take_over_slot(&mut self, slot: &ReservedSlot) {
        let was = slot.word.take_over();
        if was == SlotState::Free {
            self.buffers.release(slot.buffer, SLOT_BYTES, false);
            self.made_room = true;
            return;
        }
        let node = NodeId(slot.node.load(Ordering::Relaxed));
        let target = self.nodes.get_mut(node);
        let node = target.is_some().then_some(node);
        target.into_iter().for_each(|target| target.local.strong += 1);
        let delivered = was == SlotState::Filled;
        let buffer = Buffer { node, bytes: SLOT_BYTES, delivered, ..Buffer::default() };
        self.contents.insert(slot.buffer, buffer);
    }

    /// The message whose slot went while it came in lies there now, and is the program's.
    pub fn lies_there(&mut self, buffer: Offset) {
        if let Some(buffer) = self.contents.get_mut(&buffer) {
            buffer.delivered = true;
        }
    }

    /// The program frees what lies there, if it is a slot where something lies.
    pub fn free_slot_at(&self, buffer: Offset) -> bool {
        self.slots.iter().any(|slot| slot.buffer == buffer && slot.end())
    }

    /// Room for a message, of slots if there is none beside them.
    pub(crate) fn allocate(&mut self, bytes: usize, one_way: bool) -> Result<Offset, NoRoom> {
        match self.buffers.allocate(bytes, one_way) {
            Err(NoRoom::Full) if !self.slots.is_empty() => {
                self.take_over_slots_of(None);
                self.buffers.allocate(bytes, one_way)
            }
            allocated => allocated,
        }
    }

    /// What of the receive buffer peers see: allocated bytes, buffers, and the largest range that a
    /// message may find.
    pub fn room(&self) -> (usize, usize, usize) {
        let (used, buffers) = self.buffers.used();
        let slots = self.slots.len();
        let set_aside = slots * SLOT_BYTES;
        // With those that lie beside it, at most.
        (used - set_aside, buffers - slots, self.buffers.largest_free() + set_aside)
    }

    /// The thread serves the lane to which it is dedicated past the state from now on, until it has
    /// [news](EventFlag::raise) or waits for something else. `None` if it has news.
    pub fn go_past(&mut self, tid: Tid, via: LaneId) -> Option<Arc<EventFlag>> {
        if self.dedicated_to(tid) != Some(via) || !self.is_free(tid) {
            return None;
        }
        self.set_waiting(tid, Waiting::Lane(via));
        let thread = self.thread(tid);
        thread.is_past = true;
        thread.flag.reset();
        Some(Arc::clone(&thread.flag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effect;

    const TID: Tid = 1;
    const PEER: ProcessId = ProcessId(9);
    const MAP_BYTES: usize = 4 * SLOT_BYTES;

    struct Stage {
        state: State,
        node: NodeId,
        slot: Arc<ReservedSlot>,
    }

    fn stage() -> Stage {
        let mut state = State::new(ProcessId(1));
        state.buffers.map(MAP_BYTES);
        let node = state.context_manager_node(0x10, 0, 0);
        let slot = state.reserve_slot(TID, PEER).unwrap();
        assert_eq!(state.room(), (0, 0, MAP_BYTES), "of which nobody else knows");
        Stage { state, node, slot }
    }

    impl Stage {
        /// Counts of buffers: the manager's own is another.
        fn strong(&self) -> u32 {
            self.state.nodes.get(self.node).unwrap().local.strong - 1
        }

        fn begin(&self) {
            assert!(self.slot.begin(self.node));
        }

        fn lie(&self) {
            self.begin();
            assert!(self.slot.lie());
        }

        /// BC_FREE_BUFFER, by the general path. False if the program is told that it was wrong.
        fn free(&mut self) -> bool {
            self.state.free(Some(self.slot.buffer), 0);
            let is_complaint = |effect: &Effect| matches!(effect, Effect::Complain(_));
            !self.state.take_effects().iter().any(is_complaint)
        }

        fn assert_empty(&self, name: &str) {
            assert_eq!(self.state.room(), (0, 0, MAP_BYTES), "{name}");
            assert_eq!(self.state.buffers.largest_free(), MAP_BYTES, "{name}");
            assert_eq!(self.strong(), 0, "{name}");
        }
    }

    #[test]
    fn a_berth_is_used_again_and_again() {
        let stage = stage();
        for _ in 0..3 {
            stage.lie();
            assert!(!stage.slot.begin(stage.node), "something lies there");
            assert!(stage.state.free_slot_at(stage.slot.buffer));
            assert!(!stage.state.free_slot_at(stage.slot.buffer), "nothing lies there");
            stage.begin();
            assert!(!stage.state.free_slot_at(stage.slot.buffer), "nobody has been given it");
            assert!(stage.slot.turn_back());
        }
    }

    #[test]
    fn what_lies_in_a_berth_that_goes_is_a_buffer_like_others() {
        type Seize = fn(&mut State);
        let ends: [(&str, Seize); 5] = [
            ("everybody's", |state| state.take_over_slots_of(None)),
            ("its peer's", |state| state.take_over_slots_of(Some(PEER))),
            ("its thread's", |state| state.take_over_slots_by(TID)),
            ("its place's", |state| state.take_over_slot_at(0)),
            ("for room", |state| assert!(state.allocate(MAP_BYTES, false).is_err())),
        ];
        for (name, take_over) in ends {
            let mut lying = stage();
            lying.lie();
            take_over(&mut lying.state);
            assert!(lying.slot.is_gone() && !lying.slot.end(), "{name}");
            assert_eq!((lying.state.room().1, lying.strong()), (1, 1), "{name}");
            assert!(lying.free(), "{name}");
            lying.assert_empty(name);
            assert!(!lying.free(), "{name}: it has been freed");

            let mut filling = stage();
            filling.begin();
            take_over(&mut filling.state);
            assert!(!filling.slot.lie(), "{name}");
            assert!(!filling.free(), "{name}: the program has not got it yet");
            filling.state.lies_there(filling.slot.buffer);
            assert!(filling.free(), "{name}");
            filling.assert_empty(name);

            let mut not_to_come = stage();
            not_to_come.begin();
            take_over(&mut not_to_come.state);
            assert!(!not_to_come.slot.turn_back(), "{name}");
            not_to_come.state.give_plain_room_back(not_to_come.slot.buffer);
            not_to_come.assert_empty(name);
        }
    }

    #[test]
    fn a_berth_where_nothing_lies_is_anybodys_who_needs_it() {
        let mut stage = stage();
        stage.state.take_over_slots_of(Some(ProcessId(8)));
        assert!(stage.state.allocate(MAP_BYTES - SLOT_BYTES, false).is_ok());
        assert!(!stage.slot.is_gone(), "neither another peer nor room beside it");
        assert!(stage.state.allocate(8, true).is_ok() && stage.slot.is_gone());
        assert!(!stage.slot.begin(stage.node));
    }

    #[test]
    fn nothing_comes_in_by_a_berth_once_the_map_is_gone() {
        let mut stage = stage();
        stage.state.unmap();
        assert!(!stage.slot.begin(stage.node));
    }

    /// What the program frees without having got it.
    #[test]
    fn a_berth_where_nothing_lies_is_not_freed() {
        let mut stage = stage();
        assert!(!stage.free());
        stage.assert_empty("it was the program's fault");
    }
}
