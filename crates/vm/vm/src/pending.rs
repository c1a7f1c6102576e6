//! References that a collection has cleared, until a thread puts them into their queues.

use crate::object::Ref;
use std::sync::{Condvar, Mutex};

/// References on their way into queues. They are roots.
#[derive(Debug, Default)]
pub struct Pending {
    references: Mutex<Vec<Ref>>,
    changed: Condvar,
}

impl Pending {
    /// Adds what a collection found.
    pub fn add(&self, references: Vec<Ref>) {
        self.references.lock().expect("no holder panics").extend(references);
        self.changed.notify_all();
    }

    /// Calls `with` for each.
    pub fn each(&self, with: impl FnMut(Ref)) {
        self.references.lock().expect("no holder panics").iter().copied().for_each(with);
    }

    /// Waits until there are some.
    pub fn wait(&self) {
        let references = self.references.lock().expect("no holder panics");
        drop(self.changed.wait_while(references, |it| it.is_empty()).expect("no holder panics"));
    }

    /// The first, which stays until [`Pending::remove_first`].
    pub fn first(&self) -> Option<Ref> {
        self.references.lock().expect("no holder panics").first().copied()
    }

    /// Removes the first.
    pub fn remove_first(&self) {
        self.references.lock().expect("no holder panics").remove(0);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.references.lock().expect("no holder panics").is_empty()
    }
}
