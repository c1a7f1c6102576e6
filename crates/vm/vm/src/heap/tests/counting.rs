//! Counter: threads of a simulation work at every point at which the collector lets them, and come
//! to their stages in any order.

use super::{Random, frozen_words, objects, shape};
use crate::cards::{Acting, Cards, Mutator, Stage, Step, before_store, keeps_referent};
use crate::heap::{
    Allocator, BLOCK_BYTES, Collector, Counter, Heap, Reach, Search, Strength, World,
};
use crate::memory::{load32, store32};
use crate::object::{ELEMENTS, Kind, Ref, Shape, Sort, copy_elements};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const N_THREADS: usize = 3;
const N_ROOTS: usize = 6;
/// A root that a thread changes rarely: its weak reference.
const WEAK: usize = N_ROOTS - 1;
/// Where a weak reference of the simulation has its referent, and a plain field.
const REFERENT: u32 = 12;
const NEXT: u32 = 16;

struct Actor {
    mutator: Arc<Mutator>,
    allocator: Allocator,
    roots: [Ref; N_ROOTS],
}

struct State {
    random: Random,
    actors: Vec<Actor>,
    shared: Ref,
}

struct Simulation {
    heap: Heap,
    cards: Arc<Cards>,
    array: &'static Shape,
    weak: &'static Shape,
    state: RefCell<State>,
    collector: Arc<Mutator>,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let heap = Heap::map(1 << 20, Collector::Counting).unwrap();
        let cards = heap.cards().unwrap().clone();
        let mutator = || Arc::new(Mutator::new(cards.clone(), Stage::default()));
        let actor =
            || Actor { mutator: mutator(), allocator: Allocator::new(), roots: Default::default() };
        let actors = (0..N_THREADS).map(|_| actor()).collect();
        Simulation {
            heap,
            array: shape(Sort::Array(Kind::Reference), 0, &[]),
            weak: shape(Sort::Reference(REFERENT), 24, &[NEXT]),
            state: RefCell::new(State { random: Random::of(seed), actors, shared: Ref::NULL }),
            collector: mutator(),
            cards,
        }
    }

    /// Lets a random thread do something.
    fn step(&self) {
        let State { random, actors, shared, .. } = &mut *self.state.borrow_mut();
        let index = random.below(N_THREADS as u64) as usize;
        let Actor { mutator, allocator, roots } = &mut actors[index];
        let acting = Acting::new(mutator.clone());
        let mut root = || random.below(WEAK as u64) as usize;
        let (one, other) = (root(), root());
        let period = mutator.stage().epoch();
        let is_array = |object: Ref| !object.is_null() && object.is_array() && object.length() > 0;
        match random.below(100) {
            0..18 => {
                let length = match random.below(40) {
                    0 => 500 + random.below(3000) as u32,
                    _ => random.below(24) as u32,
                };
                let n_bytes = u64::from(ELEMENTS + 4 * length);
                let made = self.heap.allocate(
                    allocator,
                    period,
                    Reach::Whole,
                    self.array,
                    n_bytes,
                    Some(length),
                );
                let Ok(object) = made else { return };
                assert!((0..length).all(|index| object.get_ref(index).is_null()));
                if length > 0 {
                    object.set_ref(0, roots[one]);
                }
                roots[one] = object;
            }
            18..50 if is_array(roots[one]) => {
                let index = random.below(u64::from(roots[one].length())) as u32;
                roots[one].set_ref(index, roots[other]);
            }
            50..65 if is_array(roots[one]) => {
                let index = random.below(u64::from(roots[one].length())) as u32;
                roots[other] = roots[one].get_ref(index);
            }
            65..73 => roots[one] = Ref::NULL,
            73..78 => {
                let made = self.heap.allocate(allocator, period, Reach::Whole, self.weak, 24, None);
                let Ok(object) = made else { return };
                // SAFETY: a word of the object that holds a reference.
                unsafe {
                    before_store(object.address() + REFERENT, roots[one].address());
                    store32(object.address() + REFERENT, roots[one].address(), Relaxed);
                }
                let is_kept = roots[WEAK].is_null() || random.below(20) == 0;
                roots[if is_kept { WEAK } else { other }] = object;
            }
            78..87 if !roots[WEAK].is_null() => {
                let referent = self.referent(roots[WEAK]);
                if !referent.is_null() && keeps_referent(referent.address()) {
                    assert!(referent.exists());
                    roots[other] = referent;
                }
            }
            87..91 => {
                // A root of all threads.
                crate::cards::note_root(roots[one].address());
                *shared = roots[one];
            }
            91..97 => roots[other] = *shared,
            97.. if is_array(roots[one]) && is_array(roots[other]) => {
                let (from, to) = (roots[one], roots[other]);
                let count = random.below(u64::from(from.length().min(to.length())) + 1) as u32;
                copy_elements(from, from.length() - count, to, 0, count);
            }
            _ => {}
        }
        drop(acting);
    }

    fn steps(&self) {
        let count = self.state.borrow_mut().random.below(20);
        (0..count).for_each(|_| self.step());
    }

    fn referent(&self, reference: Ref) -> Ref {
        // SAFETY: the word holds a reference.
        unsafe { Ref::from_address(load32(reference.address() + REFERENT, Relaxed)) }
    }

    fn reachable(&self) -> HashSet<Ref> {
        let state = self.state.borrow();
        let roots = state.actors.iter().flat_map(|actor| actor.roots).chain([state.shared]);
        closure(roots)
    }
}

