//! Statistics of a heap's memory.

use super::shape;
use crate::heap::{Allocator, BLOCK_BYTES, Collector, Heap, Reach, Statistics};
use crate::object::{ELEMENTS, Kind, Sort};

#[test]
fn free_cells_and_free_blocks_are_told_apart() {
    let heap = Heap::map(1 << 20, Collector::MarkSweep).unwrap();
    let block = BLOCK_BYTES as usize;
    let empty = Statistics { max: 1 << 20, used: 0, free_in_cells: 0, longest_free: 1 << 20 };
    assert_eq!(heap.statistics(), empty);
    let array = shape(Sort::Array(Kind::Byte), 0, &[]);
    let mut allocator = Allocator::new();
    let mut make = |length: u32| {
        let n_bytes = u64::from(ELEMENTS + length);
        let made = heap.allocate(&mut allocator, 0, Reach::Whole, array, n_bytes, Some(length));
        made.unwrap()
    };
    let small = make(16);
    make(2 * BLOCK_BYTES);
    let used = heap.statistics();
    assert_eq!((used.used, used.free_in_cells), (4 * block, 0), "a thread has the cells");
    // SAFETY: nothing else uses objects.
    unsafe { heap.collect(|marker| marker.mark(small)) };
    let used = heap.statistics();
    assert_eq!((used.used, used.live()), (block, 32));
    assert_eq!(used.longest_free, (1 << 20) - block);
}
