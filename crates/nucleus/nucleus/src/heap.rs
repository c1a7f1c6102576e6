//! A binary heap from which any entry can be removed: a table has the position of each thread in
//! it.
//!
//! ```text
//!  entries     [ (3, A)  (5, C)  (4, B) ]        smallest key first
//!  positions   A: 0  B: 2  C: 1
//! ```
//!
//! **Invariant**: `positions[entries[i].slot] == i`, and no entry's key is below its parent's.

use crate::list::Slot;

/// A heap of threads by a key. The caller owns the table of positions, and may use it for several
/// heaps if each thread is in at most one of them.
#[derive(Clone, Debug)]
pub struct IndexedHeap<Key> {
    entries: Vec<(Key, Slot)>,
}

impl<Key> Default for IndexedHeap<Key> {
    fn default() -> Self {
        IndexedHeap { entries: Vec::new() }
    }
}

impl<Key: Ord + Copy> IndexedHeap<Key> {
    /// The entry with the smallest key.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Key, Slot)> {
        self.entries.first().copied()
    }

    pub(crate) fn insert(&mut self, positions: &mut [u16], key: Key, slot: Slot) {
        self.entries.push((key, slot));
        positions[slot.index()] = self.entries.len() as u16 - 1;
        self.rise(positions, self.entries.len() - 1);
    }

    /// Removes a thread that is in the heap.
    pub(crate) fn remove(&mut self, positions: &mut [u16], slot: Slot) {
        let at = usize::from(positions[slot.index()]);
        debug_assert_eq!(self.entries[at].1, slot);
        self.entries.swap_remove(at);
        if let Some(&(_, moved)) = self.entries.get(at) {
            positions[moved.index()] = at as u16;
            let at = self.rise(positions, at);
            self.sink(positions, at);
        }
    }

    fn swap(&mut self, positions: &mut [u16], one: usize, other: usize) {
        self.entries.swap(one, other);
        positions[self.entries[one].1.index()] = one as u16;
        positions[self.entries[other].1.index()] = other as u16;
    }

    fn rise(&mut self, positions: &mut [u16], mut at: usize) -> usize {
        while at > 0 && self.entries[at].0 < self.entries[(at - 1) / 2].0 {
            self.swap(positions, at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sink(&mut self, positions: &mut [u16], mut at: usize) {
        loop {
            let children = (2 * at + 1..self.entries.len()).take(2);
            let Some(least) = children.min_by_key(|&child| self.entries[child].0) else { return };
            if self.entries[at].0 <= self.entries[least].0 {
                return;
            }
            self.swap(positions, at, least);
            at = least;
        }
    }
}
