//! The two collectors, and the thread of the one that counts.

use crate::cards::{Cards, Stage};
use crate::class::Class;
use crate::heap::{Counter, Marker, Search, Strength, World};
use crate::monitors::Word;
use crate::object::Ref;
use crate::reference::{self, Strengths};
use crate::requests::Requests;
use crate::vm::{Thread, Vm};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Objects that are freed before memory is given away: for each so many bytes of the heap one,
/// within a range.
const PORTION_SHARE: usize = 1024;
const PORTION: std::ops::RangeInclusive<usize> = 1024..=1 << 16;

/// Starts the thread that counts references, if the VM has one.
///
/// # Errors
/// The system has no more threads.
pub(crate) fn start(vm: &'static Vm) -> std::io::Result<()> {
    let Some(requests) = &vm.requests else { return Ok(()) };
    let spawned = std::thread::Builder::new().name("collector".to_owned()).spawn(move || {
        let t = Thread::attach(vm);
        t.state.is_daemon.store(true, Relaxed);
        t.safe(|| run(&t, requests));
    })?;
    requests.set_thread(spawned.thread().clone());
    Ok(())
}

/// Frees what nothing reaches, and freezes the rest. The calling thread is the VM's only one.
pub(crate) fn freeze(t: &Thread) {
    let vm = t.vm;
    if vm.heap.cards().is_none() {
        mark_and_sweep(t);
    }
    t.safe(|| {
        if let Some(cards) = vm.heap.cards() {
            let world = Program::new(vm);
            let mut counter = counter(vm, cards, vm.threads.stage());
            // SAFETY: the only thread is safe, and has a stage; the roots are complete.
            unsafe { counter.collect(&vm.heap, &world, Search::Whole) };
        }
        // SAFETY: a collection was just made, and the allocator begins afresh below.
        unsafe { vm.heap.freeze() };
    });
    t.allocator.take();
}

/// A collector for the VM's heap.
fn counter(vm: &Vm, cards: &Arc<Cards>, stage: Stage) -> Counter {
    let portion = (vm.heap.max_bytes() / PORTION_SHARE).clamp(*PORTION.start(), *PORTION.end());
    Counter::new(cards.clone(), stage, portion)
}

fn run(t: &Thread, requests: &Requests) {
    let vm = t.vm;
    vm.threads.set_collector();
    let world = Program::new(vm);
    let mutator = t.state.mutator().expect("a VM that counts has mutators");
    let mut counter = counter(vm, mutator.cards(), mutator.stage());
    loop {
        if !vm.options.is_tortured {
            requests.wait();
        }
        let search = requests.begin();
        let (since, n_taken) = (Instant::now(), vm.heap.taken_blocks());
        // What was held back is for the time until this collection gives memory away.
        world.n_taken.set(Some(n_taken));
        vm.heap.hold_back(0);
        requests.released();
        // SAFETY: all threads of the VM have stages, and the roots are complete (see the crate).
        let summary = unsafe { counter.collect(&vm.heap, &world, search) };
        vm.heap.set_limit(vm.heap.taken_blocks() - n_taken);
        if vm.options.reports_collections {
            report(vm, "counting", since, &format!("; {summary}"));
        }
        if vm.options.verify_heap {
            verify(t, &counter, &world);
        }
        requests.end(vm.heap.is_at_limit());
    }
}

/// Tells of a collection on standard error: how long it took, what it did, and the longest pause of
/// each thread so far.
fn report(vm: &Vm, kind: &str, since: Instant, what: &str) {
    let mut text =
        format!("gc: {kind}, {} us; {}{what}", since.elapsed().as_micros(), vm.heap.statistics(),);
    for state in vm.threads.all() {
        let (count, longest) = state.pauses.summary();
        if count > 0 {
            let (name, longest_us) = (state.os_name(), longest.as_micros());
            text += &format!("; thread {name}: {count} pauses, longest {longest_us} us");
        }
    }
    eprintln!("{text}");
}

/// Stops the program and compares all counts with the heap.
fn verify(t: &Thread, counter: &Counter, world: &Program) {
    let stopped = t.vm.threads.stop(&t.state);
    // SAFETY: no thread runs, and the collector is between two collections.
    let verified = unsafe { counter.verify(&t.vm.heap, world) };
    drop(stopped);
    if let Err((object, count, expected)) = verified {
        let class = if object.exists() { Class::of(object).descriptor } else { "no object" };
        eprintln!("the heap is wrong: {class} has a count of {count}, and {expected} references");
        std::process::abort();
    }
}

/// The VM as a collector that counts sees it.
struct Program {
    vm: &'static Vm,
    requests: &'static Requests,
    /// The blocks that were taken when the collection began, until it has given memory away
    n_taken: Cell<Option<usize>>,
    /// The blocks that were taken until the last collection had given memory away
    n_counting: Cell<usize>,
    strengths: RefCell<Strengths>,
}

