//! The heap: cells of fixed sizes in blocks, and objects of whole blocks.
//!
//! ```text
//! block: 16 KiB of cells of one size, or a part of a large object, or free
//! cell:  an object; or free: class word 0, then the address of the next free cell
//! ```
//!
//! A thread allocates from blocks that it took for itself ([`Allocator`]), without a lock. A
//! collection takes blocks back: an allocator of an earlier *period* starts afresh. With mark and
//! sweep a period ends for all threads at once, with a collection; a collector that counts ends it
//! for one thread after the other, with the thread's epoch.
//!
//! A cell that a collector which counts frees in a block of the current period may be taken at
//! once, by the allocator that has the block or by another one.
//!
//! **Invariant**: a cell is on one free list, or in one allocator's unused rest, or in the *tail*
//! of a block that no allocator has, or holds one object, or waits in a block that an allocator has
//! for the end of the period. Rests and tails are zero: nobody has used them, and the kernel has
//! not committed whole pages of them. With counting, free cells are zero but for their link.
//!
//! A zygote *freezes* its heap ([`Heap::freeze`]): no collector writes to the blocks again that
//! hold its objects, so that its children share them.

mod count;
mod counting;
mod cycles;
mod freeze;
mod mark_sweep;
mod search;
mod statistics;

pub use counting::{Counter, Search, Strength, Summary, World};
pub use mark_sweep::Marker;
pub use statistics::Statistics;

use crate::cards::Cards;
use crate::lock::{Guard, Lock};
use crate::memory::{Region, load32, load64, store32, zero, zeroed};
use crate::object::{Ref, Shape};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

const BLOCK_BYTES: u32 = 16 << 10;
/// Objects larger than this take whole blocks.
const LARGEST_CELL: u32 = 2048;
const N_SIZES: usize = 32;
/// Where a free cell has the address of the next one: no reference is there in any object.
const LINK: u32 = 4;

/// The sizes of cells: multiples of 8 up to 128, then eight steps for each doubling at most.
const SIZES: [u32; N_SIZES] = [
    16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 256, 288, 320, 384, 448,
    512, 576, 640, 768, 896, 1024, 1152, 1280, 1536, 1792, 2048,
];

/// For each multiple of 8 up to the largest cell, the index of the smallest size that suffices.
const SIZE_INDEX: [u8; LARGEST_CELL as usize / 8 + 1] = {
    let mut table = [0; LARGEST_CELL as usize / 8 + 1];
    let mut size = 0;
    let mut eighth = 0;
    while eighth < table.len() {
        if SIZES[size] < eighth as u32 * 8 {
            size += 1;
        }
        table[eighth] = size as u8;
        eighth += 1;
    }
    table
};

/// What a block is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    /// Cells of one of [`SIZES`]
    Cells(u8),
    /// The first block of a large object, with the number of its blocks
    Large(u32),
    /// Another block of a large object, with the distance to the first
    Rest(u32),
}

impl Use {
    fn encode(self) -> u32 {
        match self {
            Use::Free => 0,
            Use::Cells(size) => u32::from(size) << 2 | 1,
            Use::Large(count) => count << 2 | 2,
            Use::Rest(distance) => distance << 2 | 3,
        }
    }

    fn decode(word: u32) -> Use {
        match word & 3 {
            0 => Use::Free,
            1 => Use::Cells((word >> 2) as u8),
            2 => Use::Large(word >> 2),
            _ => Use::Rest(word >> 2),
        }
    }
}

/// Which period a block belongs to that no allocator has.
const NO_PERIOD: u32 = u32::MAX;

/// What is free in a block, and who may allocate from it.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The period of the allocator that has the block, or of the large object in it
    period: u32,
    /// Free cells, as a list: those that no allocator has
    free: u32,
    /// How many cells are in the list and in the tail
    n_free: u16,
    /// The first cell of the tail, as the last collection has found it
    tail: u16,
    /// Whether the block is in the list of its size
    is_listed: bool,
}

