//! A list in order of priority, in which an arriving thread searches for its position (section
//! 3.4.2).

use super::{SendQueue, Waiting};
use crate::list::{List, Slot};

/// A queue in order of priority.
#[derive(Clone, Copy, Debug)]
pub struct Ordered(List);

impl Default for Ordered {
    fn default() -> Self {
        Ordered(List::EMPTY)
    }
}

impl SendQueue for Ordered {
    fn insert(&mut self, waiting: &mut Waiting, slot: Slot) {
        let priority = waiting.priorities[slot.index()];
        let is_lower = |other: &Slot| waiting.priorities[other.index()] < priority;
        let lower = self.0.iter(&waiting.links).find(is_lower);
        match lower {
            None => self.0.push_back(&mut waiting.links, slot),
            Some(first) if first == self.0.front() => self.0.push_front(&mut waiting.links, slot),
            Some(next) => self.0.insert_before(&mut waiting.links, slot, next),
        }
    }

    fn remove(&mut self, waiting: &mut Waiting, slot: Slot) {
        self.0.remove(&mut waiting.links, slot);
    }

    fn first(&self, _waiting: &Waiting) -> Slot {
        self.0.front()
    }
}
