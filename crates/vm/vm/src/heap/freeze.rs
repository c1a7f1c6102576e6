//! A heap whose objects stay for ever, in memory that a child of fork shares with its parent.
//!
//! A page stays shared as long as neither process writes to it. So a collector writes nothing into
//! frozen objects and their blocks: they are never freed, their free cells are never used, and
//! their counts never change. What a frozen object refers to is found as always: by tracing it, or
//! by the card of a word that the program has changed.

use super::count::Count;
use super::{Heap, UNUSED, Use};

impl Heap {
    /// Freezes all objects that there are. Those that are made later lie in other blocks.
    ///
    /// # Safety
    /// The calling thread is the only one that uses the heap. It has collected just before, and its
    /// allocator is not used any more.
    pub unsafe fn freeze(&self) {
        if self.cards.is_some() {
            // SAFETY: by the caller's promise, no other thread allocates.
            unsafe { self.each_object(|object| Count::of(object).freeze()) };
        }
        let mut blocks = self.lock();
        let is_used = |index: &usize| self.used(*index) != Use::Free;
        let n_frozen = (0..blocks.all.len()).rev().find(is_used).map_or(0, |last| last + 1);
        let n_lost = (0..n_frozen).filter(|index| !is_used(index)).count();
        blocks.lists.iter_mut().for_each(Vec::clear);
        blocks.all[..n_frozen].fill(UNUSED);
        blocks.n_free -= n_lost;
        (blocks.next, blocks.n_frozen) = (n_frozen, n_frozen);
        if n_frozen < blocks.all.len() {
            // SAFETY: no object lies there.
            unsafe { self.region.discard_from(self.address_of(n_frozen)) };
            blocks.n_touched = n_frozen;
        }
        if let Some(cards) = &self.cards {
            cards.freeze(self.address_of(n_frozen));
        }
        drop(blocks);
        self.set_limit(0);
    }
}
