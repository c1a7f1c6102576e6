//! Send queues: the threads that wait until a receiver takes their message. Each receiver has one
//! queue. The five kinds differ in the cost of their order (Greenaway 2007, sections 2.4.4 and
//! 3.4).
//!
//! | kind | next is | insert | take |
//! |---|---|---|---|
//! | [`Fifo`] | the oldest | O(1) | O(1) |
//! | [`Scanned`] | the highest | O(1) | O(n) |
//! | [`Ordered`] | the highest | O(n) | O(1) |
//! | [`Heap`] | the highest | O(log n) | O(log n) |
//! | [`Bitmap`] | the highest | O(1) | O(1) |
//!
//! Of threads with equal priorities, all kinds serve the oldest first.
//!
//! **Invariant**: a thread is in at most one send queue, so all queues share one table of links.

mod bitmap;
mod fifo;
mod heap;
mod ordered;
mod scanned;

pub use bitmap::Bitmap;
pub use fifo::Fifo;
pub use heap::Heap;
pub use ordered::Ordered;
pub use scanned::Scanned;

use crate::list::{Links, Slot};

/// The data of waiting threads that all queues share.
#[derive(Clone, Debug)]
pub struct Waiting {
    links: Links,
    priorities: Box<[u8]>,
    /// Positions in heaps.
    positions: Box<[u16]>,
    n_arrived: u64,
}

/// The queue of one receiver.
pub trait SendQueue: Default + Clone + 'static {
    /// Inserts a thread, whose priority is in `waiting`.
    fn insert(&mut self, waiting: &mut Waiting, slot: Slot);
    /// Removes a thread that waits in this queue.
    fn remove(&mut self, waiting: &mut Waiting, slot: Slot);
    /// The thread that is served next, or `NONE`.
    fn first(&self, waiting: &Waiting) -> Slot;

    /// Changes the priority of a thread that waits in this queue. It becomes the youngest of that
    /// priority.
    fn change_priority(&mut self, waiting: &mut Waiting, slot: Slot, priority: u8) {
        self.remove(waiting, slot);
        waiting.priorities[slot.index()] = priority;
        self.insert(waiting, slot);
    }
}

/// The send queues of all threads of a kernel.
#[derive(Clone, Debug)]
pub struct SendQueues<Q> {
    queues: Box<[Q]>,
    waiting: Waiting,
}

impl<Q: SendQueue> SendQueues<Q> {
    /// `n_slots`: the threads and proxies that may wait; the first `n_queues` of them have queues.
    pub(crate) fn new(n_queues: usize, n_slots: usize) -> SendQueues<Q> {
        let waiting = Waiting {
            links: Links::new(n_slots),
            priorities: vec![0; n_slots].into(),
            positions: vec![0; n_slots].into(),
            n_arrived: 0,
        };
        SendQueues { queues: vec![Q::default(); n_queues].into(), waiting }
    }

    pub(crate) fn insert(&mut self, receiver: Slot, sender: Slot, priority: u8) {
        self.waiting.priorities[sender.index()] = priority;
        self.queues[receiver.index()].insert(&mut self.waiting, sender);
    }

    pub(crate) fn remove(&mut self, receiver: Slot, sender: Slot) {
        self.queues[receiver.index()].remove(&mut self.waiting, sender);
    }

    pub(crate) fn first(&self, receiver: Slot) -> Slot {
        self.queues[receiver.index()].first(&self.waiting)
    }

    pub(crate) fn change_priority(&mut self, receiver: Slot, sender: Slot, priority: u8) {
        self.queues[receiver.index()].change_priority(&mut self.waiting, sender, priority);
    }

    /// The priority of the thread that is served next, or -1.
    pub(crate) fn highest(&self, receiver: Slot) -> i32 {
        match self.first(receiver) {
            Slot::NONE => -1,
            first => i32::from(self.waiting.priorities[first.index()]),
        }
    }
}
