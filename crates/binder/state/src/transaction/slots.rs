//! Reserved slots: how they are reserved, taken over and freed.

use crate::buffer::{NoRoom, Offset, Use};
use crate::message::{Buffer, LaneId};
use crate::process::State;
use crate::reserved_slot::{ReservedSlot, SLOT_BYTES};
use crate::thread::Waiting;
use crate::work::Tid;
use baton_abi::control::ProcessId;
use baton_shm::event_flag::EventFlag;
use baton_shm::reserved_slot::SlotState;
use std::sync::Arc;

impl State {
    /// Sets room aside for the messages that the thread takes in of this peer. `None` if there is
    /// no room to spare.
    pub fn reserve_slot(&mut self, tid: Tid, peer: ProcessId) -> Option<Arc<ReservedSlot>> {
        let buffer = self.buffers.allocate(SLOT_BYTES, Use::Call).ok()?;
        let slot = Arc::new(ReservedSlot::new(buffer, tid, peer));
        self.slots.push(Arc::clone(&slot));
        Some(slot)
    }

    /// Takes over all slots, or the slots for one peer. To be called after the routes to these
    /// slots have been revoked.
    pub fn take_over_slots_of(&mut self, peer: Option<ProcessId>) {
        self.take_over_slots(|slot| peer.is_none_or(|peer| slot.peer == peer));
    }

    /// Like [`State::take_over_slots_of`], for other slots.
    pub(crate) fn take_over_slots(&mut self, concerned: impl Fn(&ReservedSlot) -> bool) {
        let taken_over = self.slots.extract_if(.., |slot| concerned(slot));
        for slot in taken_over.collect::<Vec<_>>() {
            self.take_over_slot(&slot);
        }
    }

    fn take_over_slot(&mut self, slot: &ReservedSlot) {
        let (slot_state, node) = slot.take_over();
        if slot_state == SlotState::Free {
            self.buffers.release(slot.buffer, SLOT_BYTES, Use::Call);
            self.made_room = true;
            return;
        }
        let target = self.nodes.get_mut(node);
        let node = target.is_some().then_some(node);
        target.into_iter().for_each(|target| target.local.strong += 1);
        let delivered = slot_state == SlotState::Filled;
        let buffer = Buffer { node, bytes: SLOT_BYTES, delivered, ..Buffer::default() };
        self.contents.insert(slot.buffer, buffer);
    }

    /// Marks a message as complete whose slot was taken over while it was filled: the program has
    /// it.
    pub fn finish_taken_over_slot(&mut self, buffer: Offset) {
        if let Some(buffer) = self.contents.get_mut(&buffer) {
            buffer.delivered = true;
        }
    }

    /// Frees the message in the slot at this offset. False if there is no such slot or message.
    pub fn free_slot_at(&self, buffer: Offset) -> bool {
        self.slots.iter().any(|slot| slot.buffer == buffer && slot.free())
    }

    /// Takes room for a message, of the reserved slots if there is no other.
    pub(crate) fn allocate(&mut self, bytes: usize, usage: Use) -> Result<Offset, NoRoom> {
        match self.buffers.allocate(bytes, usage) {
            Err(NoRoom::Full) if !self.slots.is_empty() => {
                self.take_over_slots_of(None);
                self.buffers.allocate(bytes, usage)
            }
            allocated => allocated,
        }
    }

    /// The part of the receive buffer that peers see: allocated bytes, buffers, and the largest
    /// range that a message may find.
    pub fn room(&self) -> (usize, usize, usize) {
        let (used, buffers) = self.buffers.used();
        let slots = self.slots.len();
        let set_aside = slots * SLOT_BYTES;
        // An upper bound: the slots may lie beside the largest range.
        (used - set_aside, buffers - slots, self.buffers.largest_free() + set_aside)
    }

