//! The receive buffer's allocator: best fit over the offsets of the mapping, neighbours coalesced.
//!
//! No header lies inside the mapping: a buffer is exactly what the program may read. One-way
//! transactions together may take half of the mapping. Sizes and rules follow what the kernel's
//! driver shows to programs; the algorithm is Knuth, TAOCP 1, 2.5, best fit with boundary merge.

use std::collections::{BTreeMap, BTreeSet};

/// Offset of a buffer in the mapping: its name.
pub type Offset = usize;

/// Free and used ranges of one mapping.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    bytes: usize,
    one_way_free: usize,
    used: BTreeMap<Offset, Used>,
    free_by_offset: BTreeMap<Offset, usize>,
    free_by_size: BTreeSet<(usize, Offset)>,
    used_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    bytes: usize,
    one_way: bool,
}

/// Why there is no room. In the kernel's terms ENOSPC, or ESRCH before the first mmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The program has not mapped its receive buffer.
    NotMapped,
    /// No free range is large enough.
    Full,
    /// One-way transactions have used up their half.
    OneWayFull,
}

/// What an allocation of these parts takes.
pub fn allocation_bytes(data: usize, offsets: usize, buffers: usize, label: usize) -> usize {
    let parts = [data, offsets, buffers, label].map(|part| part.next_multiple_of(8));
    // A payload of nothing still has an address of its own, which can be freed.
    parts.iter().sum::<usize>().max(8)
}

impl Buffers {
    /// The mapping has been made.
    pub fn map(&mut self, bytes: usize) {
        debug_assert!(self.used.is_empty());
        *self = Buffers { bytes, one_way_free: bytes / 2, ..Buffers::default() };
        self.insert_free(0, bytes);
    }

    /// Size of the mapping, 0 before it is made.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is left of the half for one-way transactions.
    pub fn one_way_free(&self) -> usize {
        self.one_way_free
    }

    /// The largest range that is free.
    pub fn largest_free(&self) -> usize {
        self.free_by_size.last().map_or(0, |&(bytes, _)| bytes)
    }

    /// Allocated bytes and buffers.
    pub fn used(&self) -> (usize, usize) {
        (self.used_bytes, self.used.len())
    }

    /// Takes a range of `bytes`, a multiple of 8.
    pub fn allocate(&mut self, bytes: usize, one_way: bool) -> Result<Offset, NoRoom> {
        if self.bytes == 0 {
            return Err(NoRoom::NotMapped);
        }
        if one_way && bytes > self.one_way_free {
            return Err(NoRoom::OneWayFull);
        }
        let &(size, offset) = self.free_by_size.range((bytes, 0)..).next().ok_or(NoRoom::Full)?;
        self.remove_free(offset, size);
        if size > bytes {
            self.insert_free(offset + bytes, size - bytes);
        }
        if one_way {
            self.one_way_free -= bytes;
        }
        self.used_bytes += bytes;
        self.used.insert(offset, Used { bytes, one_way });
        Ok(offset)
    }

    /// Gives a range back and says how large it was.
    ///
    /// # Panics
    /// If nothing is allocated there: callers look the buffer up first.
    pub fn release(&mut self, offset: Offset) -> usize {
        let Used { bytes, one_way } = self.used.remove(&offset).expect("an allocated buffer");
        self.used_bytes -= bytes;
        if one_way {
            self.one_way_free += bytes;
        }
        let (mut from, mut size) = (offset, bytes);
        if let Some((&before, &before_size)) = self.free_by_offset.range(..offset).next_back()
            && before + before_size == offset
        {
            self.remove_free(before, before_size);
            (from, size) = (before, before_size + size);
        }
        if let Some(&after_size) = self.free_by_offset.get(&(offset + bytes)) {
            self.remove_free(offset + bytes, after_size);
            size += after_size;
        }
        self.insert_free(from, size);
        bytes
    }

    fn insert_free(&mut self, offset: Offset, bytes: usize) {
        self.free_by_offset.insert(offset, bytes);
        self.free_by_size.insert((bytes, offset));
    }

    fn remove_free(&mut self, offset: Offset, bytes: usize) {
        self.free_by_offset.remove(&offset);
        self.free_by_size.remove(&(bytes, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_coalesce_in_every_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut buffers = Buffers::default();
            buffers.map(4096);
            let taken: Vec<_> = (0..3).map(|_| buffers.allocate(1024, false).unwrap()).collect();
            for index in order {
                assert_eq!(buffers.release(taken[index]), 1024);
            }
            assert_eq!(buffers.allocate(4096, false), Ok(0), "after {order:?}");
        }
    }

    #[test]
    fn the_smallest_range_that_fits_is_taken() {
        let mut buffers = Buffers::default();
        buffers.map(4096);
        let a = buffers.allocate(512, false).unwrap();
        let _fence = buffers.allocate(64, false).unwrap();
        let b = buffers.allocate(128, false).unwrap();
        let _fence = buffers.allocate(64, false).unwrap();
        buffers.release(a);
        buffers.release(b);
        assert_eq!(buffers.allocate(100usize.next_multiple_of(8), false), Ok(b));
        assert_eq!(buffers.allocate(512, false), Ok(a));
    }

    #[test]
    fn one_way_takes_half_and_gives_it_back() {
        let mut buffers = Buffers::default();
        assert_eq!(buffers.allocate(8, false), Err(NoRoom::NotMapped));
        buffers.map(4096);
        let half = buffers.allocate(2048, true).unwrap();
        assert_eq!(buffers.allocate(8, true), Err(NoRoom::OneWayFull));
        assert_eq!(buffers.allocate(4096, false), Err(NoRoom::Full));
        assert!(buffers.allocate(2048, false).is_ok());
        buffers.release(half);
        assert_eq!(buffers.one_way_free(), 2048);
    }

    #[test]
    fn an_empty_payload_has_an_address_of_its_own() {
        let mut buffers = Buffers::default();
        buffers.map(4096);
        let bytes = allocation_bytes(0, 0, 0, 0);
        assert_ne!(buffers.allocate(bytes, false), buffers.allocate(bytes, false));
    }
}