impl World for Simulation {
    fn reach_stage(&self, stage: Stage) {
        self.steps();
        self.collector.advance(stage);
        loop {
            let behind: Vec<usize> = {
                let actors = &self.state.borrow().actors;
                (0..N_THREADS).filter(|index| actors[*index].mutator.stage() != stage).collect()
            };
            if behind.is_empty() {
                return;
            }
            {
                let State { random, actors, .. } = &mut *self.state.borrow_mut();
                let actor = &actors[behind[random.below(behind.len() as u64) as usize]];
                if stage.step() == Step::Scanned {
                    actor.roots.iter().for_each(|root| self.cards.reach(root.address()));
                }
                actor.mutator.advance(stage);
            }
            self.steps();
        }
    }

    fn each_root(&self, with: &mut dyn FnMut(Ref)) {
        self.steps();
        with(self.state.borrow().shared);
        self.steps();
    }

    fn strength(&self, _: Ref) -> Strength {
        Strength::Weak
    }

    fn clear(&self, reference: Ref) -> bool {
        // Others may just be using the reference.
        (0..5).for_each(|_| self.steps());
        // SAFETY: null is a reference.
        unsafe { store32(reference.address() + REFERENT, 0, Relaxed) };
        false
    }

    fn finalize(&self, _: Ref, _: Ref) {
        unreachable!("no reference of the simulation is a finalizer's");
    }

    fn free(&self, object: Ref) {
        // What is reachable is checked after each collection, too: this finds out who freed it.
        if self.state.borrow_mut().random.below(32) == 0 {
            assert!(!self.reachable().contains(&object), "an object that is reachable is freed");
        }
        self.steps();
    }

    fn released(&self) {
        self.steps();
    }

    fn is_awaited(&self) -> bool {
        self.state.borrow_mut().random.below(8) == 0
    }
}

