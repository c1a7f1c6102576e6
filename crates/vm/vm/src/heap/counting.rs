//! Counts of references, beside the program: a collection stops no thread.
//!
//! An object's count is the number of references to it in the heap, as the view of an epoch has
//! them ([`cards`](crate::cards)). References on stacks and among other roots are not counted; each
//! collection marks what they reach. So an object is garbage if its count is zero and it is not
//! marked. (Deutsch and Bobrow, An efficient, incremental, automatic garbage collector, CACM 19:9,
//! 1976.)
//!
//! One collection, for the epoch that it ends:
//!
//! 1. All threads mark what they store; then all begin the next epoch; then each marks the
//!    references of its stack. Other roots are marked in between.
//! 2. For each logged card, the references of the next epoch's view are counted, and those of this
//!    epoch's view no longer.
//! 3. Objects of this epoch, and those whose count has come to zero, are freed unless they are
//!    marked. What a freed object has referred to is counted no longer, step by step.
//! 4. Cycles that nothing outside refers to are freed, in portions ([`cycles`](super::cycles)).
//!    The program pays for this search by allocating; what it has not paid for is left to later
//!    collections, and so is what threads that wait for memory would wait for in vain.
//!
//! After each portion of the third step and of the fourth, all threads pass a safepoint. Then no
//! thread copies a card any more that it began to copy before an object on it was freed, and the
//! memory is given away.
//!
//! **Invariant**: between collections, each count is the number of references in the current
//! epoch's view.

use super::count::{Color, Count, has_references};
use super::search::Searching;
use super::{BLOCK_BYTES, Block, Blocks, FreeCells, Heap, NO_PERIOD, SIZES, Use, push_free};
use crate::cards::{CARD_BYTES, Cards, Stage};
use crate::memory::{load32, store32};
use crate::object::{Ref, Sort};
use rustc_hash::FxHashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// How an instance of java.lang.ref.Reference holds its referent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strength {
    /// As a field does
    Soft,
    /// Not at all
    Weak,
    /// For its finalizer
    Finalizer,
    /// Not at all, and tells of its end
    Phantom,
}

/// What the collector needs of the VM.
pub trait World {
    /// Brings all threads to a stage.
    fn reach_stage(&self, stage: Stage);

    /// Calls `with` for each root that no thread has. A root that is added later is noted
    /// ([`note_root`](crate::cards::note_root)).
    fn each_root(&self, with: &mut dyn FnMut(Ref));

    /// How a reference holds its referent.
    fn strength(&self, reference: Ref) -> Strength;

    /// Clears a reference whose referent is gone, and puts it on its way into its queue. True if it
    /// has one: then it is a root.
    fn clear(&self, reference: Ref) -> bool;

    /// Lets a finalizer reference hold its referent until the finalizer has run.
    fn finalize(&self, reference: Ref, object: Ref);

    /// An object is about to be freed.
    fn free(&self, object: Ref);

    /// Memory was given away.
    fn released(&self);

    /// Whether a thread waits for memory, and has not been told of any since.
    fn is_awaited(&self) -> bool;
}

/// How far a collection searches for cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// As far as the program has paid for
    Part,
    /// From every suspect
    Whole,
}

/// What a collection has done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Cards that had changed
    pub n_cards: usize,
    /// Objects that were freed, those of cycles included
    pub n_freed: usize,
    /// Objects that were freed as parts of cycles
    pub n_in_cycles: usize,
    /// Objects that the search for cycles looked at
    pub n_searched: usize,
    /// Objects that a search for cycles is still to begin at
    pub n_suspects: usize,
    /// Objects without a counted reference that stay
    pub n_zeros: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { n_cards, n_freed, n_in_cycles, n_searched, n_suspects, n_zeros } = self;
        write!(to, "{n_cards} cards, {n_freed} objects freed ({n_in_cycles} in cycles), ")?;
        write!(to, "{n_searched} searched, {n_suspects} suspects, {n_zeros} held by roots")
    }
}

/// The collector's own memory.
#[derive(Debug)]
pub struct Counter {
    pub(super) cards: Arc<Cards>,
    stage: Stage,
    /// Objects with a count of zero
    zeros: Vec<Ref>,
    /// Those of them that stay in this collection
    kept: Vec<Ref>,
    /// Objects with references that may be part of a cycle, for the next collection's search
    suspects: Vec<Ref>,
    pub(super) searching: Searching,
    /// References that are not counted, by their referent
    referrers: FxHashMap<Ref, Vec<Ref>>,
    /// Objects that were freed and whose memory is not given away yet, with their size
    freed: Vec<(u32, u32)>,
    /// The children of an object
    children: Vec<Ref>,
    summary: Summary,
}

