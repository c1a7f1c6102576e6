//! Order of arrival, as in L4. A thread may wait behind threads of lower priority.

use super::{SendQueue, Waiting};
use crate::list::{List, Slot};

/// A queue in order of arrival.
#[derive(Clone, Copy, Debug)]
pub struct Fifo(List);

impl Default for Fifo {
    fn default() -> Self {
        Fifo(List::EMPTY)
    }
}

impl SendQueue for Fifo {
    fn insert(&mut self, waiting: &mut Waiting, slot: Slot) {
        self.0.push_back(&mut waiting.links, slot);
    }

    fn remove(&mut self, waiting: &mut Waiting, slot: Slot) {
        self.0.remove(&mut waiting.links, slot);
    }

    fn first(&self, _waiting: &Waiting) -> Slot {
        self.0.front()
    }

    fn change_priority(&mut self, waiting: &mut Waiting, slot: Slot, priority: u8) {
        waiting.priorities[slot.index()] = priority;
    }
}