/// A block whose cells are all in the tail, if it has cells.
const UNUSED: Block = Block { period: NO_PERIOD, free: 0, n_free: 0, tail: 0, is_listed: false };

#[derive(Debug)]
struct Blocks {
    all: Box<[Block]>,
    n_free: usize,
    /// Blocks that were taken, ever
    n_taken: usize,
    /// Where the search for free blocks begins.
    next: usize,
    /// How many blocks, from the first on, have been used: the others are zero.
    n_touched: usize,
    /// How many blocks, from the first on, are frozen: nothing is allocated or freed there.
    n_frozen: usize,
    /// For each size, blocks with free cells that no allocator has. Some may be in use otherwise
    /// since, and are not [`Block::is_listed`].
    lists: [Vec<u32>; N_SIZES],
}

/// Memory for objects.
#[derive(Debug)]
pub struct Heap {
    region: Region,
    /// A [`Use`] for each block, which changes under the lock.
    uses: Box<[AtomicU32]>,
    blocks: Lock<Blocks>,
    /// One bit for each multiple of 8 bytes: the object there is marked.
    marks: Box<[AtomicU64]>,
    collections: AtomicU32,
    /// How many blocks may be in use before an allocation asks for a collection.
    limit_blocks: AtomicUsize,
    /// How many blocks threads are expected to take while a collection that counts runs.
    expected_blocks: AtomicUsize,
    /// Blocks that ordinary threads leave for the time until the next collection gives memory away.
    held_back: AtomicUsize,
    /// With counting: what has changed. Free cells are zero then but for their link.
    cards: Option<Arc<Cards>>,
}

/// What one thread allocates from.
#[derive(Debug)]
pub struct Allocator {
    period: u32,
    sizes: [Rest; N_SIZES],
}

/// What is left of a block: a list of free cells, and zeroed memory from `at` to `end`.
#[derive(Clone, Copy, Default, Debug)]
struct Rest {
    free: u32,
    at: u32,
    end: u32,
}

/// The cells of a block that are free: see [`Block`].
#[derive(Clone, Copy, Debug)]
struct FreeCells {
    free: u32,
    n_free: u16,
    tail: u16,
}

/// Why there was no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// A collection is due: the heap is as full as the last one allows.
    Collect,
    /// Nothing fits, even if a collection has just been.
    Exhausted,
}

/// How objects are freed that nothing reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Collector {
    /// All threads stop while one marks what is reachable and sweeps the rest.
    #[default]
    MarkSweep,
    /// A thread counts references while the others run.
    Counting,
}

/// Whether an allocation may use more than the last collection allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Up to the limit that the last collection set
    Limit,
    /// The whole heap, but for what is reserved
    Whole,
    /// What is reserved for real-time threads, too
    Reserve,
}

impl Allocator {
    /// An allocator that has no block yet.
    pub fn new() -> Allocator {
        Allocator { period: NO_PERIOD, sizes: [Rest::default(); N_SIZES] }
    }
}

impl Default for Allocator {
    fn default() -> Self {
        Self::new()
    }
}

impl Heap {
    /// A heap of at most `n_bytes`, and at least 1 MiB. `collector` is who will collect it.
    ///
    /// # Errors
    /// ENOMEM if the memory below 4 GiB is taken.
    pub fn map(n_bytes: usize, collector: Collector) -> io::Result<Heap> {
        let n_bytes = n_bytes.max(1 << 20).next_multiple_of(BLOCK_BYTES as usize);
        let region = Region::map(n_bytes)?;
        let cards = || Arc::new(Cards::new(region.start(), region.n_bytes()));
        let cards = (collector == Collector::Counting).then(cards);
        let n_blocks = n_bytes / BLOCK_BYTES as usize;
        Ok(Heap {
            region,
            uses: zeroed(n_blocks),
            blocks: Lock::new(Blocks {
                all: vec![UNUSED; n_blocks].into(),
                n_free: n_blocks,
                n_taken: 0,
                next: 0,
                n_touched: 0,
                n_frozen: 0,
                lists: Default::default(),
            }),
            marks: zeroed(n_bytes / 8 / 64),
            collections: AtomicU32::new(0),
            limit_blocks: AtomicUsize::new(first_limit(n_blocks)),
            expected_blocks: AtomicUsize::new(0),
            held_back: AtomicUsize::new(0),
            cards,
        })
    }

