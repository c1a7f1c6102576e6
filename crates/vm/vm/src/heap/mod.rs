//! The heap: cells of fixed sizes in blocks, and objects of whole blocks.
//!
//! ```text
//! block: 16 KiB of cells of one size, or a part of a large object, or free
//! cell:  an object; or free: class word 0, then the address of the next free cell
//! ```
//!
//! A thread allocates from blocks that it took for itself ([`Allocator`]), without a lock. A
//! collection takes all blocks back: an allocator of an earlier collection ([`Heap::collections`])
//! starts afresh.
//!
//! **Invariant**: a cell is on one free list, or in one allocator's unused rest, or holds one
//! object. Unused rests are zero.

mod collect;

pub use collect::Marker;

use crate::memory::{Region, load32, store32, zero};
use crate::object::{Ref, Shape};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

const BLOCK_BYTES: u32 = 16 << 10;
/// Objects larger than this take whole blocks.
const LARGEST_CELL: u32 = 2048;
const N_SIZES: usize = 32;

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
    /// Another block of a large object
    Rest,
}

/// Free cells of one block, as a list.
#[derive(Clone, Copy, Debug)]
struct FreeList {
    first: u32,
}

#[derive(Debug)]
struct Blocks {
    uses: Vec<Use>,
    n_free: usize,
    /// Where the search for free blocks begins.
    next: usize,
    /// For each size, the free lists of blocks that no allocator has.
    lists: [Vec<FreeList>; N_SIZES],
}

/// Memory for objects.
#[derive(Debug)]
pub struct Heap {
    region: Region,
    blocks: Mutex<Blocks>,
    /// One bit for each multiple of 8 bytes: the object there is marked.
    marks: Box<[AtomicU64]>,
    collections: AtomicU32,
    /// How many blocks may be in use before an allocation asks for a collection.
    limit_blocks: AtomicUsize,
}

/// What one thread allocates from.
#[derive(Debug)]
pub struct Allocator {
    collections: u32,
    sizes: [Rest; N_SIZES],
}

/// What is left of a block: a list of free cells, or zeroed memory from `at` to `end`.
#[derive(Clone, Copy, Default, Debug)]
struct Rest {
    free: u32,
    at: u32,
    end: u32,
}

/// Why there was no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// A collection is due: the heap is as full as the last one allows.
    Collect,
    /// Nothing fits, even if a collection has just been.
    Exhausted,
}

/// Whether an allocation may use more than the last collection allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Up to the limit that the last collection set
    Limit,
    /// The whole heap
    Whole,
}

impl Allocator {
    /// An allocator that has no block yet.
    pub fn new() -> Allocator {
        Allocator { collections: u32::MAX, sizes: [Rest::default(); N_SIZES] }
    }
}

impl Default for Allocator {
    fn default() -> Self {
        Self::new()
    }
}

impl Heap {
    /// A heap of at most `n_bytes`, and at least 1 MiB.
    ///
    /// # Errors
    /// ENOMEM if the memory below 4 GiB is taken.
    pub fn map(n_bytes: usize) -> io::Result<Heap> {
        let n_bytes = n_bytes.max(1 << 20).next_multiple_of(BLOCK_BYTES as usize);
        let region = Region::map(n_bytes)?;
        let n_blocks = n_bytes / BLOCK_BYTES as usize;
        let marks = (0..n_bytes / 8 / 64).map(|_| AtomicU64::new(0)).collect();
        Ok(Heap {
            region,
            blocks: Mutex::new(Blocks {
                uses: vec![Use::Free; n_blocks],
                n_free: n_blocks,
                next: 0,
                lists: Default::default(),
            }),
            marks,
            collections: AtomicU32::new(0),
            limit_blocks: AtomicUsize::new(first_limit(n_blocks)),
        })
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
        let blocks = self.blocks.lock().expect("no holder panics");
        (blocks.uses.len() - blocks.n_free) * BLOCK_BYTES as usize
    }

