//! The receive buffer's allocator: best fit over the offsets of the mapping, neighbours coalesced.
//!
//! No header lies inside the mapping: a buffer is exactly what the program may read. One-way
//! transactions together may take half of the mapping; those of real-time senders, a quarter more,
//! so that others cannot keep them out. Sizes and rules are those that the kernel's
//! driver shows to programs. The algorithm is Knuth, TAOCP 1, 2.5, best fit with boundary merge.
//!
//! One free range stands outside of the two indices: most allocations are cut from it and come back
//! to it, and touch neither.

use std::collections::{BTreeMap, BTreeSet};

/// Offset of a buffer in the mapping: its name.
pub type Offset = usize;

/// Free ranges of one mapping.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    bytes: usize,
    /// Bytes of one-way transactions.
    one_way_used: usize,
    /// The free range that is in no index; empty if there is none.
    unindexed: Free,
    free_by_offset: BTreeMap<Offset, Free>,
    free_by_size: BTreeSet<Free>,
    used_bytes: usize,
    n_used: usize,
    changes: u64,
}

/// A free range. An allocation takes the smallest range that is large enough, and the oldest of
/// equal ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    bytes: usize,
    /// The number of the change that made the range; unique.
    since: u64,
    offset: Offset,
}

impl Free {
    fn end(self) -> Offset {
        self.offset + self.bytes
    }
}

/// The use of a buffer, which says how much of the mapping such buffers may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// For a call or an answer: all of it.
    Call,
    /// For a one-way transaction: half of it.
    OneWay,
    /// For a one-way transaction of a real-time sender: three quarters, with those of all others.
    RealTimeOneWay,
}

/// Why there is no room. In the kernel's terms ENOSPC, or ESRCH without a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The program has not mapped its receive buffer, or has unmapped it.
    NotMapped,
    /// No free range is large enough.
    Full,
    /// One-way transactions have used up their half.
    OneWayFull,
    /// A one-way transaction that is larger than their half: there will never be room.
    TooLarge,
}

/// Bytes of an allocation of these parts.
pub fn allocation_bytes(data: usize, offsets: usize, buffers: usize, label: usize) -> usize {
    let parts = [data, offsets, buffers, label].map(|part| part.next_multiple_of(8));
    // A payload of nothing still has an address of its own, which can be freed.
    parts.iter().sum::<usize>().max(8)
}

impl Buffers {
    /// Notes that the program has made the mapping.
    pub fn map(&mut self, bytes: usize) {
        debug_assert_eq!(self.n_used, 0);
        let changes = self.changes + 1;
        let unindexed = Free { bytes, since: changes, offset: 0 };
        *self = Buffers { bytes, unindexed, changes, ..Buffers::default() };
    }

    /// Notes that the mapping is gone for good: buffers can be freed, and no new ones are
    /// allocated.
    pub fn unmap(&mut self) {
        self.bytes = 0;
        self.changes += 1;
    }

    /// Size of the mapping, 0 before it is made and once it is gone.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Free bytes of the part of the mapping that messages of this use may take.
    pub fn free(&self, usage: Use) -> usize {
        match usage {
            Use::Call => self.bytes.saturating_sub(self.used_bytes),
            Use::OneWay => (self.bytes / 2).saturating_sub(self.one_way_used),
            Use::RealTimeOneWay => (self.bytes / 4 * 3).saturating_sub(self.one_way_used),
        }
    }

    /// The largest range that is free.
    pub fn largest_free(&self) -> usize {
        self.free_by_size.last().map_or(0, |range| range.bytes).max(self.unindexed.bytes)
    }

    /// The number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Allocated bytes and buffers.
    pub fn used(&self) -> (usize, usize) {
        (self.used_bytes, self.n_used)
    }

    /// Takes a range of `bytes`, a multiple of 8.
    pub fn allocate(&mut self, bytes: usize, usage: Use) -> Result<Offset, NoRoom> {
        if self.bytes == 0 {
            return Err(NoRoom::NotMapped);
        }
        if usage != Use::Call && bytes > self.bytes / 2 {
            return Err(NoRoom::TooLarge);
        }
        if usage != Use::Call && bytes > self.free(usage) {
            return Err(NoRoom::OneWayFull);
        }
        let indexed = self.free_by_size.range(Free { bytes, ..Free::default() }..).next().copied();
        let unindexed = Some(self.unindexed).filter(|unindexed| unindexed.bytes >= bytes);
        let range = indexed.into_iter().chain(unindexed).min().ok_or(NoRoom::Full)?;
        self.changes += 1;
        let since = self.changes;
        let rest = Free { bytes: range.bytes - bytes, since, offset: range.offset + bytes };
        if Some(range) == unindexed {
            self.unindexed = rest;
        } else {
            self.remove_free(range);
            self.insert_free(rest);
        }
        if usage != Use::Call {
            self.one_way_used += bytes;
        }
        self.used_bytes += bytes;
        self.n_used += 1;
        Ok(range.offset)
    }

