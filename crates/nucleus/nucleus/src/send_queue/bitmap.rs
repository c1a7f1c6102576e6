//! A list for each priority and a bitmap, as in the ready queue: every operation takes constant
//! time, for half a kilobyte per receiver.

use super::{SendQueue, Waiting};
use crate::bitmap::PriorityBitmap;
use crate::list::{List, Slot};

/// A queue with a list for each priority.
#[derive(Clone, Debug)]
pub struct Bitmap {
    bitmap: PriorityBitmap,
    lists: [List; 256],
}

impl Default for Bitmap {
    fn default() -> Self {
        Bitmap { bitmap: PriorityBitmap::default(), lists: [List::EMPTY; 256] }
    }
}

impl SendQueue for Bitmap {
    fn insert(&mut self, waiting: &mut Waiting, slot: Slot) {
        let priority = waiting.priorities[slot.index()];
        self.lists[usize::from(priority)].push_back(&mut waiting.links, slot);
        self.bitmap.insert(priority);
    }

    fn remove(&mut self, waiting: &mut Waiting, slot: Slot) {
        let priority = waiting.priorities[slot.index()];
        let list = &mut self.lists[usize::from(priority)];
        list.remove(&mut waiting.links, slot);
        if list.is_empty() {
            self.bitmap.remove(priority);
        }
    }

    fn first(&self, _waiting: &Waiting) -> Slot {
        usize::try_from(self.bitmap.highest())
            .map_or(Slot::NONE, |priority| self.lists[priority & 255].front())
    }
}