/// How many seeds to try: `BATON_SEEDS` in the environment, few without.
fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("BATON_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

#[test]
fn random_histories_free_what_nothing_reaches_and_nothing_else() {
    for seed in seeds() {
        let simulation = Simulation::new(seed);
        let portion = 1 << (seed % 8);
        let mut counting = Counter::new(simulation.cards.clone(), Stage::default(), portion);
        let verify = |counting: &Counter| {
            // SAFETY: no thread of the simulation is in a step.
            unsafe { counting.verify(&simulation.heap, &simulation) }
        };
        for collection in 0..40 {
            (0..40).for_each(|_| simulation.step());
            let search = if collection % 4 == 3 { Search::Whole } else { Search::Part };
            // SAFETY: the simulation tells all roots.
            unsafe { counting.collect(&simulation.heap, &simulation, search) };
            verify(&counting).unwrap_or_else(|wrong| panic!("{seed}/{collection}: {wrong:?}"));
            for object in simulation.reachable() {
                let referent = match object.is_array() {
                    true => Ref::NULL,
                    false => simulation.referent(object),
                };
                assert!(referent.is_null() || referent.exists());
            }
        }
        settle(&simulation, &mut counting);
    }
}

/// The histories go on after a freeze: what is frozen stays, the collector writes nothing there,
/// and young objects are freed as always.
#[test]
fn random_histories_go_on_after_a_freeze() {
    for seed in seeds() {
        let simulation = Simulation::new(seed);
        let heap = &simulation.heap;
        let mut counting = Counter::new(simulation.cards.clone(), Stage::default(), PORTION);
        for _ in 0..5 {
            (0..60).for_each(|_| simulation.step());
            // SAFETY: the simulation tells all roots.
            unsafe { counting.collect(heap, &simulation, Search::Whole) };
        }
        settle(&simulation, &mut counting);
        let frozen = objects(heap);
        // SAFETY: no thread works, and the allocators begin afresh.
        unsafe { heap.freeze() };
        for actor in &mut simulation.state.borrow_mut().actors {
            actor.allocator = Allocator::new();
        }
        // What a child of fork has: a collector that knows nothing of frozen objects.
        let stage = simulation.collector.stage();
        let mut counting = Counter::new(simulation.cards.clone(), stage, PORTION);
        for collection in 0..30 {
            (0..40).for_each(|_| simulation.step());
            let quiet = Quiet::of(&simulation);
            let before = frozen_words(heap);
            // SAFETY: no thread works.
            unsafe { counting.collect(heap, &quiet, Search::Whole) };
            let mut after = frozen_words(heap);
            forget_referents(&simulation, &frozen, &before, &mut after);
            assert!(before == after, "{seed}/{collection}: a frozen block was written to");
            // SAFETY: the simulation tells all roots.
            unsafe { counting.collect(heap, &simulation, Search::Whole) };
            // SAFETY: no thread of the simulation is in a step.
            let verified = unsafe { counting.verify(heap, &simulation) };
            verified.unwrap_or_else(|wrong| panic!("{seed}/{collection}: {wrong:?}"));
            assert!(frozen.iter().all(|object| object.exists()));
            simulation.reachable();
        }
        let quiet = Quiet::of(&simulation);
        for _ in 0..2 {
            // SAFETY: no thread works.
            unsafe { counting.collect(heap, &quiet, Search::Whole) };
        }
        let mut live = simulation.reachable();
        live.extend(closure(frozen.iter().copied()));
        assert_eq!(objects(heap), live, "{seed}: too much is left, or too little");
    }
}

/// A frozen weak reference whose referent is gone is cleared: the only write to a frozen object.
fn forget_referents(
    simulation: &Simulation,
    frozen: &HashSet<Ref>,
    before: &[u32],
    after: &mut [u32],
) {
    for object in frozen.iter().filter(|it| !it.is_array()) {
        let word = (object.address() + REFERENT - simulation.heap.region.start()) as usize / 4;
        if after[word] == 0 {
            after[word] = before[word];
        }
    }
}

/// All that these objects reach.
fn closure(roots: impl Iterator<Item = Ref>) -> HashSet<Ref> {
    let mut open: Vec<Ref> = roots.filter(|it| !it.is_null()).collect();
    let mut found = HashSet::new();
    while let Some(object) = open.pop() {
        if found.insert(object) {
            assert!(object.exists(), "an object that is reachable was freed");
            object.each_reference(|to| open.push(to));
        }
    }
    found
}

/// Without work in between, two collections free all garbage.
fn settle(simulation: &Simulation, counting: &mut Counter) {
    let quiet = Quiet::of(simulation);
    for _ in 0..2 {
        // SAFETY: no thread works.
        unsafe { counting.collect(&simulation.heap, &quiet, Search::Whole) };
    }
    let (all, live) = (objects(&simulation.heap), simulation.reachable());
    assert!(live.is_subset(&all));
    assert_eq!(all.len(), live.len(), "objects that nothing reaches are left");
}

/// The simulation while no thread does anything but come to its stages.
struct Quiet<'a> {
    simulation: &'a Simulation,
    is_awaited: bool,
    /// How many objects there were each time that memory had been given away
    left: RefCell<Vec<usize>>,
    n_stages: Cell<usize>,
}