    /// Makes an object of zeroed fields.
    ///
    /// # Errors
    /// [`Full`] if there is no memory within `reach`.
    #[inline]
    pub fn allocate(
        &self,
        allocator: &mut Allocator,
        reach: Reach,
        shape: &'static Shape,
        n_bytes: u64,
        length: Option<u32>,
    ) -> Result<Ref, Full> {
        if n_bytes > u64::from(LARGEST_CELL) {
            let address = self.take_large(n_bytes, reach)?;
            // SAFETY: the blocks are this call's alone, zeroed and large enough.
            return Ok(unsafe { Ref::create(address, shape, length) });
        }
        if allocator.collections != self.collections.load(Relaxed) {
            *allocator = Allocator { collections: self.collections(), ..Allocator::new() };
        }
        let size = SIZE_INDEX[n_bytes.div_ceil(8) as usize] as usize;
        let cell = SIZES[size];
        let rest = &mut allocator.sizes[size];
        loop {
            let address = if rest.free != 0 {
                let address = rest.free;
                // SAFETY: a free cell of this allocator's list, by the heap's invariant.
                unsafe {
                    rest.free = load32(address + 4, Relaxed);
                    zero(address, cell as usize);
                }
                address
            } else if rest.at + cell <= rest.end {
                rest.at += cell;
                rest.at - cell
            } else {
                *rest = self.take_cells(size, reach)?;
                continue;
            };
            // SAFETY: the cell is this allocator's alone, zero, and large enough.
            return Ok(unsafe { Ref::create(address, shape, length) });
        }
    }

    fn address_of(&self, block: usize) -> u32 {
        self.region.start() + block as u32 * BLOCK_BYTES
    }

    fn take_cells(&self, size: usize, reach: Reach) -> Result<Rest, Full> {
        let mut blocks = self.blocks.lock().expect("no holder panics");
        if let Some(list) = blocks.lists[size].pop() {
            return Ok(Rest { free: list.first, at: 0, end: 0 });
        }
        let block = self.take_blocks(&mut blocks, 1, reach)?;
        blocks.uses[block] = Use::Cells(size as u8);
        let at = self.address_of(block);
        // SAFETY: no object lies in a free block.
        unsafe { zero(at, BLOCK_BYTES as usize) };
        Ok(Rest { free: 0, at, end: at + BLOCK_BYTES })
    }

    fn take_large(&self, n_bytes: u64, reach: Reach) -> Result<u32, Full> {
        let n_blocks = n_bytes.div_ceil(u64::from(BLOCK_BYTES));
        let Ok(n_blocks) = u32::try_from(n_blocks) else { return Err(Full::Exhausted) };
        let at = {
            let mut blocks = self.blocks.lock().expect("no holder panics");
            let first = self.take_blocks(&mut blocks, n_blocks as usize, reach)?;
            blocks.uses[first] = Use::Large(n_blocks);
            blocks.uses[first + 1..first + n_blocks as usize].fill(Use::Rest);
            self.address_of(first)
        };
        // SAFETY: no object lies in these blocks; a collector that sees them finds class word 0.
        unsafe { zero(at, n_blocks as usize * BLOCK_BYTES as usize) };
        Ok(at)
    }

    /// Finds free blocks side by side. The caller says what they are used for.
    fn take_blocks(&self, blocks: &mut Blocks, count: usize, reach: Reach) -> Result<usize, Full> {
        let n_blocks = blocks.uses.len();
        if count > n_blocks {
            return Err(Full::Exhausted);
        }
        let used = n_blocks - blocks.n_free + count;
        if reach == Reach::Limit && used > self.limit_blocks.load(Relaxed) {
            return Err(Full::Collect);
        }
        if count > blocks.n_free {
            return Err(Full::Exhausted);
        }
        let from_next = free_run(&blocks.uses[blocks.next..], count).map(|at| at + blocks.next);
        let found = from_next.or_else(|| free_run(&blocks.uses, count)).ok_or(Full::Exhausted)?;
        blocks.n_free -= count;
        blocks.next = if found + count < n_blocks { found + count } else { 0 };
        Ok(found)
    }
}

fn first_limit(n_blocks: usize) -> usize {
    (n_blocks / 4).max(64).min(n_blocks)
}

/// The first of `count` free blocks side by side.
fn free_run(uses: &[Use], count: usize) -> Option<usize> {
    let mut start = 0;
    for (index, of) in uses.iter().enumerate() {
        if *of != Use::Free {
            start = index + 1;
        } else if index + 1 - start == count {
            return Some(start);
        }
    }
    None
}

/// Puts a cell in front of a list of free cells.
///
/// # Safety
/// The cell is a cell of a block, and no object.
unsafe fn push_free(list: &mut u32, cell: u32) {
    // SAFETY: by the caller's promise.
    unsafe {
        store32(cell, 0, Relaxed);
        store32(cell + 4, *list, Relaxed);
    }
    *list = cell;
}

#[cfg(test)]
mod tests;