    /// Gives back a range of [`Buffers::allocate`], of this size and kind.
    pub fn release(&mut self, offset: Offset, bytes: usize, usage: Use) {
        self.used_bytes -= bytes;
        self.n_used -= 1;
        self.changes += 1;
        if usage != Use::Call {
            self.one_way_used -= bytes;
        }
        let mut range = Free { bytes, since: self.changes, offset };
        let before = self.free_by_offset.range(..offset).next_back().map(|(_, &before)| before);
        if let Some(before) = before.filter(|before| before.end() == offset) {
            self.remove_free(before);
            range.bytes += before.bytes;
            range.offset = before.offset;
        }
        if let Some(&after) = self.free_by_offset.get(&range.end()) {
            self.remove_free(after);
            range.bytes += after.bytes;
        }
        if self.unindexed.bytes == 0 || self.unindexed.offset == range.end() {
            self.unindexed = Free { bytes: range.bytes + self.unindexed.bytes, ..range };
        } else if self.unindexed.end() == range.offset {
            self.unindexed.bytes += range.bytes;
            self.unindexed.since = range.since;
        } else {
            self.insert_free(range);
        }
    }

    fn insert_free(&mut self, range: Free) {
        if range.bytes > 0 {
            self.free_by_offset.insert(range.offset, range);
            self.free_by_size.insert(range);
        }
    }