impl Program {
    fn new(vm: &'static Vm) -> Program {
        Program {
            vm,
            requests: vm.requests.as_ref().expect("a VM that counts has requests"),
            n_taken: Cell::default(),
            n_counting: Cell::default(),
            strengths: RefCell::default(),
        }
    }
}

impl World for Program {
    fn reach_stage(&self, stage: Stage) {
        self.vm.threads.reach(stage);
    }

    fn each_root(&self, with: &mut dyn FnMut(Ref)) {
        each_root(self.vm, with);
    }

    fn strength(&self, reference: Ref) -> Strength {
        self.strengths.borrow_mut().of(reference)
    }

    fn clear(&self, reference: Ref) -> bool {
        reference::clear(reference);
        let has_queue = reference::has_queue(reference);
        if has_queue {
            self.vm.pending.add(vec![reference]);
        }
        has_queue
    }

    fn finalize(&self, reference: Ref, object: Ref) {
        reference::hand_over(reference, object);
        self.vm.pending.add(vec![reference]);
    }

    fn free(&self, object: Ref) {
        if let Word::Inflated(number) = Word::decode(object.lock_word().load(Relaxed)) {
            self.vm.monitors.remove(number);
        }
    }

    fn released(&self) {
        let heap = &self.vm.heap;
        if let Some(n_taken) = self.n_taken.take() {
            self.n_counting.set(heap.taken_blocks() - n_taken);
        }
        heap.hold_back(self.n_counting.get());
        self.requests.released();
    }

    fn is_awaited(&self) -> bool {
        self.requests.is_awaited()
    }
}

/// Calls `with` for each root that belongs to no thread.
fn each_root(vm: &Vm, mut with: impl FnMut(Ref)) {
    for class in vm.classes.read().expect("no holder panics").values() {
        with(class.mirror());
        with(class.failure());
    }
    vm.strings.lock().expect("no holder panics").values().copied().for_each(&mut with);
    vm.globals.each(&mut with);
    vm.lambdas.lock().expect("no holder panics").values().copied().for_each(&mut with);
    vm.dexes.read().expect("no holder panics").keys().map(|it| it.0).for_each(&mut with);
    if let Some(known) = vm.known.get() {
        with(known.out_of_memory);
    }
    vm.pending.each(with);
}

/// Waits for a collection that frees all that is garbage now.
pub(crate) fn collect(t: &Thread) {
    match &t.vm.requests {
        // What a zygote makes before it is frozen has to fit.
        Some(requests) if !requests.has_thread() => {}
        Some(requests) => {
            let since = Instant::now();
            t.safe(|| requests.await_end(requests.ask(Search::Whole)));
            t.state.pauses.add(since);
        }
        None => mark_and_sweep(t),
    }
}

/// Waits for memory, beside a collector that counts, until `attempt` has got some. `None` if it has
/// not, after two collections that freed all that was garbage.
pub(crate) fn await_memory<T>(
    t: &Thread,
    requests: &Requests,
    attempt: impl Fn() -> Option<T>,
) -> Option<T> {
    if !requests.has_thread() {
        // What a zygote makes before it is frozen has to fit.
        return None;
    }
    let since = Instant::now();
    let found = [Search::Part, Search::Whole, Search::Whole].into_iter().find_map(|search| {
        let number = requests.ask(search);
        loop {
            // What is given away from now on ends the wait.
            let seen = requests.releases();
            if let Some(found) = attempt() {
                return Some(found);
            }
            if t.safe(|| requests.await_release(seen, number)) {
                return None;
            }
        }
    });
    let found = found.or_else(attempt);
    t.state.pauses.add(since);
    found
}

/// Stops all threads, marks what they reach and frees the rest.
fn mark_and_sweep(t: &Thread) {
    let vm = t.vm;
    let before = vm.heap.collections();
    let since = Instant::now();
    t.safe(|| {
        let stopped = vm.threads.stop(&t.state);
        if vm.heap.collections() != before {
            // Another thread was first.
            return;
        }
        let roots = |marker: &mut Marker<'_>| {
            for state in stopped.threads() {
                state.each_root(|object| marker.mark(object));
            }
            each_root(vm, |object| marker.mark(object));
            marker.trace();
            vm.pending.add(reference::process(marker));
            vm.monitors.sweep(|object| marker.is_marked(object));
        };
        // SAFETY: the world is stopped, and the roots are complete (see the crate).
        unsafe { vm.heap.collect(roots) };
    });
    t.state.pauses.add(since);
    if vm.options.reports_collections {
        report(vm, "mark-sweep", since, "");
    }
}
