//! Mark and sweep.

use super::{Random, frozen_words, objects, shape};
use crate::heap::{Allocator, BLOCK_BYTES, Collector, Full, Heap, Reach};
use crate::memory::{load32, store32};
use crate::object::{ELEMENTS, Kind, Ref, Sort};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

fn reachable(roots: &[Ref], edges: &HashMap<Ref, Vec<Ref>>) -> HashSet<Ref> {
    let mut found = HashSet::new();
    let mut open = roots.to_vec();
    while let Some(object) = open.pop() {
        if !object.is_null() && found.insert(object) {
            open.extend(&edges[&object]);
        }
    }
    found
}

#[test]
fn random_histories_free_what_nothing_reaches() {
    let array = shape(Sort::Array(Kind::Reference), 0, &[]);
    for seed in 1..=20 {
        let mut random = Random::of(seed);
        let heap = Heap::map(4 << 20, Collector::MarkSweep).unwrap();
        let mut allocator = Allocator::new();
        let mut roots = [Ref::NULL; 12];
        let mut edges: HashMap<Ref, Vec<Ref>> = HashMap::new();
        for step in 0..4000 {
            let root = random.below(12) as usize;
            match random.below(100) {
                0..60 => {
                    let length = match random.below(50) {
                        0 => 600 + random.below(9000) as u32,
                        _ => random.below(40) as u32,
                    };
                    let n_bytes = u64::from(ELEMENTS + 4 * length);
                    let made = heap.allocate(
                        &mut allocator,
                        heap.collections(),
                        Reach::Whole,
                        array,
                        n_bytes,
                        Some(length),
                    );
                    let Ok(object) = made else { continue };
                    let before = edges.insert(object, vec![Ref::NULL; length as usize]);
                    assert!(before.is_none(), "seed {seed}, step {step}: a cell in use");
                    assert!((0..length).all(|index| object.get_ref(index).is_null()));
                    if length > 0 {
                        object.set_ref(0, roots[root]);
                        edges.get_mut(&object).unwrap()[0] = roots[root];
                    }
                    roots[root] = object;
                }
                60..90 => {
                    let (from, to) = (roots[root], roots[random.below(12) as usize]);
                    if !from.is_null() && from.length() > 0 {
                        let index = random.below(u64::from(from.length())) as u32;
                        from.set_ref(index, to);
                        edges.get_mut(&from).unwrap()[index as usize] = to;
                    }
                }
                90..99 => roots[root] = Ref::NULL,
                _ => {
                    // SAFETY: the heap is this thread's alone, and its references are the roots.
                    unsafe { heap.collect(|marker| roots.iter().for_each(|it| marker.mark(*it))) };
                    let live = reachable(&roots, &edges);
                    assert_eq!(objects(&heap), live, "seed {seed}, step {step}");
                    edges.retain(|object, _| live.contains(object));
                    // SAFETY: as above.
                    assert_eq!(unsafe { heap.verify() }, Ok(live.len()));
                }
            }
        }
    }
}

#[test]
fn a_full_heap_says_so_and_is_whole_again_after_a_collection() {
    let heap = Heap::map(1 << 20, Collector::MarkSweep).unwrap();
    let bytes = shape(Sort::Array(Kind::Byte), 0, &[]);
    let mut allocator = Allocator::new();
    let mut fill = |n_bytes: u32| {
        let mut count = 0;
        let make = |allocator: &mut _| {
            let total = u64::from(ELEMENTS + n_bytes);
            heap.allocate(allocator, heap.collections(), Reach::Whole, bytes, total, Some(n_bytes))
        };
        while make(&mut allocator).is_ok() {
            count += 1;
        }
        count
    };
    for (n_bytes, expected) in [(100, 64 * (16384 / 128)), (100_000, 9), (2032, 64 * 8)] {
        assert_eq!(fill(n_bytes), expected, "objects of {n_bytes}");
        // SAFETY: nothing uses the objects.
        unsafe { heap.collect(|_| {}) };
        assert_eq!(heap.used_bytes(), 0);
    }
}

#[test]
fn a_collection_is_due_at_the_limit() {
    let heap = Heap::map(16 << 20, Collector::MarkSweep).unwrap();
    let bytes = shape(Sort::Array(Kind::Byte), 0, &[]);
    let allocate = |reach| {
        heap.allocate(&mut Allocator::new(), 0, reach, bytes, 6 << 20, Some((6 << 20) - ELEMENTS))
    };
    assert_eq!(allocate(Reach::Limit), Err(Full::Collect));
    let object = allocate(Reach::Whole).unwrap();
    // SAFETY: the object is the only one.
    unsafe { heap.collect(|marker| marker.mark(object)) };
    assert!(allocate(Reach::Limit).is_ok());
    assert_eq!(allocate(Reach::Whole), Err(Full::Exhausted));
}

#[test]
fn referents_do_not_count() {
    let heap = Heap::map(1 << 20, Collector::MarkSweep).unwrap();
    let reference = shape(Sort::Reference(12), 24, &[16]);
    let mut allocator = Allocator::new();
    let mut make = || {
        heap.allocate(&mut allocator, heap.collections(), Reach::Whole, reference, 24, None)
            .unwrap()
    };
    let (holder, kept, referent) = (make(), make(), make());
    // SAFETY: the words are references by the shape.
    unsafe {
        store32(holder.address() + 12, referent.address(), Relaxed);
        store32(holder.address() + 16, kept.address(), Relaxed);
        heap.collect(|marker| {
            marker.mark(holder);
            marker.trace();
            assert_eq!(marker.take_references(), [holder, kept]);
            assert!(!marker.is_marked(referent));
        });
    }
    assert_eq!(objects(&heap), HashSet::from([holder, kept]));
    // SAFETY: the heap is this thread's alone; the referent is an address, and is not used.
    unsafe {
        assert_eq!(heap.verify(), Err((holder, referent)), "nobody has cleared the reference");
        store32(holder.address() + 12, 0, Relaxed);
        assert_eq!(heap.verify(), Ok(2));
    }
}

