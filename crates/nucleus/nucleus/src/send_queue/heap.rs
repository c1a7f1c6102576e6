//! A binary heap by priority, and by arrival among equals (section 3.4.3).

use super::{SendQueue, Waiting};
use crate::heap::IndexedHeap;
use crate::list::Slot;
use std::cmp::Reverse;

/// A queue that is a heap.
#[derive(Clone, Debug, Default)]
pub struct Heap(IndexedHeap<(Reverse<u8>, u64)>);

impl SendQueue for Heap {
    fn insert(&mut self, waiting: &mut Waiting, slot: Slot) {
        waiting.n_arrived += 1;
        let key = (Reverse(waiting.priorities[slot.index()]), waiting.n_arrived);
        self.0.insert(&mut waiting.positions, key, slot);
    }

    fn remove(&mut self, waiting: &mut Waiting, slot: Slot) {
        self.0.remove(&mut waiting.positions, slot);
    }

    fn first(&self, _waiting: &Waiting) -> Slot {
        self.0.first().map_or(Slot::NONE, |(_, slot)| slot)
    }
}
