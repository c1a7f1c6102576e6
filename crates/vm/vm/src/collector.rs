//! The two collectors, and the thread of the one that counts.

use crate::cards::{Cards, Stage, Step};
use crate::class::Class;
use crate::heap::{Counter, Marker, Search, Strength, World};
use crate::monitors::Word;
use crate::object::Ref;
use crate::pauses::{Cause, now_ns};
use crate::placement::Placement;
use crate::reference::{self, Strengths};
use crate::requests::Requests;
use crate::safepoint::ThreadState;
use crate::vm::{AbortOnPanic, Thread, Vm};
use rustix::thread::gettid;
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
        let _abort = AbortOnPanic;
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
    let mut placement = Placement::new();
    loop {
        if !vm.options.is_tortured {
            requests.wait();
        }
        let search = requests.begin();
        placement.leave_to_real_time(vm);
        let (since, n_taken) = (Instant::now(), vm.heap.taken_blocks());
        // What was held back is for the time until this collection gives memory away.
        world.n_taken.set(Some(n_taken));
        vm.heap.hold_back(0);
        requests.released();
        // SAFETY: all threads of the VM have stages, and the roots are complete (see the crate).
        let summary = unsafe { counter.collect(&vm.heap, &world, search) };
        vm.heap.set_limit(vm.heap.taken_blocks() - n_taken);
        world.end_work();
        report(t, "counting", since, &format!("; {summary}"));
        if vm.options.verify_heap {
            verify_counts(t, &counter, &world);
        }
        requests.end(vm.heap.is_at_limit());
    }
}

/// Tells of a collection by the calling thread on standard error: how long it took, what it did,
/// and the longest pause of each thread so far.
fn report(t: &Thread, kind: &str, since: Instant, what: &str) {
    let vm = t.vm;
    if !vm.options.reports_collections && vm.trace.is_none() {
        return;
    }
    let used = vm.heap.statistics();
    if let Some(trace) = &vm.trace {
        let now_ns = now_ns();
        let start_ns = now_ns - since.elapsed().as_nanos() as u64;
        trace.slice(t.state.tid(), || t.state.os_name(), kind, (start_ns, now_ns));
        trace.heap(now_ns, &used);
    }
    vm.threads.all().iter().for_each(|state| report_pauses(vm, state));
    if let Some(trace) = &vm.trace {
        trace.flush();
    }
    if !vm.options.reports_collections {
        return;
    }
    let mut text = format!("gc: {kind}, {} us; {used}{what}", since.elapsed().as_micros());
    for state in vm.threads.all() {
        let of: Vec<_> = state.pauses.summary().collect();
        let count: u64 = of.iter().map(|(_, count, _)| count).sum();
        if let Some((cause, _, longest)) = of.iter().max_by_key(|(_, _, longest)| *longest) {
            let (name, cause, longest_us) = (state.os_name(), cause.name(), longest.as_micros());
            text += &format!("; thread {name}: {count} pauses, longest {longest_us} us ({cause})");
        }
    }
    eprintln!("{text}");
}

/// Pauses that have a line of their own.
const LONG_PAUSE_NS: u64 = 50_000;

/// Tells of the pauses of a thread since the last call. One thread at a time calls this: the one
/// that has collected, or that ends the process.
fn report_pauses(vm: &Vm, state: &ThreadState) {
    state.pauses.take(|pause| {
        let cause = pause.cause.name();
        if let Some(trace) = &vm.trace {
            let times = (pause.start_ns, pause.start_ns + pause.duration_ns);
            trace.slice(state.tid(), || state.os_name(), cause, times);
        }
        if vm.options.reports_collections && pause.duration_ns >= LONG_PAUSE_NS {
            let (name, pause_us) = (state.os_name(), pause.duration_ns / 1000);
            eprintln!("pause: thread {name}: {pause_us} us ({cause})");
        }
    });
}

/// Ends reports: the process is about to end.
pub(crate) fn finish(vm: &Vm) {
    if let Some(trace) = &vm.trace {
        trace.finish();
    }
    if let Some(profile) = &vm.profile
        && let Err(error) = profile.write()
    {
        eprintln!("baton: no profile of allocations could be written: {error}");
    }
}

/// Stops the program and compares all counts with the heap.
fn verify_counts(t: &Thread, counter: &Counter, world: &Program) {
    let stopped = t.vm.threads.stop(&t.state);
    // SAFETY: no thread runs, and the collector is between two collections.
    let verified = unsafe { counter.verify(&t.vm.heap, world) };
    drop(stopped);
    if let Err((object, count, expected)) = verified {
        let class = described(object);
        eprintln!("the heap is wrong: {class} has a count of {count}, and {expected} references");
        std::process::abort();
    }
}

/// Checks where the references of all objects lead. No other thread runs.
fn verify_references(vm: &Vm) {
    // SAFETY: by the caller's promise.
    if let Err((object, to)) = unsafe { vm.heap.verify() } {
        let [class, to] = [object, to].map(described);
        eprintln!("the heap is wrong: {class} refers to {to}");
        std::process::abort();
    }
}

/// An object's class, for reports.
fn described(object: Ref) -> &'static str {
    if object.exists() { Class::of(object).descriptor } else { "no object" }
}

/// The VM as a collector that counts sees it.
struct Program {
    vm: &'static Vm,
    requests: &'static Requests,
    /// The blocks that were taken when the collection began, until it has given memory away
    n_taken: Cell<Option<usize>>,
    /// The blocks that were taken until the last collection had given memory away
    n_counting: Cell<usize>,
    /// What the collector does since the last stage, and since when, for a trace
    work: Cell<Option<(&'static str, u64)>>,
    strengths: RefCell<Strengths>,
}

impl Program {
    fn new(vm: &'static Vm) -> Program {
        Program {
            vm,
            requests: vm.requests.as_ref().expect("a VM that counts has requests"),
            n_taken: Cell::default(),
            n_counting: Cell::default(),
            work: Cell::default(),
            strengths: RefCell::default(),
        }
    }

    /// Ends what the collector has done since the last stage, in the trace.
    fn end_work(&self) {
        if let (Some((what, start_ns)), Some(trace)) = (self.work.take(), &self.vm.trace) {
            trace.slice(gettid(), || "collector".into(), what, (start_ns, now_ns()));
        }
    }
}

impl World for Program {
    fn reach_stage(&self, stage: Stage) {
        self.end_work();
        let start_ns = now_ns();
        self.vm.threads.reach(stage);
        let (name, next) = match stage.step() {
            Step::Announced => ("stage: announced", Some("marks roots")),
            Step::Turned => ("stage: turned", None),
            Step::Scanned => ("stage: scanned", Some("counts and frees")),
            Step::Settled => ("stage: settled", Some("frees, or searches for cycles")),
        };
        let end_ns = now_ns();
        if let Some(trace) = &self.vm.trace {
            trace.slice(gettid(), || "collector".into(), name, (start_ns, end_ns));
        }
        self.work.set(next.map(|what| (what, end_ns)));
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
            t.state.pauses.add(since, Cause::Collection);
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
    t.state.pauses.add(since, Cause::Memory);
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
        if vm.options.verify_heap {
            verify_references(vm);
        }
    });
    t.state.pauses.add(since, Cause::Collection);
    report(t, "mark-sweep", since, "");
}
