//! References that Rust keeps beyond a native method: a table among the roots.
//!
//! A lock guards the free slots for a few instructions, during which nobody allocates: a collector
//! that has stopped the world never finds it held by a running thread. A slot is read without it.

use crate::cards::note_root;
use crate::memory::zeroed;
use crate::object::Ref;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// The slots of the first chunk; each chunk has twice as many as the one before.
const FIRST_CHUNK: u32 = 64;
const CHUNKS: usize = 24;

/// The references of all [`Global`]s. They are roots.
#[derive(Debug, Default)]
pub struct Globals {
    /// Addresses of objects, 0 in a free slot. Chunks stay where they are.
    chunks: [OnceLock<Box<[AtomicU32]>>; CHUNKS],
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    /// How many have been in use
    used: u32,
}

/// A reference to an object that stays alive until this is dropped, by whichever thread.
#[derive(Debug)]
pub struct Global {
    globals: &'static Globals,
    slot: u32,
}

/// The chunk of a slot, and its place there.
fn place(slot: u32) -> (usize, usize) {
    let number = slot + FIRST_CHUNK;
    let chunk = number.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (number - (FIRST_CHUNK << chunk)) as usize)
}

impl Globals {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().expect("no holder panics")
    }

    fn word(&self, slot: u32) -> Option<&AtomicU32> {
        let (chunk, index) = place(slot);
        Some(&self.chunks.get(chunk)?.get()?[index])
    }

    /// Calls `with` for each reference.
    pub(crate) fn each(&self, with: impl FnMut(Ref)) {
        let slots = self.lock();
        (0..slots.used)
            .map(|slot| self.get(slot))
            .filter(|object| !object.is_null())
            .for_each(with);
    }

    /// Keeps an object until [`Globals::remove`], and returns its slot. The caller is a running
    /// thread of the VM.
    ///
    /// # Panics
    /// If the reference is null, or there are a billion of them.
    pub fn add(&self, object: Ref) -> u32 {
        assert!(!object.is_null(), "an object to keep");
        note_root(object.address());
        let mut slots = self.lock();
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.used += 1;
            slots.used - 1
        });
        let (chunk, index) = place(slot);
        let words = self.chunks[chunk].get_or_init(|| zeroed((FIRST_CHUNK << chunk) as usize));
        words[index].store(object.address(), Relaxed);
        slot
    }

    /// The object in a slot; null if the slot is free. The caller is a running thread of the VM.
    #[inline]
    pub fn get(&self, slot: u32) -> Ref {
        let address = self.word(slot).map_or(0, |word| word.load(Relaxed));
        // SAFETY: the word holds 0 or a reference that the roots contain.
        unsafe { Ref::from_address(address) }
    }

    /// Lets go of the object in a slot, which the caller has from [`Globals::add`].
    pub fn remove(&self, slot: u32) {
        let mut slots = self.lock();
        self.word(slot).expect("a slot in use").store(0, Relaxed);
        slots.free.push(slot);
    }
}

impl Global {
    /// Keeps an object in a VM's table. The caller is a running thread of that VM.
    ///
    /// # Panics
    /// If the reference is null.
    pub fn new(globals: &'static Globals, object: Ref) -> Global {
        Global { globals, slot: globals.add(object) }
    }

    /// The object. The caller is a running thread of the VM, and keeps what it uses after a drop of
    /// this.
    pub fn get(&self) -> Ref {
        self.globals.get(self.slot)
    }
}

impl Drop for Global {
    fn drop(&mut self) {
        self.globals.remove(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_in_chunks_one_after_the_other() {
        for (slot, expected) in [
            (0, (0, 0)),
            (63, (0, 63)),
            (64, (1, 0)),
            (191, (1, 127)),
            (192, (2, 0)),
            (447, (2, 255)),
            (448, (3, 0)),
        ] {
            assert_eq!(place(slot), expected, "slot {slot}");
        }
    }

    #[test]
    fn a_removed_slot_is_free_and_used_again() {
        let globals = Globals::default();
        // SAFETY: the table looks at no object.
        let object = |number: u32| unsafe { Ref::from_address(16 * (number + 1)) };
        for number in 0..200 {
            assert_eq!(globals.add(object(number)), number);
        }
        globals.remove(70);
        assert!(globals.get(70).is_null());
        assert_eq!(globals.get(71), object(71));
        assert!(globals.get(5000).is_null(), "a slot that nobody had");
        let mut n_found = 0;
        globals.each(|_| n_found += 1);
        assert_eq!(n_found, 199);
        assert_eq!(globals.add(object(7)), 70);
    }
}