/// Objects whose memory is given away before another thread may have the heap's lock.
const RELEASED_AT_ONCE: usize = 16;

/// All addresses.
const ALL: Range<u32> = 0..u32::MAX;

impl Counter {
    /// A collector for a heap, all of whose threads are at a stage. Memory is given away when
    /// `portion` objects were freed, or looked at in a search for cycles.
    pub fn new(cards: Arc<Cards>, stage: Stage, portion: usize) -> Counter {
        Counter {
            searching: Searching::new(portion),
            cards,
            stage,
            zeros: Vec::new(),
            kept: Vec::new(),
            suspects: Vec::new(),
            referrers: FxHashMap::default(),
            freed: Vec::new(),
            children: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// The epoch that begins with this collection, or the current one between collections.
    pub(super) fn epoch(&self) -> u32 {
        self.stage.epoch()
    }

    /// How many objects a search for cycles would begin at.
    pub fn n_suspects(&self) -> usize {
        self.suspects.len() + self.searching.queue.len()
    }

    /// Frees what nothing reaches; cycles only as far as `search` says.
    ///
    /// # Safety
    /// All references are on stacks that `world` brings to stages, in the heap by way of
    /// [`before_store`](crate::cards::before_store), or among the roots of `world`.
    pub unsafe fn collect(&mut self, heap: &Heap, world: &impl World, search: Search) -> Summary {
        let ended = self.stage.epoch();
        self.summary = Summary::default();
        self.cards.begin();
        self.advance(self.stage.announced(), world);
        world.each_root(&mut |root| self.cards.reach(root.address()));
        self.advance(self.stage.next(), world);
        self.advance(self.stage.next(), world);
        // SAFETY: by the caller's promise; no thread is in the epoch that has ended.
        unsafe {
            self.count(heap, world, ended);
            let retired = heap.blocks_of(ended);
            let mut n_new = 0;
            heap.each_object_in(&retired, |object| {
                if Count::of(object).become_known() {
                    n_new += 1;
                    match Count::of(object).get() {
                        0 => self.enter_zeros(object),
                        _ => self.suspect(object),
                    }
                }
            });
            self.searching.pay(n_new);
            let mut retired = Some(retired);
            loop {
                // Each portion means a look at all suspects.
                let portion = self.searching.portion_of(self.suspects.len());
                let are_all_free = self.free_zeros(portion, world);
                self.settle(heap, world);
                if let Some(retired) = retired.take() {
                    heap.retire(&retired);
                }
                world.released();
                if are_all_free {
                    break;
                }
            }
            self.search(heap, world, search);
        }
        self.summary.n_zeros = self.zeros.len();
        self.summary.n_suspects = self.n_suspects();
        self.summary
    }

    /// Frees cycles, portion by portion.
    ///
    /// # Safety
    /// No block that was taken in the epoch that has ended is still to be retired.
    unsafe fn search(&mut self, heap: &Heap, world: &impl World, search: Search) {
        // What is suspected meanwhile is for the next search.
        self.searching.begin(self.suspects.drain(..));
        let is_part = search == Search::Part;
        while if is_part { self.searching.is_due() } else { !self.searching.queue.is_empty() } {
            self.summary.n_searched += self.free_cycles(is_part, world);
            self.free_zeros(usize::MAX, world);
            if !self.freed.is_empty() {
                // SAFETY: by the caller's promise.
                unsafe { self.settle(heap, world) };
                world.released();
            } else if is_part && world.is_awaited() {
                // Counts may find more.
                return;
            }
        }
    }

    /// Waits until no thread copies what was freed, and gives the memory away.
    ///
    /// # Safety
    /// Blocks that were taken in the epoch that has ended are retired after the first call.
    unsafe fn settle(&mut self, heap: &Heap, world: &impl World) {
        self.suspects.retain(|object| object.exists());
        self.searching.queue.retain(|object| object.exists());
        self.advance(self.stage.next(), world);
        for &(address, n_bytes) in &self.freed {
            self.cards.forget(address, n_bytes);
            self.cards.pardon(address);
        }
        self.summary.n_freed += self.freed.len();
        let epoch = self.epoch();
        for freed in self.freed.chunks(RELEASED_AT_ONCE) {
            let mut blocks = heap.lock();
            for &(address, _) in freed {
                // SAFETY: the memory is zero, and nobody uses it any more.
                unsafe { heap.release(&mut blocks, address, epoch) };
            }
        }
        self.freed.clear();
    }

    fn advance(&mut self, to: Stage, world: &impl World) {
        self.stage = to;
        world.reach_stage(to);
    }

    /// Calls `with` for the address of each counted reference of an object, within a range.
    fn each_counted(
        object: Ref,
        within: Range<u32>,
        world: &impl World,
        mut with: impl FnMut(u32),
    ) {
        object.each_reference_address(within.clone(), &mut with);
        if let Sort::Reference(offset) = object.shape().sort {
            let address = object.address() + offset;
            if within.contains(&address) && world.strength(object) == Strength::Soft {
                with(address);
            }
        }
    }

    /// Calls `with` for each object that an object refers to in the view.
    pub(super) fn each_child(&self, object: Ref, world: &impl World, mut with: impl FnMut(Ref)) {
        Self::each_counted(object, ALL, world, |address| {
            // SAFETY: a word of the object, which holds a reference; no thread is behind.
            let child = unsafe { Ref::from_address(self.cards.view(address, self.epoch())) };
            if !child.is_null() {
                with(child);
            }
        });
    }

    /// # Safety
    /// No thread is in the epoch that has ended.
    unsafe fn count(&mut self, heap: &Heap, world: &impl World, ended: u32) {
        let cards = self.cards.clone();
        let epoch = self.epoch();
        for run in cards.take_log(ended) {
            for (entry, card) in cards.entries(&run) {
                self.summary.n_cards += 1;
                // SAFETY: words of a card hold references where the object says so.
                let change = |address| unsafe {
                    let before = Ref::from_address(cards.logged(entry, address));
                    let now = Ref::from_address(cards.view(address, epoch));
                    (before != now).then_some((before, now))
                };
                let within = card..card + CARD_BYTES;
                let count = |object| {
                    Self::each_counted(object, within.clone(), world, |address| {
                        if let Some((before, now)) = change(address) {
                            self.add(now);
                            self.subtract(before);
                        }
                    });
                    self.move_referent(object, &within, world, &change);
                };
                // SAFETY: an object that was made since is null in both views.
                unsafe { heap.each_object_on(card, count) };
                cards.clear_tag(entry, card, ended);
            }
            cards.give_back(run);
        }
    }

    /// Keeps [`Counter::referrers`] true for a reference that does not count its referent.
    fn move_referent(
        &mut self,
        reference: Ref,
        within: &Range<u32>,
        world: &impl World,
        change: &impl Fn(u32) -> Option<(Ref, Ref)>,
    ) {
        let Sort::Reference(offset) = reference.shape().sort else { return };
        let address = reference.address() + offset;
        if within.contains(&address)
            && world.strength(reference) != Strength::Soft
            && let Some((before, now)) = change(address)
        {
            self.remove_referrer(before, reference);
            if !now.is_null() {
                self.referrers.entry(now).or_default().push(reference);
            }
        }
    }

    fn remove_referrer(&mut self, referent: Ref, reference: Ref) {
        if let Some(all) = self.referrers.get_mut(&referent) {
            all.retain(|it| *it != reference);
            if all.is_empty() {
                self.referrers.remove(&referent);
            }
        }
    }

    fn add(&mut self, object: Ref) {
        if !object.is_null() {
            Count::of(object).add();
        }
    }

    fn subtract(&mut self, object: Ref) {
        if object.is_null() {
            return;
        }
        if Count::of(object).subtract() == 0 {
            self.enter_zeros(object);
        } else {
            self.suspect(object);
        }
    }

    /// Lets the next search for cycles begin at an object, too: one that may have lost a reference,
    /// counted or not, and has others.
    pub(super) fn suspect(&mut self, object: Ref) {
        let count = Count::of(object);
        if !count.is_frozen() && has_references(object) && count.enter_suspects() {
            self.suspects.push(object);
        }
    }

    pub(super) fn enter_zeros(&mut self, object: Ref) {
        if Count::of(object).enter_zeros() {
            self.zeros.push(object);
        }
    }

    /// Frees objects without references, and what only they refer to, until so many are free. True
    /// if these are all.
    fn free_zeros(&mut self, most: usize, world: &impl World) -> bool {
        while self.freed.len() < most {
            let Some(object) = self.zeros.pop() else {
                self.zeros = std::mem::take(&mut self.kept);
                return true;
            };
            if Count::of(object).get() > 0 {
                Count::of(object).leave_zeros();
                // Nothing tells when it leaves the stacks.
                self.suspect(object);
            } else if self.cards.is_reached(object.address()) || !self.let_go(object, world) {
                self.kept.push(object);
            } else {
                let mut children = std::mem::take(&mut self.children);
                self.each_child(object, world, |child| children.push(child));
                children.drain(..).for_each(|child| self.subtract(child));
                self.children = children;
                self.free(object, world);
            }
        }
        false
    }

    /// Clears weak references to an object that nothing else reaches. False if it has to stay: a
    /// thread has just got it from a weak reference, or it has a finalizer to run.
    pub(super) fn let_go(&mut self, object: Ref, world: &impl World) -> bool {
        let Some(referrers) = self.referrers.get(&object) else {
            // Nobody can find it.
            return true;
        };
        if !self.cards.condemn(object.address()) {
            return false;
        }
        // A referrer that is garbage as well tells nobody.
        let alive = referrers.iter().copied().filter(|it| Count::of(*it).color() != Color::White);
        let of = |strength| alive.clone().filter(move |it| world.strength(*it) == strength);
        let mut cleared: Vec<Ref> = of(Strength::Weak).collect();
        let finalizers: Vec<Ref> = of(Strength::Finalizer).collect();
        if finalizers.is_empty() {
            cleared.extend(of(Strength::Phantom));
        }
        for &reference in &cleared {
            if world.clear(reference) {
                self.cards.reach(reference.address());
            }
            self.remove_referrer(object, reference);
        }
        for &reference in &finalizers {
            world.finalize(reference, object);
            self.cards.reach(reference.address());
            self.remove_referrer(object, reference);
        }
        if finalizers.is_empty() {
            self.referrers.remove(&object);
            return true;
        }
        self.cards.reach(object.address());
        false
    }

    /// Whether an object has a finalizer to run.
    pub(super) fn has_finalizer(&self, object: Ref, world: &impl World) -> bool {
        let is_due = |it: &Ref| {
            Count::of(*it).color() != Color::White && world.strength(*it) == Strength::Finalizer
        };
        self.referrers.get(&object).is_some_and(|referrers| referrers.iter().any(is_due))
    }

    /// Frees an object whose references are no longer counted. Its memory is clear at once, and
    /// given away at the end of the collection.
    pub(super) fn free(&mut self, object: Ref, world: &impl World) {
        if let Sort::Reference(offset) = object.shape().sort {
            // SAFETY: the word holds a reference; no thread is behind.
            let referent = unsafe {
                Ref::from_address(self.cards.view(object.address() + offset, self.epoch()))
            };
            self.remove_referrer(referent, object);
        }
        world.free(object);
        let (address, n_bytes) = (object.address(), object.n_bytes().next_multiple_of(4));
        for word in (address..address + n_bytes).step_by(4) {
            // SAFETY: nothing refers to the object.
            unsafe { store32(word, 0, Relaxed) };
        }
        self.freed.push((address, n_bytes));
    }

    pub(super) fn freed_in_cycles(&mut self, n: usize) {
        self.summary.n_in_cycles += n;
    }

    /// Checks all counts against the view of the current epoch.
    ///
    /// # Errors
    /// The first object whose count is wrong: the object, its count, and the number of references.
    ///
    /// # Safety
    /// No thread runs, and no collection is under way.
    pub unsafe fn verify(&self, heap: &Heap, world: &impl World) -> Result<usize, (Ref, u32, u32)> {
        let mut found: FxHashMap<Ref, u32> = FxHashMap::default();
        let mut all = Vec::new();
        // SAFETY: by the caller's promise.
        unsafe { heap.each_object(|object| all.push(object)) };
        for &object in &all {
            self.each_child(object, world, |child| *found.entry(child).or_default() += 1);
        }
        for &object in &all {
            let (count, expected) = (Count::of(object).get(), found.remove(&object).unwrap_or(0));
            if count != expected && !Count::of(object).is_frozen() {
                return Err((object, count, expected));
            }
        }
        match found.into_iter().next() {
            Some((object, expected)) => Err((object, 0, expected)),
            None => Ok(all.len()),
        }
    }
}

impl Heap {
    /// The blocks of a period that has ended for all threads.
    fn blocks_of(&self, period: u32) -> Vec<usize> {
        let blocks = self.lock();
        (0..blocks.all.len()).filter(|index| blocks.all[*index].period == period).collect()
    }

    /// Calls `with` for each object in some blocks.
    ///
    /// # Safety
    /// No thread allocates from these blocks.
    unsafe fn each_object_in(&self, blocks: &[usize], mut with: impl FnMut(Ref)) {
        for &block in blocks {
            let at = self.address_of(block);
            let cell = match self.used(block) {
                Use::Cells(size) => SIZES[size as usize],
                _ => BLOCK_BYTES,
            };
            for nth in 0..BLOCK_BYTES / cell {
                // SAFETY: a cell; with a class word it holds an object.
                unsafe { object_at(at + nth * cell) }.map(&mut with);
            }
        }
    }

    /// Calls `with` for each object that has a part on a card.
    ///
    /// # Safety
    /// The caller uses no object that was made after the card was logged.
    unsafe fn each_object_on(&self, card: u32, mut with: impl FnMut(Ref)) {
        let block = ((card - self.region.start()) / BLOCK_BYTES) as usize;
        let at = self.address_of(block);
        let cells = match self.used(block) {
            Use::Free => return,
            Use::Cells(size) => {
                let cell = SIZES[size as usize];
                let last = (card + CARD_BYTES - 1 - at) / cell;
                let first = at + (card - at) / cell * cell;
                (first..=at + last.min(BLOCK_BYTES / cell - 1) * cell).step_by(cell as usize)
            }
            Use::Large(_) => (at..=at).step_by(1),
            Use::Rest(distance) => {
                let first = at - distance * BLOCK_BYTES;
                (first..=first).step_by(1)
            }
        };
        for cell in cells {
            // SAFETY: a cell; with a class word it holds an object.
            unsafe { object_at(cell) }.map(&mut with);
        }
    }

    /// Gives the memory of a freed object away, unless its block is still to be retired. All
    /// threads are in `period`.
    ///
    /// # Safety
    /// The memory is zero, and nobody uses it.
    unsafe fn release(&self, blocks: &mut Blocks, address: u32, period: u32) {
        let block = ((address - self.region.start()) / BLOCK_BYTES) as usize;
        let of = blocks.all[block];
        match self.used(block) {
            Use::Cells(size) if of.period == NO_PERIOD => {
                let mut free = of.free;
                // SAFETY: by the caller's promise.
                unsafe { push_free(&mut free, address) };
                let cells = FreeCells { free, n_free: of.n_free + 1, tail: of.tail };
                self.offer(blocks, block, size, cells);
            }
            Use::Cells(size) if of.period == period => {
                let mut free = of.free;
                // SAFETY: by the caller's promise.
                unsafe { push_free(&mut free, address) };
                blocks.all[block] = Block { free, n_free: of.n_free + 1, is_listed: true, ..of };
                if !of.is_listed {
                    blocks.lists[size as usize].push(block as u32);
                }
            }
            Use::Large(count) if of.period == NO_PERIOD => {
                self.free_blocks(blocks, block, count as usize);
            }
            _ => {}
        }
    }

    /// Takes blocks from the allocators that had them in an epoch that has ended.
    ///
    /// # Safety
    /// No thread allocates from these blocks. Cells without an object are zero but for their link.
    unsafe fn retire(&self, retired: &[usize]) {
        for &block in retired {
            let at = self.address_of(block);
            let size = match self.used(block) {
                Use::Cells(size) => size,
                Use::Large(count) => {
                    let mut blocks = self.lock();
                    blocks.all[block].period = NO_PERIOD;
                    // SAFETY: the first word of the object.
                    if unsafe { object_at(at) }.is_none() {
                        self.free_blocks(&mut blocks, block, count as usize);
                    }
                    continue;
                }
                Use::Free | Use::Rest(_) => unreachable!("the period is that of an allocation"),
            };
            let tail = self.lock().all[block].tail;
            // SAFETY: the address is a cell's.
            let is_free = |cell| unsafe { object_at(cell) }.is_none();
            // SAFETY: a cell without a class word is free, and zero if its link is zero.
            let cells = unsafe { self.free_cells(block, size, tail, is_free) };
            self.offer(&mut self.lock(), block, size, cells);
        }
    }
}

/// The object in a cell, `None` if the cell is free.
///
/// # Safety
/// The address is a cell's.
unsafe fn object_at(cell: u32) -> Option<Ref> {
    // SAFETY: by the caller's promise.
    unsafe { (load32(cell, Acquire) != 0).then(|| Ref::from_address(cell)) }
}