#[test]
fn a_collection_writes_nothing_into_frozen_blocks_and_frees_nothing_there() {
    let heap = Heap::map(4 << 20, Collector::MarkSweep).unwrap();
    let array = shape(Sort::Array(Kind::Reference), 0, &[]);
    let make = |allocator: &mut Allocator, length: u32| {
        let n_bytes = u64::from(ELEMENTS + 4 * length);
        let period = heap.collections();
        heap.allocate(allocator, period, Reach::Whole, array, n_bytes, Some(length)).unwrap()
    };
    let mut old = Allocator::new();
    let made: Vec<Ref> = (0..400).map(|nth| make(&mut old, nth * 7 % 900)).collect();
    let frozen: HashSet<Ref> = made.into_iter().step_by(2).collect();
    // SAFETY: the heap is this thread's alone, and the old allocator is not used any more.
    unsafe {
        heap.collect(|marker| frozen.iter().for_each(|it| marker.mark(*it)));
        heap.freeze();
    }
    let mut young = Allocator::new();
    let kept: Vec<Ref> = (0..300).map(|nth| make(&mut young, nth % 40)).collect();
    assert!(kept.iter().min() > frozen.iter().max(), "no young object lies in a frozen block");
    let holder = frozen.iter().copied().find(|it| it.length() > 0).unwrap();
    holder.set_ref(0, kept[7]);
    let words = || frozen_words(&heap);
    let before = words();
    for (root, young) in [(Some(holder), Some(kept[7])), (None, None)] {
        // SAFETY: as above; an object that nothing reaches is not used.
        unsafe { heap.collect(|marker| root.iter().for_each(|it| marker.mark(*it))) };
        assert_eq!(objects(&heap), frozen.iter().copied().chain(young).collect());
        // SAFETY: as above. At last the holder refers to an object that was freed.
        assert_eq!(unsafe { heap.verify() }, Ok(frozen.len() + usize::from(young.is_some())));
        assert!(words() == before, "a collection has written into a frozen block");
    }
}

#[test]
fn a_frozen_heap_is_used_up_to_its_end() {
    let heap = Heap::map(1 << 20, Collector::MarkSweep).unwrap();
    let bytes = shape(Sort::Array(Kind::Byte), 0, &[]);
    let make = |allocator: &mut Allocator| {
        let n_bytes = u64::from(ELEMENTS + 10_000);
        heap.allocate(allocator, heap.collections(), Reach::Whole, bytes, n_bytes, Some(10_000))
    };
    let (mut old, mut young) = (Allocator::new(), Allocator::new());
    let made: Vec<Ref> = (0..8).map(|_| make(&mut old).unwrap()).collect();
    // SAFETY: the heap is this thread's alone.
    unsafe {
        // A free block among frozen ones is lost.
        heap.collect(|marker| made.iter().skip(1).for_each(|it| marker.mark(*it)));
        heap.freeze();
    }
    for _ in 0..3 {
        assert_eq!(std::iter::from_fn(|| make(&mut young).ok()).count(), 64 - 8);
        // SAFETY: nothing uses the objects.
        unsafe { heap.collect(|_| {}) };
    }
}

#[test]
fn the_tail_of_a_block_is_zero_until_it_is_used() {
    let heap = Heap::map(1 << 20, Collector::MarkSweep).unwrap();
    let bytes = shape(Sort::Array(Kind::Byte), 0, &[]);
    let mut allocator = Allocator::new();
    let (cell, n_cells) = (128, BLOCK_BYTES / 128);
    let mut n_used = 0;
    // The last cell of the second round is freed, and stays free in the third one.
    for n_more in [10, 21, 3, n_cells] {
        let kept = objects(&heap);
        let n_objects = n_more.min(n_cells - kept.len() as u32);
        for _ in 0..n_objects {
            let (period, reach) = (heap.collections(), Reach::Whole);
            let made = heap.allocate(&mut allocator, period, reach, bytes, 128, Some(112));
            let object = made.unwrap().address();
            // SAFETY: the words are the object's elements.
            unsafe {
                for word in (object + ELEMENTS..object + cell).step_by(4) {
                    assert_eq!(load32(word, Relaxed), 0, "an element of a new object");
                    store32(word, u32::MAX, Relaxed);
                }
            }
        }
        assert_eq!(heap.used_bytes(), BLOCK_BYTES as usize, "cells are used again");
        n_used = n_used.max(kept.len() as u32 + n_objects);
        let keep = |object: &Ref| (object.address() / cell).is_multiple_of(2);
        let live: Vec<Ref> = objects(&heap).into_iter().filter(keep).collect();
        // SAFETY: nothing uses the other objects.
        unsafe { heap.collect(|marker| live.iter().for_each(|it| marker.mark(*it))) };
        let start = heap.region.start();
        for word in (start + n_used * cell..start + BLOCK_BYTES).step_by(4) {
            // SAFETY: the word lies in the heap.
            assert_eq!(unsafe { load32(word, Relaxed) }, 0, "a word of the tail");
        }
        assert_eq!(heap.statistics().live(), live.len() * cell as usize);
    }
}
