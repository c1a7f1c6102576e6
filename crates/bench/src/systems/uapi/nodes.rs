//! Objects of a raw program, and the references to them that the driver tells of.
//!
//! An object's address is that of a slot of a table, so that nothing is locked or allocated when
//! its references change. A slot counts as libbinder's `BBinder` does:
//!
//! ```text
//!   63           32 31            0
//!   | strong       | weak, and own |
//! ```
//!
//! **Invariant**: a slot whose word is not 0 belongs to one object. It is free again once the
//! program has put the object back and the driver has returned all references.

use baton_abi::uapi::{BR_ACQUIRE, BR_DECREFS, BR_INCREFS, BR_RELEASE, PtrCookie};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Objects of one program at a time, those that nobody has told to be gone included.
const SLOTS: usize = 4096;
/// Addresses are multiples of it, and not 0.
const STEP: u64 = 64;
const WEAK: u64 = 1;
const STRONG: u64 = 1 << 32;
/// How long a free slot may take to come.
const PATIENCE: Duration = Duration::from_secs(2);

pub struct Nodes {
    slots: Vec<AtomicU64>,
    next: AtomicUsize,
}

impl Nodes {
    pub fn new() -> Nodes {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Nodes { slots, next: AtomicUsize::new(0) }
    }

    /// A new object, which the program has until it puts it back.
    pub fn take(&self) -> io::Result<PtrCookie> {
        let mut start = None;
        loop {
            for _ in 0..SLOTS {
                let index = self.next.fetch_add(1, Ordering::Relaxed) % SLOTS;
                let slot = &self.slots[index];
                // Acquire pairs with the release of whoever made it free.
                let taken = slot.compare_exchange(0, WEAK, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    let ptr = (index as u64 + 1) * STEP;
                    return Ok(PtrCookie { ptr, cookie: !ptr });
                }
            }
            if start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(io::Error::other("the driver does not return its references"));
            }
            std::thread::yield_now();
        }
    }

    /// Gives up the program's own reference.
    pub fn put(&self, node: PtrCookie) -> io::Result<()> {
        self.note(BR_DECREFS, node)
    }

    fn slot(&self, node: PtrCookie) -> Option<&AtomicU64> {
        let index = (node.ptr / STEP).checked_sub(1)?;
        let slot = self.slots.get(index as usize)?;
        (node.ptr.is_multiple_of(STEP) && node.cookie == !node.ptr).then_some(slot)
    }

    /// Counts a reference that the driver takes or returns. An error if that cannot be.
    pub fn note(&self, command: u32, node: PtrCookie) -> io::Result<()> {
        let slot = self.slot(node).ok_or_else(|| wrong("is of no object"))?;
        let change = |word: u64| match command {
            BR_INCREFS if word > 0 => Some(word + WEAK),
            BR_ACQUIRE if word > 0 => Some(word + STRONG),
            BR_RELEASE if word >= STRONG => Some(word - STRONG),
            BR_DECREFS if word as u32 > 0 => Some(word - WEAK),
            _ => None,
        };
        // AcqRel: who takes the slot next comes after all that was done with the object.
        let changed = slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
        changed.map(drop).map_err(|_| wrong("has not been taken"))
    }

    /// How many references there are, the program's own included.
    pub fn references(&self) -> u64 {
        let count = |slot: &AtomicU64| {
            let word = slot.load(Ordering::Acquire);
            word / STRONG + word % STRONG
        };
        self.slots.iter().map(count).sum()
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a reference that the driver tells of {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_lives_until_all_references_are_back() {
        let nodes = Nodes::new();
        let node = nodes.take().unwrap();
        nodes.note(BR_INCREFS, node).unwrap();
        nodes.note(BR_ACQUIRE, node).unwrap();
        nodes.put(node).unwrap();
        assert_eq!(nodes.references(), 2);
        nodes.note(BR_RELEASE, node).unwrap();
        assert_eq!(nodes.references(), 1);
        nodes.note(BR_DECREFS, node).unwrap();
        assert_eq!(nodes.references(), 0);
        assert!(nodes.note(BR_INCREFS, node).is_err(), "it has ended");
    }

    #[test]
    fn references_that_cannot_be_are_refused() {
        let nodes = Nodes::new();
        let node = nodes.take().unwrap();
        assert!(nodes.note(BR_RELEASE, node).is_err());
        nodes.put(node).unwrap();
        assert!(nodes.put(node).is_err());
        let last = SLOTS as u64 * STEP;
        for ptr in [0, STEP + 1, last + STEP] {
            assert!(nodes.note(BR_INCREFS, PtrCookie { ptr, cookie: !ptr }).is_err(), "{ptr}");
        }
        assert!(nodes.note(BR_INCREFS, PtrCookie { ptr: STEP, cookie: 0 }).is_err());
    }

    #[test]
    fn a_slot_is_free_again() {
        let nodes = Nodes::new();
        let kept = nodes.take().unwrap();
        for _ in 0..3 * SLOTS {
            let node = nodes.take().unwrap();
            assert_ne!(node, kept);
            nodes.put(node).unwrap();
        }
    }
}
