//! Random histories against naive oracles.

mod counting;
mod mark_sweep;
mod statistics;

use super::Heap;
use crate::memory::{Arena, load32};
use crate::object::{Ref, Shape, Sort};
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

fn shape(sort: Sort, instance_bytes: u32, references: &[u32]) -> &'static Shape {
    let arena = Arena::map(4096).unwrap();
    let shape = Shape {
        sort,
        instance_bytes,
        references: references.into(),
        mirror_bytes: 0,
        static_references: Box::default(),
    };
    arena.place(shape).unwrap()
}

/// A generator of pseudo-random numbers: xorshift.
struct Random(u64);

impl Random {
    fn of(seed: u64) -> Random {
        Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn objects(heap: &Heap) -> HashSet<Ref> {
    let mut found = HashSet::new();
    // SAFETY: no thread allocates meanwhile.
    unsafe { heap.each_object(|object| assert!(found.insert(object))) };
    found
}

/// The words of all frozen blocks.
fn frozen_words(heap: &Heap) -> Vec<u32> {
    let end = heap.address_of(heap.lock().n_frozen);
    let words = (heap.region.start()..end).step_by(4);
    // SAFETY: the words lie in the heap.
    words.map(|word| unsafe { load32(word, Relaxed) }).collect()
}
