//! How the memory of a heap is used, and how much of it is in small pieces.

use super::{BLOCK_BYTES, Heap, NO_PERIOD, SIZES, Use};
use std::fmt;

/// Blocks that are looked at while other threads wait for the lock.
const AT_ONCE: usize = 256;

/// A heap's memory in bytes. Threads that allocate meanwhile may have changed it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// The heap's size
    pub max: usize,
    /// In blocks that are in use
    pub used: usize,
    /// Of that, in free cells; those that threads have taken to allocate from are left out
    pub free_in_cells: usize,
    /// The longest run of free blocks: the largest object that fits
    pub longest_free: usize,
}

impl Statistics {
    /// The memory of objects, and of cells that threads have taken.
    pub fn live(&self) -> usize {
        self.used - self.free_in_cells
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [max, used, free, longest] =
            [self.max, self.used, self.free_in_cells, self.longest_free].map(|bytes| bytes / 1024);
        write!(to, "{used} of {max} KiB in use, {free} KiB of them free in cells, ")?;
        write!(to, "longest free run {longest} KiB")
    }
}

impl Heap {
    /// How the memory is used.
    pub fn statistics(&self) -> Statistics {
        let mut found = Statistics { max: self.max_bytes(), ..Statistics::default() };
        let mut run = 0;
        for first in (0..self.n_blocks()).step_by(AT_ONCE) {
            let blocks = self.lock();
            for index in first..self.n_blocks().min(first + AT_ONCE) {
                let of = self.used(index);
                if of == Use::Free {
                    run += BLOCK_BYTES as usize;
                    found.longest_free = found.longest_free.max(run);
                    continue;
                }
                run = 0;
                found.used += BLOCK_BYTES as usize;
                let block = &blocks.all[index];
                if let Use::Cells(size) = of
                    && block.period == NO_PERIOD
                {
                    found.free_in_cells += block.n_free as usize * SIZES[size as usize] as usize;
                }
            }
        }
        found
    }
}
