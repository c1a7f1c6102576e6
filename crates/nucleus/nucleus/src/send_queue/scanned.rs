//! A list in order of arrival, which the receiver searches from end to end (section 3.4.1).

use super::{SendQueue, Waiting};
use crate::list::{List, Slot};

/// A queue that is searched for its highest thread.
#[derive(Clone, Copy, Debug)]
pub struct Scanned(List);

impl Default for Scanned {
    fn default() -> Self {
        Scanned(List::EMPTY)
    }
}

impl SendQueue for Scanned {
    fn insert(&mut self, waiting: &mut Waiting, slot: Slot) {
        self.0.push_back(&mut waiting.links, slot);
    }

    fn remove(&mut self, waiting: &mut Waiting, slot: Slot) {
        self.0.remove(&mut waiting.links, slot);
    }

    fn first(&self, waiting: &Waiting) -> Slot {
        let mut best = self.0.front();
        for slot in self.0.iter(&waiting.links) {
            if waiting.priorities[slot.index()] > waiting.priorities[best.index()] {
                best = slot;
            }
        }
        best
    }
}
