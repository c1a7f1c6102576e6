//! Room for one message, reserved for one thread. The thread fills and frees the room without a
//! lock, until the keeper, a thread that holds the lock, takes the room over.
//!
//! ```text
//!   FREE --begin_fill--> FILLING --finish_fill--> FILLED --free--> FREE
//!        steps of the slot's thread; other threads may free it under the lock
//!   any  --take_over--> TAKEN_OVER
//!        step of the keeper, once: it owns the message from then on
//! ```
//!
//! Memory order: each step releases the writes to the room before it and acquires those of the
//! previous step. `begin_fill` precedes [`Entry::enter`](crate::revocation::Entry::enter), and
//! `take_over` follows [`Revocation::revoke`](crate::revocation::Revocation::revoke); their fences
//! separate the two. So a thread that begins and enters is either taken over or fails to enter
//! (Dekker).

use crate::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
const FILLING: u32 = 1;
const FILLED: u32 = 2;
const TAKEN_OVER: u32 = 3;

/// The state of one reserved slot.
#[derive(Debug)]
pub struct ReservedSlot {
    word: AtomicU32,
}

/// The state in which the keeper found the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The slot was free.
    Free,
    /// The thread was filling the slot. It learns from [`ReservedSlot::finish_fill`] or
    /// [`ReservedSlot::cancel_fill`] that the keeper has the room.
    Filling,
    /// The slot contained a message.
    Filled,
}

impl Default for ReservedSlot {
    fn default() -> ReservedSlot {
        ReservedSlot { word: AtomicU32::new(FREE) }
    }
}

impl ReservedSlot {
    #[inline(always)]
    fn step(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether the slot is free. Called by its thread. Notes that the thread makes while the slot
    /// is free reach the keeper through `begin_fill`.
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == FREE
    }

    /// Begins to fill the slot. Called by its thread. Returns false if the slot is filled or was
    /// taken over.
    #[inline(always)]
    pub fn begin_fill(&self) -> bool {
        self.step(FREE, FILLING)
    }

    /// Ends filling: the slot contains a message. Returns false if the keeper has taken over the
    /// room with the message.
    #[inline(always)]
    pub fn finish_fill(&self) -> bool {
        self.step(FILLING, FILLED)
    }

    /// Frees a slot whose message is not coming. Returns false if the keeper has taken over the
    /// room.
    pub fn cancel_fill(&self) -> bool {
        self.step(FILLING, FREE)
    }

    /// Frees a slot whose message is no longer needed. Returns false if the slot contains none.
    #[inline(always)]
    pub fn free(&self) -> bool {
        self.step(FILLED, FREE)
    }

    /// Whether the keeper has taken over the slot.
    pub fn is_taken_over(&self) -> bool {
        self.word.load(Ordering::Acquire) == TAKEN_OVER
    }

    /// Takes over the slot. Called by the keeper.
    ///
    /// # Panics
    /// Panics if the slot was taken over before.
    pub fn take_over(&self) -> SlotState {
        match self.word.swap(TAKEN_OVER, Ordering::SeqCst) {
            FREE => SlotState::Free,
            FILLING => SlotState::Filling,
            FILLED => SlotState::Filled,
            _ => panic!("taken over twice"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Every step of the slot's thread from every state: the state after it, if it is taken.
    #[test]
    fn each_step_leads_from_its_state_only() {
        type Step = fn(&ReservedSlot) -> bool;
        let steps: [(&str, Step, u32, u32); 4] = [
            ("begin", ReservedSlot::begin_fill, FREE, FILLING),
            ("finish", ReservedSlot::finish_fill, FILLING, FILLED),
            ("cancel", ReservedSlot::cancel_fill, FILLING, FREE),
            ("free", ReservedSlot::free, FILLED, FREE),
        ];
        for (name, step, from, to) in steps {
            for before in [FREE, FILLING, FILLED, TAKEN_OVER] {
                let slot = ReservedSlot { word: AtomicU32::new(before) };
                assert_eq!(step(&slot), before == from, "{name} from {before}");
                let after = if before == from { to } else { before };
                assert_eq!(slot.word.load(Ordering::Relaxed), after, "{name} from {before}");
            }
        }
    }

    #[test]
    fn the_keeper_takes_a_slot_over_in_any_state_and_learns_the_state() {
        for (before, found) in
            [(FREE, SlotState::Free), (FILLING, SlotState::Filling), (FILLED, SlotState::Filled)]
        {
            let slot = ReservedSlot { word: AtomicU32::new(before) };
            assert_eq!((slot.is_free(), slot.is_taken_over()), (before == FREE, false));
            assert_eq!(slot.take_over(), found);
            assert_eq!((slot.is_free(), slot.is_taken_over()), (false, true));
        }
    }

    #[test]
    #[should_panic(expected = "taken over twice")]
    fn a_slot_is_taken_over_once() {
        let slot = ReservedSlot::default();
        slot.take_over();
        slot.take_over();
    }
}
