//! Mark and sweep, while no thread runs.

use super::{BLOCK_BYTES, Blocks, Heap, SIZES, Use};
use crate::memory::load32;
use crate::object::{Ref, Sort};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Marks what is reachable.
#[derive(Debug)]
pub struct Marker<'a> {
    heap: &'a Heap,
    pending: Vec<Ref>,
    /// Reachable instances of java.lang.ref.Reference. Their referents are not marked.
    references: Vec<Ref>,
}

impl Marker<'_> {
    /// Marks an object, and with [`Marker::trace`] all that it refers to.
    pub fn mark(&mut self, object: Ref) {
        if !object.is_null() && self.heap.set_mark(object) {
            self.pending.push(object);
        }
    }

    /// Whether an object is marked. Null is.
    pub fn is_marked(&self, object: Ref) -> bool {
        object.is_null() || self.heap.is_marked(object)
    }

    /// Marks all that marked objects refer to, referents of references apart.
    pub fn trace(&mut self) {
        while let Some(object) = self.pending.pop() {
            if let Sort::Reference(_) = object.shape().sort {
                self.references.push(object);
            }
            object.each_reference(|to| {
                if self.heap.set_mark(to) {
                    self.pending.push(to);
                }
            });
        }
    }

    /// The instances of java.lang.ref.Reference that were found since the last call.
    pub fn take_references(&mut self) -> Vec<Ref> {
        std::mem::take(&mut self.references)
    }
}

impl Heap {
    fn mark_bit(&self, object: Ref) -> (&AtomicU64, u64) {
        debug_assert!(self.region.contains(object.address()), "no object of this heap");
        let eighth = (object.address() - self.region.start()) as usize / 8;
        (&self.marks[eighth / 64], 1 << (eighth % 64))
    }

    /// Marks an object; false if it was marked.
    fn set_mark(&self, object: Ref) -> bool {
        let (word, bit) = self.mark_bit(object);
        let old = word.load(Relaxed);
        word.store(old | bit, Relaxed);
        old & bit == 0
    }

    fn is_marked(&self, object: Ref) -> bool {
        let (word, bit) = self.mark_bit(object);
        word.load(Relaxed) & bit != 0
    }

    /// Frees every object that `roots` does not reach. `roots` calls [`Marker::mark`] for each
    /// root and, after [`Marker::trace`], decides about referents.
    ///
    /// # Safety
    /// No other thread runs Java or uses a [`Ref`] that `roots` does not mark.
    pub unsafe fn collect(&self, roots: impl FnOnce(&mut Marker<'_>)) {
        // Pages without a mark stay as the kernel has made them.
        let marked = self.marks.iter().filter(|word| word.load(Relaxed) != 0);
        marked.for_each(|word| word.store(0, Relaxed));
        let mut marker = Marker { heap: self, pending: Vec::new(), references: Vec::new() };
        roots(&mut marker);
        marker.trace();
        let mut blocks = self.lock();
        // SAFETY: by the caller's promise, nothing uses what is not marked.
        unsafe { self.sweep(&mut blocks) };
        let n_blocks = blocks.all.len();
        let used = n_blocks - blocks.n_free;
        // Twice what lives, so that the work of collections stays in proportion to allocation.
        let limit = (used * 2).max(super::first_limit(n_blocks)).min(n_blocks);
        self.limit_blocks.store(limit, Relaxed);
        self.collections.fetch_add(1, Relaxed);
    }

    /// # Safety
    /// Nothing uses an object that is not marked.
    unsafe fn sweep(&self, blocks: &mut Blocks) {
        blocks.lists.iter_mut().for_each(Vec::clear);
        let mut index = blocks.n_frozen;
        while index < blocks.all.len() {
            if blocks.all[index].is_listed {
                blocks.all[index].is_listed = false;
            }
            let at = self.address_of(index);
            match self.used(index) {
                Use::Free => index += 1,
                Use::Rest(_) => unreachable!("the rest of a large object follows its first block"),
                Use::Large(count) => {
                    let count = count as usize;
                    // SAFETY: the first word of a large object's block.
                    let object = unsafe { Ref::from_address(at) };
                    if !self.is_marked(object) {
                        self.free_blocks(blocks, index, count);
                    }
                    index += count;
                }
                Use::Cells(size) => {
                    // SAFETY: a cell of the block; it may be free, and then has no mark.
                    let is_free = |cell| !self.is_marked(unsafe { Ref::from_address(cell) });
                    // SAFETY: by the caller's promise. A cell beyond the last collection's tail
                    // was made an object, which has a class word, or nobody has used it.
                    let cells =
                        unsafe { self.free_cells(index, size, blocks.all[index].tail, is_free) };
                    self.offer(blocks, index, size, cells);
                    index += 1;
                }
            }
        }
    }

    /// Calls `with` for each object, free cells and unused rests left out.
    ///
    /// # Safety
    /// No other thread allocates.
    pub unsafe fn each_object(&self, mut with: impl FnMut(Ref)) {
        for index in 0..self.uses.len() {
            let (cell, count) = match self.used(index) {
                Use::Cells(size) => (SIZES[size as usize], BLOCK_BYTES / SIZES[size as usize]),
                Use::Large(_) => (0, 1),
                Use::Free | Use::Rest(_) => continue,
            };
            for nth in 0..count {
                let address = self.address_of(index) + nth * cell;
                // SAFETY: a cell; with a class word it holds an object.
                unsafe {
                    if load32(address, Relaxed) != 0 {
                        with(Ref::from_address(address));
                    }
                }
            }
        }
    }

    /// Checks the heap: each object's references lead to objects, referents included. Frozen
    /// objects that the last collection has not reached are garbage, and may refer to what it has
    /// freed.
    ///
    /// # Errors
    /// The first false reference: the object that has it, and where it leads.
    ///
    /// # Safety
    /// No other thread runs Java.
    pub unsafe fn verify(&self) -> Result<usize, (Ref, Ref)> {
        let mut objects = Vec::new();
        // SAFETY: by the caller's promise.
        unsafe { self.each_object(|object| objects.push(object)) };
        objects.sort_unstable();
        let frozen_end = self.address_of(self.lock().n_frozen);
        let is_garbage = |it: Ref| it.address() < frozen_end && !self.is_marked(it);
        for &object in objects.iter().filter(|it| !is_garbage(**it)) {
            let mut wrong = None;
            let mut check = |to| {
                if objects.binary_search(&to).is_err() {
                    wrong = Some(to);
                }
            };
            object.each_reference(&mut check);
            if let Sort::Reference(offset) = object.shape().sort {
                // SAFETY: the referent's word holds a reference.
                let referent = unsafe { Ref::from_address(object.field32(offset)) };
                if !referent.is_null() {
                    check(referent);
                }
            }
            if let Some(to) = wrong {
                return Err((object, to));
            }
        }
        Ok(objects.len())
    }
}