impl Quiet<'_> {
    fn of(simulation: &Simulation) -> Quiet<'_> {
        Quiet { simulation, is_awaited: false, left: RefCell::default(), n_stages: Cell::new(0) }
    }
}

impl World for Quiet<'_> {
    fn reach_stage(&self, stage: Stage) {
        self.n_stages.update(|n| n + 1);
        let state = self.simulation.state.borrow();
        for actor in &state.actors {
            if stage.step() == Step::Scanned {
                let reach = |root: &Ref| self.simulation.cards.reach(root.address());
                actor.roots.iter().for_each(reach);
            }
            actor.mutator.advance(stage);
        }
        self.simulation.collector.advance(stage);
    }

    fn each_root(&self, with: &mut dyn FnMut(Ref)) {
        with(self.simulation.state.borrow().shared);
    }

    fn strength(&self, reference: Ref) -> Strength {
        self.simulation.strength(reference)
    }

    fn clear(&self, reference: Ref) -> bool {
        // SAFETY: null is a reference.
        unsafe { store32(reference.address() + REFERENT, 0, Relaxed) };
        false
    }

    fn finalize(&self, reference: Ref, object: Ref) {
        self.simulation.finalize(reference, object);
    }

    fn free(&self, _: Ref) {}

    fn released(&self) {
        self.left.borrow_mut().push(objects(&self.simulation.heap).len());
    }

    fn is_awaited(&self) -> bool {
        self.is_awaited
    }
}

/// The first thread makes a list of arrays with two elements, the first of which is the next one.
/// Returns its first object; the last one refers to it if the list is to be a ring.
fn list(simulation: &Simulation, n: usize, is_ring: bool) -> Ref {
    let Actor { mutator, allocator, .. } = &mut simulation.state.borrow_mut().actors[0];
    let _acting = Acting::new(mutator.clone());
    let mut make = |next: Ref| {
        let (period, n_bytes) = (mutator.stage().epoch(), u64::from(ELEMENTS + 8));
        let reach = Reach::Whole;
        let array = simulation.array;
        let made = simulation.heap.allocate(allocator, period, reach, array, n_bytes, Some(2));
        let object = made.expect("the heap is large enough");
        object.set_ref(0, next);
        object
    };
    let last = make(Ref::NULL);
    let first = (1..n).fold(last, |next, _| make(next));
    if is_ring {
        last.set_ref(0, first);
    }
    first
}

/// The first thread stores a second reference into an object of a list.
fn refer(simulation: &Simulation, from: Ref, to: Ref) {
    let _acting = Acting::new(simulation.state.borrow().actors[0].mutator.clone());
    from.set_ref(1, to);
}

/// Keeps an object by another one, which is on a stack.
fn hold(simulation: &Simulation, object: Ref) {
    let holder = list(simulation, 1, false);
    refer(simulation, holder, object);
    simulation.state.borrow_mut().actors[0].roots[0] = holder;
}

/// Objects that are freed before memory is given away.
const PORTION: usize = 256;

/// The simulation's heap and a collector, without a history.
fn empty() -> (Simulation, Counter) {
    let simulation = Simulation::new(1);
    let counting = Counter::new(simulation.cards.clone(), Stage::default(), PORTION);
    (simulation, counting)
}

fn collect(counting: &mut Counter, quiet: &Quiet<'_>, search: Search) -> crate::heap::Summary {
    let heap = &quiet.simulation.heap;
    // SAFETY: no thread works.
    let summary = unsafe { counting.collect(heap, quiet, search) };
    // SAFETY: as above.
    unsafe { counting.verify(heap, quiet) }.unwrap_or_else(|wrong| panic!("{wrong:?}"));
    summary
}

