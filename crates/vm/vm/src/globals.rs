//! References that Rust keeps beyond a native method: a table among the roots.
//!
//! A lock guards the table for a few instructions, during which nobody allocates: a collector that
//! has stopped the world never finds it held by a running thread.

use crate::cards::note_root;
use crate::object::Ref;
use std::sync::{Mutex, MutexGuard};

/// The references of all [`Global`]s. They are roots.
#[derive(Debug, Default)]
pub struct Globals {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Null for a free slot
    slots: Vec<Ref>,
    free: Vec<usize>,
}

/// A reference to an object that stays alive until this is dropped, by whichever thread.
#[derive(Debug)]
pub struct Global {
    globals: &'static Globals,
    slot: usize,
}

impl Globals {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder panics")
    }

    /// Calls `with` for each reference.
    pub(crate) fn each(&self, with: impl FnMut(Ref)) {
        self.lock().slots.iter().copied().filter(|object| !object.is_null()).for_each(with);
    }
}

impl Global {
    /// Keeps an object in a VM's table. The caller is a running thread of that VM.
    ///
    /// # Panics
    /// If the reference is null.
    pub fn new(globals: &'static Globals, object: Ref) -> Global {
        assert!(!object.is_null(), "an object to keep");
        note_root(object.address());
        let mut table = globals.lock();
        let slot = match table.free.pop() {
            Some(slot) => {
                table.slots[slot] = object;
                slot
            }
            None => {
                table.slots.push(object);
                table.slots.len() - 1
            }
        };
        Global { globals, slot }
    }

    /// The object. The caller is a running thread of the VM, and keeps what it uses after a drop of
    /// this.
    pub fn get(&self) -> Ref {
        self.globals.lock().slots[self.slot]
    }
}

impl Drop for Global {
    fn drop(&mut self) {
        let mut table = self.globals.lock();
        table.slots[self.slot] = Ref::NULL;
        table.free.push(self.slot);
    }
}
