//! References that a collection has cleared, until a thread puts them into their queues.

use crate::object::Ref;
use crate::parker::Parker;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// References on their way into queues. They are roots.
#[derive(Debug, Default)]
pub struct Pending {
    references: Mutex<VecDeque<Ref>>,
    /// Of the thread that waits for some
    waiting: Mutex<Option<Arc<Parker>>>,
}

impl Pending {
    /// Adds what a collection found.
    pub fn add(&self, references: Vec<Ref>) {
        self.references.lock().expect("no holder panics").extend(references);
        if let Some(parker) = &*self.waiting.lock().expect("no holder panics") {
            parker.notify();
        }
    }

    /// Calls `with` for each.
    pub fn each(&self, with: impl FnMut(Ref)) {
        self.references.lock().expect("no holder panics").iter().copied().for_each(with);
    }

    /// Waits until there are some, or somebody interrupts the calling thread, whose parker this is.
    pub fn wait(&self, parker: &Arc<Parker>) {
        *self.waiting.lock().expect("no holder panics") = Some(Arc::clone(parker));
        parker.prepare();
        if self.is_empty() {
            parker.park(None);
        }
    }

    /// The first, which stays until [`Pending::remove_first`].
    pub fn first(&self) -> Option<Ref> {
        self.references.lock().expect("no holder panics").front().copied()
    }

    /// Removes the first, if there is one.
    pub fn remove_first(&self) {
        self.references.lock().expect("no holder panics").pop_front();
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.references.lock().expect("no holder panics").is_empty()
    }
}