    fn remove_free(&mut self, range: Free) {
        self.free_by_offset.remove(&range.offset);
        self.free_by_size.remove(&range);
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
            let taken: Vec<_> =
                (0..3).map(|_| buffers.allocate(1024, Use::Call).unwrap()).collect();
            for index in order {
                buffers.release(taken[index], 1024, Use::Call);
            }
            assert_eq!(buffers.allocate(4096, Use::Call), Ok(0), "after {order:?}");
        }
    }

    #[test]
    fn the_smallest_range_that_fits_is_taken() {
        let mut buffers = Buffers::default();
        buffers.map(4096);
        let a = buffers.allocate(512, Use::Call).unwrap();
        let _fence = buffers.allocate(64, Use::Call).unwrap();
        let b = buffers.allocate(128, Use::Call).unwrap();
        let _fence = buffers.allocate(64, Use::Call).unwrap();
        buffers.release(a, 512, Use::Call);
        buffers.release(b, 128, Use::Call);
        assert_eq!(buffers.allocate(100usize.next_multiple_of(8), Use::Call), Ok(b));
        assert_eq!(buffers.allocate(512, Use::Call), Ok(a));
    }

    /// Two holes of 256 bytes; whichever is older is taken first, be it cut or whole.
    #[test]
    fn of_equal_ranges_the_oldest_is_taken() {
        for (bytes, later_first) in [(256, false), (256, true), (8, false), (8, true)] {
            let mut buffers = Buffers::default();
            buffers.map(1024);
            let mut places = [0; 4].map(|_| buffers.allocate(256, Use::Call).unwrap());
            if later_first {
                places.swap(0, 2);
            }
            let [older, _, younger, _] = places;
            buffers.release(older, 256, Use::Call);
            buffers.release(younger, 256, Use::Call);
            assert_eq!(buffers.allocate(bytes, Use::Call), Ok(older), "{bytes} bytes");
        }
    }

    /// A range that has grown or been cut is a new one.
    #[test]
    fn a_range_is_as_old_as_its_size() {
        let mut buffers = Buffers::default();
        buffers.map(1024);
        let [first, second, _, end] =
            [128, 128, 256, 512].map(|bytes| buffers.allocate(bytes, Use::Call).unwrap());
        buffers.release(first, 128, Use::Call);
        buffers.release(end, 512, Use::Call);
        buffers.allocate(256, Use::Call).unwrap();
        buffers.release(second, 128, Use::Call);
        // Now 256 bytes at `first`, merged last, and 256 at the end, cut before that.
        assert_eq!(buffers.allocate(8, Use::Call), Ok(end + 256));
    }

    #[test]
    fn one_way_takes_half_and_gives_it_back() {
        let mut buffers = Buffers::default();
        assert_eq!(buffers.allocate(8, Use::Call), Err(NoRoom::NotMapped));
        buffers.map(4096);
        for usage in [Use::OneWay, Use::RealTimeOneWay] {
            assert_eq!(buffers.allocate(2056, usage), Err(NoRoom::TooLarge));
        }
        let half = buffers.allocate(2048, Use::OneWay).unwrap();
        assert_eq!(buffers.allocate(8, Use::OneWay), Err(NoRoom::OneWayFull));
        assert_eq!(buffers.allocate(4096, Use::Call), Err(NoRoom::Full));
        assert!(buffers.allocate(2048, Use::Call).is_ok());
        buffers.release(half, 2048, Use::OneWay);
        assert_eq!(buffers.free(Use::OneWay), 2048);
    }

    #[test]
    fn real_time_senders_find_room_where_others_have_used_up_theirs() {
        let mut buffers = Buffers::default();
        buffers.map(4096);
        let flood = buffers.allocate(2048, Use::OneWay).unwrap();
        let urgent = buffers.allocate(1024, Use::RealTimeOneWay).unwrap();
        assert_eq!(buffers.allocate(8, Use::RealTimeOneWay), Err(NoRoom::OneWayFull));
        assert!(buffers.allocate(1024, Use::Call).is_ok(), "a quarter is left for calls");
        buffers.release(flood, 2048, Use::OneWay);
        assert_eq!(buffers.free(Use::OneWay), 1024);
        buffers.release(urgent, 1024, Use::RealTimeOneWay);
        assert_eq!(buffers.free(Use::OneWay), 2048);
    }

    #[test]
    fn nothing_comes_in_once_the_map_is_gone() {
        let mut buffers = Buffers::default();
        buffers.map(4096);
        let (first, second) =
            (buffers.allocate(8, Use::Call).unwrap(), buffers.allocate(8, Use::OneWay).unwrap());
        buffers.unmap();
        assert_eq!(buffers.allocate(8, Use::Call), Err(NoRoom::NotMapped));
        buffers.release(second, 8, Use::OneWay);
        buffers.release(first, 8, Use::Call);
        assert_eq!(buffers.used(), (0, 0));
        assert_eq!(buffers.allocate(8, Use::OneWay), Err(NoRoom::NotMapped));
    }

    #[test]
    fn an_empty_payload_has_an_address_of_its_own() {
        let mut buffers = Buffers::default();
        buffers.map(4096);
        let bytes = allocation_bytes(0, 0, 0, 0);
        assert_ne!(buffers.allocate(bytes, Use::Call), buffers.allocate(bytes, Use::Call));
    }

    /// Against a list of all gaps, in the order of the mapping.
    #[test]
    fn a_random_history_is_that_of_a_naive_list() {
        use std::hash::{BuildHasher, RandomState};
        let seed = RandomState::new().hash_one(0);
        println!("seed {seed}");
        let mut random = seed | 1;
        let mut below = |bound: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize % bound
        };
        let mut buffers = Buffers::default();
        buffers.map(1024);
        let mut used: BTreeMap<Offset, usize> = BTreeMap::new();
        let mut gaps = naive_gaps(&used, &[], 0);
        for now in 1..20_000 {
            if below(2) == 0
                && let Some((&offset, &bytes)) = used.iter().nth(below(used.len().max(1)))
            {
                used.remove(&offset);
                buffers.release(offset, bytes, Use::Call);
            } else {
                let bytes = 8 * (1 + below(16));
                let best = gaps.iter().filter(|gap| gap.bytes >= bytes).min();
                let expected = best.map(|gap| gap.offset);
                assert_eq!(buffers.allocate(bytes, Use::Call).ok(), expected);
                used.extend(expected.map(|offset| (offset, bytes)));
            }
            gaps = naive_gaps(&used, &gaps, now);
            assert_eq!(buffers.used(), (used.values().sum(), used.len()));
        }
    }

    /// The gaps between `used`; a gap that was there `before` is as old as it was.
    fn naive_gaps(used: &BTreeMap<Offset, usize>, before: &[Free], now: u64) -> Vec<Free> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for (&offset, &bytes) in used.iter().chain([(&1024, &0)]) {
            let same = |gap: &&Free| (gap.offset, gap.end()) == (at, offset);
            let since = before.iter().find(same).map_or(now, |gap| gap.since);
            gaps.extend((offset > at).then_some(Free { bytes: offset - at, since, offset: at }));
            at = offset + bytes;
        }
        gaps
    }
}