    /// The cards, if objects are counted.
    pub fn cards(&self) -> Option<&Arc<Cards>> {
        self.cards.as_ref()
    }

    /// The number of collections so far.
    pub fn collections(&self) -> u32 {
        self.collections.load(Relaxed)
    }

    /// The heap's size: what `-Xmx` says.
    pub fn max_bytes(&self) -> usize {
        self.region.n_bytes() as usize
    }

    /// The memory in blocks that are in use.
    pub fn used_bytes(&self) -> usize {
        self.used_blocks() * BLOCK_BYTES as usize
    }

    /// The number of blocks.
    pub(crate) fn n_blocks(&self) -> usize {
        self.uses.len()
    }

    /// The number of blocks in use.
    pub(crate) fn used_blocks(&self) -> usize {
        let blocks = self.lock();
        blocks.all.len() - blocks.n_free
    }

    /// How many blocks threads have taken since the heap exists.
    pub(crate) fn taken_blocks(&self) -> usize {
        self.lock().n_taken
    }

    /// Sets the limit for the next collection that counts, by the number of blocks that threads
    /// took during the last one. It begins while what is free lasts twice as long as it: the
    /// estimate of listing 5.1 of the RTAndroid thesis, in which a rate is multiplied by a time.
    pub(crate) fn set_limit(&self, n_taken: usize) {
        let (n_blocks, used) = (self.n_blocks(), self.used_blocks());
        // One quick collection does not mean that the next one is.
        let expected = n_taken.max(self.expected_blocks.load(Relaxed) / 4 * 3);
        self.expected_blocks.store(expected, Relaxed);
        let limit = (used * 2).max(first_limit(n_blocks)).min(n_blocks / 4 * 3);
        let in_time = (n_blocks - reserved(n_blocks)).saturating_sub(2 * expected);
        // The work of a collection has to be worth it.
        let least = used + (n_blocks - used) / 8;
        self.limit_blocks.store(limit.min(in_time).max(least), Relaxed);
    }

    /// Lets ordinary threads leave so many blocks until the next call, and at most half of those
    /// that are free.
    pub(crate) fn hold_back(&self, n_blocks: usize) {
        let n_free = self.n_blocks() - self.used_blocks();
        let half = n_free.saturating_sub(reserved(self.n_blocks())) / 2;
        self.held_back.store(n_blocks.min(half), Relaxed);
    }

