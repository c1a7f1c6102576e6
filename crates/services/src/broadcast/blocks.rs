//! Which blocks of the journal are in use, without a lock.
//!
//! A bit for each block says whether it is taken. A thread first takes as many blocks as it needs
//! off the count of free ones, and then looks for them.
//!
//! **Invariant**: at least as many bits are free as the count and all threads that still look may
//! take together. So a search ends, and no thread waits for another one.
//!
//! Memory order: the bits are cleared before the count is raised. The release of the count pairs
//! with the acquire of the thread that takes from it, which sees bits for as many blocks. The
//! release of a bit pairs with the acquire that sets it: the stores of a block's last owner come
//! before those of the next one.

use super::sync::{AtomicU32, AtomicU64, Ordering};

const BITS: u32 = u64::BITS;

/// Blocks with successive numbers.
#[derive(Debug)]
pub struct Blocks {
    first: u32,
    n_free: AtomicU32,
    taken: Box<[AtomicU64]>,
}

impl Blocks {
    /// Free blocks, `n_blocks` of them from number `first` on.
    pub fn new(first: u32, n_blocks: u32) -> Blocks {
        // Bits behind the last block are never free.
        let word = |at: u32| match n_blocks - at * BITS {
            left if left >= BITS => 0,
            left => u64::MAX << left,
        };
        let taken = (0..n_blocks.div_ceil(BITS)).map(|at| AtomicU64::new(word(at))).collect();
        Blocks { first, n_free: AtomicU32::new(n_blocks), taken }
    }

    /// The number of free blocks.
    pub fn n_free(&self) -> u32 {
        self.n_free.load(Ordering::Relaxed)
    }

    /// Takes any blocks. `None` if there are not as many.
    pub fn take(&self, n_blocks: u32) -> Option<Vec<u32>> {
        let less = |n_free: u32| n_free.checked_sub(n_blocks);
        self.n_free.fetch_update(Ordering::Acquire, Ordering::Relaxed, less).ok()?;
        let mut blocks = Vec::with_capacity(n_blocks as usize);
        while blocks.len() < n_blocks as usize {
            for (at, word) in self.taken.iter().enumerate() {
                self.take_of(at as u32, word, n_blocks as usize, &mut blocks);
            }
        }
        Some(blocks)
    }

    fn take_of(&self, at: u32, word: &AtomicU64, n_blocks: usize, blocks: &mut Vec<u32>) {
        let mut taken = word.load(Ordering::Relaxed);
        while blocks.len() < n_blocks && taken != u64::MAX {
            let bit = taken.trailing_ones();
            let before = word.fetch_or(1 << bit, Ordering::Acquire);
            if before & 1 << bit == 0 {
                blocks.push(self.first + at * BITS + bit);
            }
            taken = before | 1 << bit;
        }
    }

    /// Takes a block that is known to be in use. False if it is none of these, or taken.
    pub fn take_this(&self, block: u32) -> bool {
        let Some(index) = block.checked_sub(self.first) else { return false };
        let Some(word) = self.taken.get((index / BITS) as usize) else { return false };
        let bit = 1 << (index % BITS);
        let is_taken = word.fetch_or(bit, Ordering::Acquire) & bit == 0;
        if is_taken {
            self.n_free.fetch_sub(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Gives blocks back.
    pub fn release(&self, blocks: &[u32]) {
        for block in blocks {
            let index = block - self.first;
            let bit = 1 << (index % BITS);
            self.taken[(index / BITS) as usize].fetch_and(!bit, Ordering::Release);
        }
        self.n_free.fetch_add(blocks.len() as u32, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_taken_once() {
        let blocks = Blocks::new(10, 70);
        let mut taken = blocks.take(69).unwrap();
        assert!(blocks.take(2).is_none());
        taken.extend(blocks.take(1).unwrap());
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(10..80));
        blocks.release(&[75, 11]);
        assert!(blocks.take_this(75) && !blocks.take_this(75));
        assert!(!blocks.take_this(9) && !blocks.take_this(80) && !blocks.take_this(1000));
        assert_eq!((blocks.n_free(), blocks.take(1)), (1, Some(vec![11])));
    }
}

/// The blocks under the model checker: see `queue`.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn threads_that_take_and_release_never_share_a_block() {
        loom::model(|| {
            let blocks = Arc::new(Blocks::new(0, 2));
            let threads = [1, 2].map(|n_blocks| {
                let blocks = Arc::clone(&blocks);
                thread::spawn(move || {
                    let taken = blocks.take(n_blocks);
                    if let Some(taken) = &taken {
                        assert_eq!(taken.len(), n_blocks as usize);
                        blocks.release(taken);
                    }
                })
            });
            let mine = blocks.take(1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let n_left = 2 - mine.as_ref().map_or(0, Vec::len) as u32;
            let rest = blocks.take(n_left).unwrap();
            assert!(rest.iter().all(|block| !mine.iter().flatten().any(|it| it == block)));
        });
    }
}