    /// Lets the thread bypass the state on the lane to which it is dedicated, until it has
    /// [news](EventFlag::raise) or waits for something else. `None` if it has news.
    pub fn begin_bypass(&mut self, tid: Tid, via: LaneId) -> Option<Arc<EventFlag>> {
        if self.dedicated_to(tid) != Some(via) || !self.is_free(tid) {
            return None;
        }
        self.set_waiting(tid, Waiting::Lane(via));
        let thread = self.thread(tid);
        thread.bypasses_state = true;
        thread.flag.reset();
        Some(Arc::clone(&thread.flag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effect;
    use crate::transaction::Freer;
    use baton_abi::control::NodeId;

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
            assert!(self.slot.begin_fill(self.node));
        }

        fn finish_fill(&self) {
            self.begin();
            assert!(self.slot.finish_fill());
        }

        /// BC_FREE_BUFFER, by the general path. False if the program is told that it was wrong.
        fn free(&mut self) -> bool {
            self.state.free(Freer { tid: TID, reads_next: false }, Some(self.slot.buffer), 0);
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
    fn a_slot_is_used_again_and_again() {
        let stage = stage();
        for _ in 0..3 {
            stage.finish_fill();
            assert!(!stage.slot.begin_fill(stage.node), "something lies there");
            assert!(stage.state.free_slot_at(stage.slot.buffer));
            assert!(!stage.state.free_slot_at(stage.slot.buffer), "nothing lies there");
            stage.begin();
            assert!(!stage.state.free_slot_at(stage.slot.buffer), "nobody has been given it");
            assert!(stage.slot.cancel_fill());
        }
    }

    #[test]
    fn a_message_in_a_slot_that_is_taken_over_is_a_buffer_like_others() {
        type TakeOver = fn(&mut State);
        let ends: [(&str, TakeOver); 5] = [
            ("everybody's", |state| state.take_over_slots_of(None)),
            ("its peer's", |state| state.take_over_slots_of(Some(PEER))),
            ("its thread's", |state| state.take_over_slots(|slot| slot.tid == TID)),
            ("its place's", |state| state.take_over_slots(|slot| slot.buffer == 0)),
            ("for room", |state| assert!(state.allocate(MAP_BYTES, Use::Call).is_err())),
        ];
        for (name, take_over) in ends {
            let mut lying = stage();
            lying.finish_fill();
            take_over(&mut lying.state);
            assert!(lying.slot.is_taken_over() && !lying.slot.free(), "{name}");
            assert_eq!((lying.state.room().1, lying.strong()), (1, 1), "{name}");
            assert!(lying.free(), "{name}");
            lying.assert_empty(name);
            assert!(!lying.free(), "{name}: it has been freed");

            let mut filling = stage();
            filling.begin();
            take_over(&mut filling.state);
            assert!(!filling.slot.finish_fill(), "{name}");
            assert!(!filling.free(), "{name}: the program has not got it yet");
            filling.state.finish_taken_over_slot(filling.slot.buffer);
            assert!(filling.free(), "{name}");
            filling.assert_empty(name);

            let mut not_to_come = stage();
            not_to_come.begin();
            take_over(&mut not_to_come.state);
            assert!(!not_to_come.slot.cancel_fill(), "{name}");
            not_to_come.state.give_plain_room_back(not_to_come.slot.buffer);
            not_to_come.assert_empty(name);
        }
    }

    #[test]
    fn an_empty_slot_goes_to_a_message_that_needs_its_room() {
        let mut stage = stage();
        stage.state.take_over_slots_of(Some(ProcessId(8)));
        assert!(stage.state.allocate(MAP_BYTES - SLOT_BYTES, Use::Call).is_ok());
        assert!(!stage.slot.is_taken_over(), "neither another peer nor room beside it");
        assert!(stage.state.allocate(8, Use::OneWay).is_ok() && stage.slot.is_taken_over());
        assert!(!stage.slot.begin_fill(stage.node));
    }

    #[test]
    fn no_message_comes_into_a_slot_once_the_map_is_gone() {
        let mut stage = stage();
        stage.state.unmap();
        assert!(!stage.slot.begin_fill(stage.node));
    }

    /// The program frees a buffer that it has not been given.
    #[test]
    fn an_empty_slot_is_not_freed() {
        let mut stage = stage();
        assert!(!stage.free());
        stage.assert_empty("it was the program's fault");
    }
}
