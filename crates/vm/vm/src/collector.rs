//! The two collectors, and the thread of the one that counts.

use crate::cards::Stage;
use crate::class::Class;
use crate::heap::{Counter, Marker, Strength, World};
use crate::monitors::Word;
use crate::object::Ref;
use crate::reference::{self, Strengths};
use crate::requests::Requests;
use crate::vm::{Thread, Vm};
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

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
            let mut counter = Counter::new(cards.clone(), vm.threads.stage());
            // SAFETY: the only thread is safe, and has a stage; the roots are complete.
            unsafe { counter.collect(&vm.heap, &world) };
        }
        // SAFETY: a collection was just made, and the allocator begins afresh below.
        unsafe { vm.heap.freeze() };
    });
    t.allocator.take();
}

fn run(t: &Thread, requests: &Requests) {
    let vm = t.vm;
    vm.threads.set_collector();
    let world = Program::new(vm);
    let mutator = t.state.mutator.as_ref().expect("a VM that counts has mutators");
    let mut counter = Counter::new(mutator.cards().clone(), mutator.stage());
    loop {
        if !vm.options.is_tortured {
            requests.wait();
        }
        requests.begin();
        let since = Instant::now();
        // SAFETY: all threads of the VM have stages, and the roots are complete (see the crate).
        let summary = unsafe { counter.collect(&vm.heap, &world) };
        vm.heap.set_limit();
        if vm.options.reports_collections {
            report(vm, "counting", since, &format!("; {summary}"));
        }
        if vm.options.verify_heap {
            verify(t, &counter, &world);
        }
        requests.end();
    }
}

/// Tells of a collection on standard error: how long it took, what it did, and the longest pause of
/// each thread so far.
fn report(vm: &Vm, kind: &str, since: Instant, what: &str) {
    let mut text = format!(
        "gc: {kind}, {} us; {} of {} KiB in use{what}",
        since.elapsed().as_micros(),
        vm.heap.used_bytes() / 1024,
        vm.heap.max_bytes() / 1024,
    );
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
    strengths: RefCell<Strengths>,
}

impl Program {
    fn new(vm: &'static Vm) -> Program {
        Program { vm, strengths: RefCell::default() }
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
            t.safe(|| requests.await_one());
            t.state.pauses.add(since);
        }
        None => mark_and_sweep(t),
    }
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
