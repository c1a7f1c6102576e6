//! Counter: threads of a simulation work at every point at which the collector lets them, and come
//! to their stages in any order.

use super::{Random, frozen_words, objects, shape};
use crate::cards::{Acting, Cards, Mutator, Stage, Step, before_store, keeps_referent};
use crate::heap::{Allocator, Collector, Counter, Heap, Reach, Strength, World};
use crate::memory::{load32, store32};
use crate::object::{ELEMENTS, Kind, Ref, Shape, Sort, copy_elements};
use std::cell::RefCell;
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
}

/// How many seeds to try: `BATON_SEEDS` in the environment, few without.
fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("BATON_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

#[test]
fn random_histories_free_what_nothing_reaches_and_nothing_else() {
    for seed in seeds() {
        let simulation = Simulation::new(seed);
        let mut counting = Counter::new(simulation.cards.clone(), Stage::default());
        let verify = |counting: &Counter| {
            // SAFETY: no thread of the simulation is in a step.
            unsafe { counting.verify(&simulation.heap, &simulation) }
        };
        for collection in 0..40 {
            (0..40).for_each(|_| simulation.step());
            // SAFETY: the simulation tells all roots.
            unsafe { counting.collect(&simulation.heap, &simulation) };
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
        let mut counting = Counter::new(simulation.cards.clone(), Stage::default());
        for _ in 0..5 {
            (0..60).for_each(|_| simulation.step());
            // SAFETY: the simulation tells all roots.
            unsafe { counting.collect(heap, &simulation) };
        }
        settle(&simulation, &mut counting);
        let frozen = objects(heap);
        // SAFETY: no thread works, and the allocators begin afresh.
        unsafe { heap.freeze() };
        for actor in &mut simulation.state.borrow_mut().actors {
            actor.allocator = Allocator::new();
        }
        // What a child of fork has: a collector that knows nothing of frozen objects.
        let mut counting = Counter::new(simulation.cards.clone(), simulation.collector.stage());
        for collection in 0..30 {
            (0..40).for_each(|_| simulation.step());
            let quiet = Quiet(&simulation);
            let before = frozen_words(heap);
            // SAFETY: no thread works.
            unsafe { counting.collect(heap, &quiet) };
            let mut after = frozen_words(heap);
            forget_referents(&simulation, &frozen, &before, &mut after);
            assert!(before == after, "{seed}/{collection}: a frozen block was written to");
            // SAFETY: the simulation tells all roots.
            unsafe { counting.collect(heap, &simulation) };
            // SAFETY: no thread of the simulation is in a step.
            let verified = unsafe { counting.verify(heap, &simulation) };
            verified.unwrap_or_else(|wrong| panic!("{seed}/{collection}: {wrong:?}"));
            assert!(frozen.iter().all(|object| object.exists()));
            simulation.reachable();
        }
        let quiet = Quiet(&simulation);
        for _ in 0..2 {
            // SAFETY: no thread works.
            unsafe { counting.collect(heap, &quiet) };
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
    let quiet = Quiet(simulation);
    for _ in 0..2 {
        // SAFETY: no thread works.
        unsafe { counting.collect(&simulation.heap, &quiet) };
    }
    let (all, live) = (objects(&simulation.heap), simulation.reachable());
    assert!(live.is_subset(&all));
    assert_eq!(all.len(), live.len(), "objects that nothing reaches are left");
}

/// The simulation while no thread does anything but come to its stages.
struct Quiet<'a>(&'a Simulation);

impl World for Quiet<'_> {
    fn reach_stage(&self, stage: Stage) {
        let state = self.0.state.borrow();
        for actor in &state.actors {
            if stage.step() == Step::Scanned {
                actor.roots.iter().for_each(|root| self.0.cards.reach(root.address()));
            }
            actor.mutator.advance(stage);
        }
        self.0.collector.advance(stage);
    }

    fn each_root(&self, with: &mut dyn FnMut(Ref)) {
        with(self.0.state.borrow().shared);
    }

    fn strength(&self, reference: Ref) -> Strength {
        self.0.strength(reference)
    }

    fn clear(&self, reference: Ref) -> bool {
        // SAFETY: null is a reference.
        unsafe { store32(reference.address() + REFERENT, 0, Relaxed) };
        false
    }

    fn finalize(&self, reference: Ref, object: Ref) {
        self.0.finalize(reference, object);
    }

    fn free(&self, _: Ref) {}
}