#[test]
fn what_counts_tell_is_given_away_before_a_search() {
    let (simulation, mut counting) = empty();
    list(&simulation, 1000, false);
    for _ in 0..100 {
        list(&simulation, 10, true);
    }
    let quiet = Quiet::of(&simulation);
    let summary = collect(&mut counting, &quiet, Search::Part);
    assert_eq!((summary.n_freed, summary.n_in_cycles), (2000, 1000));
    let left = quiet.left.take();
    assert_eq!(left[..4], [1744, 1488, 1232, 1000]);
    assert!(left[4..].is_sorted_by(|more, less| more > less) && left.ends_with(&[0]), "{left:?}");
    assert_eq!(quiet.n_stages.take(), 3 + left.len());
    collect(&mut counting, &quiet, Search::Part);
    assert_eq!(quiet.n_stages.get(), 4, "nothing was to be searched");
}

#[test]
fn a_search_gives_memory_away_portion_by_portion() {
    let (simulation, mut counting) = empty();
    for _ in 0..500 {
        list(&simulation, 10, true);
    }
    let quiet = Quiet::of(&simulation);
    let summary = collect(&mut counting, &quiet, Search::Part);
    assert_eq!((summary.n_freed, summary.n_searched), (5000, 5000));
    let left = quiet.left.take();
    assert!(left.len() > 2 && left.is_sorted_by(|more, less| more >= less), "{left:?}");
}

#[test]
fn a_search_costs_no_more_than_twice_what_was_allocated() {
    let (simulation, mut counting) = empty();
    let quiet = Quiet::of(&simulation);
    // Much is in use, and each new object refers to it.
    let root = list(&simulation, 5000, true);
    hold(&simulation, root);
    let (mut n_new, mut n_searched) = (5001, 0);
    for _ in 0..200 {
        refer(&simulation, list(&simulation, 100, true), root);
        n_new += 100;
        n_searched += collect(&mut counting, &quiet, Search::Part).n_searched;
        assert!(n_searched <= 2 * n_new, "{n_searched} of {n_new}");
    }
    let n_left = objects(&simulation.heap).len();
    assert!(n_left < 5000 + 12_000, "{n_left} objects are left of 25,000");
    collect(&mut counting, &quiet, Search::Whole);
    assert_eq!(objects(&simulation.heap).len(), 5001);
}

#[test]
fn a_ring_that_is_larger_than_a_portion_is_found() {
    let (simulation, mut counting) = empty();
    let mut quiet = Quiet::of(&simulation);
    quiet.is_awaited = true;
    list(&simulation, 4000, true);
    let mut n_collections = 0;
    while collect(&mut counting, &quiet, Search::Part).n_in_cycles == 0 {
        n_collections += 1;
        assert!(n_collections < 20);
    }
    // A portion of 256 objects, and twice as many each time, as the program has paid for 8,000.
    assert_eq!(n_collections, 4);
    assert_eq!(objects(&simulation.heap).len(), 0);
}

#[test]
fn a_search_stops_for_threads_that_wait_unless_it_frees_memory() {
    let (simulation, mut counting) = empty();
    let mut quiet = Quiet::of(&simulation);
    let mut live = Ref::NULL;
    for _ in 0..400 {
        let ring = list(&simulation, 10, true);
        refer(&simulation, ring, live);
        live = ring;
    }
    hold(&simulation, live);
    quiet.is_awaited = true;
    let summary = collect(&mut counting, &quiet, Search::Part);
    assert!((1..2000).contains(&summary.n_searched), "{summary:?}");
    quiet.is_awaited = false;
    let summary = collect(&mut counting, &quiet, Search::Part);
    assert!(summary.n_searched >= 2000, "{summary:?}");
}

#[test]
fn the_tail_of_a_block_is_zero_until_it_is_used() {
    let (simulation, mut counting) = empty();
    let quiet = Quiet::of(&simulation);
    let mut n_used = 0;
    for n in [10, 30, 5, 100] {
        let first = list(&simulation, n, false);
        hold(&simulation, first);
        n_used = n_used.max(objects(&simulation.heap).len());
        collect(&mut counting, &quiet, Search::Whole);
        let heap = &simulation.heap;
        assert_eq!(heap.used_bytes(), BLOCK_BYTES as usize, "cells are used again");
        let tail = heap.region.start() + n_used as u32 * (ELEMENTS + 8);
        for word in (tail..heap.region.start() + BLOCK_BYTES).step_by(4) {
            // SAFETY: the word lies in the heap.
            assert_eq!(unsafe { load32(word, Relaxed) }, 0, "a word of the tail");
        }
    }
}