    /// Whether so much is in use that a collection is due.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.used_blocks() >= self.limit_blocks.load(Relaxed)
    }

    /// Makes an object of zeroed fields, in the thread's period.
    ///
    /// # Errors
    /// [`Full`] if there is no memory within `reach`.
    #[inline]
    pub fn allocate(
        &self,
        allocator: &mut Allocator,
        period: u32,
        reach: Reach,
        shape: &'static Shape,
        n_bytes: u64,
        length: Option<u32>,
    ) -> Result<Ref, Full> {
        if n_bytes > u64::from(LARGEST_CELL) {
            let address = self.take_large(n_bytes, period, reach)?;
            // SAFETY: the blocks are this call's alone, zeroed and large enough.
            return Ok(unsafe { Ref::create(address, shape, length) });
        }
        if allocator.period != period {
            *allocator = Allocator { period, ..Allocator::new() };
        }
        let size = SIZE_INDEX[n_bytes.div_ceil(8) as usize] as usize;
        let cell = SIZES[size];
        let rest = &mut allocator.sizes[size];
        loop {
            let address = if rest.free != 0 {
                let address = rest.free;
                // SAFETY: a free cell of this allocator's list, by the heap's invariant.
                unsafe {
                    rest.free = load32(address + LINK, Relaxed);
                    if self.cards.is_some() {
                        store32(address + LINK, 0, Relaxed);
                    } else {
                        zero(address, cell as usize);
                    }
                }
                address
            } else if rest.at + cell <= rest.end {
                rest.at += cell;
                rest.at - cell
            } else {
                *rest = self.take_cells(size, period, reach)?;
                continue;
            };
            // SAFETY: the cell is this allocator's alone, zero, and large enough.
            return Ok(unsafe { Ref::create(address, shape, length) });
        }
    }

    fn address_of(&self, block: usize) -> u32 {
        self.region.start() + block as u32 * BLOCK_BYTES
    }

    fn used(&self, block: usize) -> Use {
        Use::decode(self.uses[block].load(Relaxed))
    }

    fn set_use(&self, block: usize, of: Use) {
        self.uses[block].store(of.encode(), Relaxed);
    }

    fn lock(&self) -> Guard<'_, Blocks> {
        self.blocks.lock()
    }

    fn take_cells(&self, size: usize, period: u32, reach: Reach) -> Result<Rest, Full> {
        let mut blocks = self.lock();
        while let Some(block) = blocks.lists[size].pop() {
            let index = block as usize;
            let of = blocks.all[index];
            if !of.is_listed || self.used(index) != Use::Cells(size as u8) {
                continue;
            }
            // A block of a period that has ended comes back when it is retired.
            blocks.all[index].is_listed = false;
            if of.period != NO_PERIOD && of.period != period {
                continue;
            }
            blocks.all[index] = Block { period, tail: of.tail, ..UNUSED };
            let start = self.address_of(index);
            return Ok(match of.period {
                NO_PERIOD => Rest {
                    free: of.free,
                    at: start + u32::from(of.tail) * SIZES[size],
                    end: start + BLOCK_BYTES,
                },
                // The allocator that has the block has the tail.
                _ => Rest { free: of.free, ..Rest::default() },
            });
        }
        let (block, old) = self.take_blocks(&mut blocks, 1, reach)?;
        self.set_use(block, Use::Cells(size as u8));
        blocks.all[block] = Block { period, ..UNUSED };
        let at = self.address_of(block);
        drop(blocks);
        // SAFETY: no object lies in the block, and nobody else allocates from it.
        unsafe { zero(at, old) };
        Ok(Rest { free: 0, at, end: at + BLOCK_BYTES })
    }

    fn take_large(&self, n_bytes: u64, period: u32, reach: Reach) -> Result<u32, Full> {
        let n_blocks = n_bytes.div_ceil(u64::from(BLOCK_BYTES));
        let Ok(n_blocks) = u32::try_from(n_blocks) else { return Err(Full::Exhausted) };
        let (at, old) = {
            let mut blocks = self.lock();
            let (first, old) = self.take_blocks(&mut blocks, n_blocks as usize, reach)?;
            self.set_use(first, Use::Large(n_blocks));
            for distance in 1..n_blocks {
                self.set_use(first + distance as usize, Use::Rest(distance));
            }
            blocks.all[first] = Block { period, ..UNUSED };
            (self.address_of(first), old)
        };
        // SAFETY: no object lies in these blocks; a collector that sees them finds class word 0.
        unsafe { zero(at, old) };
        Ok(at)
    }

    /// Finds free blocks side by side. The caller says what they are used for. Returns the first
    /// one, and how many bytes from there on may be other than zero.
    fn take_blocks(
        &self,
        blocks: &mut Blocks,
        count: usize,
        reach: Reach,
    ) -> Result<(usize, usize), Full> {
        let n_blocks = blocks.all.len();
        if count > n_blocks {
            return Err(Full::Exhausted);
        }
        let used = n_blocks - blocks.n_free + count;
        if reach == Reach::Limit && used > self.limit_blocks.load(Relaxed) {
            return Err(Full::Collect);
        }
        // Only a collector that runs beside the program leaves others the time to use a reserve.
        let reserved = if self.cards.is_none() || reach == Reach::Reserve {
            0
        } else {
            reserved(n_blocks) + self.held_back.load(Relaxed)
        };
        if used > n_blocks - reserved {
            return Err(Full::Exhausted);
        }
        let found = self
            .free_run(blocks.next..n_blocks, count)
            .or_else(|| self.free_run(blocks.n_frozen..n_blocks, count))
            .ok_or(Full::Exhausted)?;
        blocks.n_free -= count;
        blocks.n_taken += count;
        blocks.next = if found + count < n_blocks { found + count } else { blocks.n_frozen };
        let n_old = blocks.n_touched.saturating_sub(found).min(count);
        blocks.n_touched = blocks.n_touched.max(found + count);
        Ok((found, n_old * BLOCK_BYTES as usize))
    }

    /// The first of `count` free blocks side by side.
    fn free_run(&self, within: Range<usize>, count: usize) -> Option<usize> {
        let mut start = within.start;
        for index in within {
            if self.used(index) != Use::Free {
                start = index + 1;
            } else if index + 1 - start == count {
                return Some(start);
            }
        }
        None
    }

    /// Frees the blocks of a large object, or a block without objects.
    fn free_blocks(&self, blocks: &mut Blocks, first: usize, count: usize) {
        if let Some(cards) = &self.cards {
            // Links of free cells may be references in another division of the block.
            cards.forget(self.address_of(first), count as u32 * BLOCK_BYTES);
        }
        for index in first..first + count {
            self.set_use(index, Use::Free);
            blocks.all[index] = UNUSED;
        }
        blocks.n_free += count;
    }

    /// Gives a block's free cells to whoever needs some, or the whole block if all are free.
    fn offer(&self, blocks: &mut Blocks, block: usize, size: u8, cells: FreeCells) {
        let FreeCells { free, n_free, tail } = cells;
        if u32::from(n_free) == BLOCK_BYTES / SIZES[size as usize] {
            self.free_blocks(blocks, block, 1);
            return;
        }
        let is_listed = n_free > 0;
        if is_listed && !blocks.all[block].is_listed {
            blocks.lists[size as usize].push(block as u32);
        }
        blocks.all[block] = Block { period: NO_PERIOD, free, n_free, tail, is_listed };
    }

    /// Makes a list of the free cells of a block, which no allocator has, without those of its
    /// tail. `tail` is where the tail began at the collection before.
    ///
    /// # Safety
    /// Nobody uses a cell that `is_free` tells to be free. From `tail` on, those that nobody has
    /// used are zero, and a free cell whose first two words are zero is one of these.
    unsafe fn free_cells(
        &self,
        block: usize,
        size: u8,
        tail: u16,
        is_free: impl Fn(u32) -> bool,
    ) -> FreeCells {
        let (at, cell) = (self.address_of(block), SIZES[size as usize]);
        let n_cells = BLOCK_BYTES / cell;
        let mut cells = FreeCells { free: 0, n_free: 0, tail: n_cells as u16 };
        for nth in (0..n_cells).rev() {
            let address = at + nth * cell;
            if !is_free(address) {
                continue;
            }
            cells.n_free += 1;
            let is_next = nth + 1 == u32::from(cells.tail) && nth >= u32::from(tail);
            // SAFETY: the first words of a cell; it is free, by the caller's promise.
            unsafe {
                if is_next && load64(address, Relaxed) == 0 {
                    cells.tail = nth as u16;
                } else {
                    push_free(&mut cells.free, address);
                }
            }
        }
        cells
    }
}

/// Blocks that only real-time threads may use.
fn reserved(n_blocks: usize) -> usize {
    n_blocks / 32
}

fn first_limit(n_blocks: usize) -> usize {
    (n_blocks / 4).max(64).min(n_blocks)
}

/// Puts a cell in front of a list of free cells.
///
/// # Safety
/// The cell is a cell of a block, and no object.
unsafe fn push_free(list: &mut u32, cell: u32) {
    // SAFETY: by the caller's promise.
    unsafe {
        store32(cell, 0, Relaxed);
        store32(cell + LINK, *list, Relaxed);
    }
    *list = cell;
}

#[cfg(test)]
mod tests;
