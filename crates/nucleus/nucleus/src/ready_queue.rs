//! The ready queue: a list for each of 256 priorities, and a bitmap of the lists that are not empty
//! (Greenaway 2007, figures 2.3 and 2.4).
//!
//! ```text
//!  bitmap  255 . . 7 . . 3 . 0
//!                  |     |
//!  lists           A-B   C        A is next, and goes behind B when its timeslice ends
//! ```

use crate::bitmap::PriorityBitmap;
use crate::list::{Links, List, Slot};

/// The ready queue of a kernel.
#[derive(Clone, Debug)]
pub struct ReadyQueue {
    bitmap: PriorityBitmap,
    lists: Box<[List; 256]>,
    links: Links,
}

impl ReadyQueue {
    pub(crate) fn new(n_threads: usize) -> ReadyQueue {
        ReadyQueue {
            bitmap: PriorityBitmap::default(),
            lists: Box::new([List::EMPTY; 256]),
            links: Links::new(n_threads),
        }
    }

    #[inline]
    pub(crate) fn push_back(&mut self, slot: Slot, priority: u8) {
        self.lists[usize::from(priority)].push_back(&mut self.links, slot);
        self.bitmap.insert(priority);
    }

    #[inline]
    pub(crate) fn push_front(&mut self, slot: Slot, priority: u8) {
        self.lists[usize::from(priority)].push_front(&mut self.links, slot);
        self.bitmap.insert(priority);
    }

    /// Removes a thread that was inserted with this priority.
    #[inline]
    pub(crate) fn remove(&mut self, slot: Slot, priority: u8) {
        let list = &mut self.lists[usize::from(priority)];
        list.remove(&mut self.links, slot);
        if list.is_empty() {
            self.bitmap.remove(priority);
        }
    }

    /// The highest priority with threads, or -1.
    #[inline]
    pub(crate) fn highest(&self) -> i32 {
        self.bitmap.highest()
    }

    /// The first thread of the highest priority, or `NONE`.
    #[inline]
    pub(crate) fn first(&self) -> Slot {
        usize::try_from(self.bitmap.highest())
            .map_or(Slot::NONE, |priority| self.lists[priority & 255].front())
    }
}
