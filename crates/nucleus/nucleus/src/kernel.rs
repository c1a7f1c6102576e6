//! A kernel on an OS thread: its state, and the code that runs it.
//!
//! ```text
//!  thread --- assembly ---> enter --> State::ipc, State::request
//!                             |
//!                      choose_next: chains of IPCs, interrupts, idle
//!                             |
//!  thread <-- assembly ---- next thread
//! ```
//!
//! **Invariant**: a reference to the state or the host state lives within one function of this
//! file, never across a switch, because threads use the same memory.

use crate::cluster::Membership;
use crate::current_thread::{CurrentThread, ThreadBody, prepare_thread};
use crate::entry_points::EntryPoints;
use crate::external_interrupts::{ExternalInterrupts, Interrupter};
use crate::host_state::{Failure, HostState, HostStateCell};
use crate::idle::{Bound, next_deadline_ns, wait};
use crate::interrupt_line::InterruptLine;
use crate::interrupts::Interrupts;
use crate::request::{Request, TrustedRequest};
use crate::signals::{RunningKernel, SignalStack};
use crate::state::State;
use crate::switch::{self, Upcalls};
use crate::tcb::Tcb;
use crate::thread_id::{ThreadId, raw};
use crate::timer::{Timer, now_ns};
use crate::trusted;
use crate::variant::{Preemption, Variant};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

/// The parameters of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads at once, at most; rounded up to a power of two. The cluster's number counts instead
    /// for a kernel that joins one.
    pub n_threads: usize,
    /// The stack of each thread, rounded up to pages. A signal handler needs some 4 KiB of it.
    pub stack_bytes: usize,
    /// The period of the tick. `None`: there is no tick, so threads of one priority take turns only
    /// when they block.
    pub tick: Option<Duration>,
    /// A timeslice, in ticks.
    pub slice_ticks: u32,
    /// The processor to which the kernel's OS thread is bound while it runs the kernel. `None`: the
    /// OS thread keeps its affinity.
    pub processor: Option<usize>,
    /// How long an idle kernel of a cluster polls for messages of other kernels before it sleeps.
    pub spin: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let tick = Some(Duration::from_millis(1));
        Options {
            n_threads: 256,
            stack_bytes: 64 << 10,
            tick,
            slice_ticks: 10,
            processor: None,
            spin: Duration::ZERO,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Threads that ended before their body returned, and why.
    pub failures: Vec<(ThreadId, Failure)>,
    /// Threads that are left: they wait for something that cannot come, or were never started.
    pub n_left: usize,
}

/// A kernel. It belongs to the OS thread that made it.
#[derive(Debug)]
#[repr(C)]
pub struct Kernel<K: Variant> {
    entry_points: EntryPoints,
    state: UnsafeCell<State<K>>,
    processor: Option<usize>,
    of_one_thread: PhantomData<*mut ()>,
}

impl<K: Variant> Kernel<K> {
    const STATE_FOLLOWS: () = assert!(offset_of!(Kernel<K>, state) == size_of::<EntryPoints>());

    /// Makes a kernel without threads.
    ///
    /// # Errors
    /// The system's, if it has no more timers for this process.
    pub fn new(options: Options) -> io::Result<Box<Kernel<K>>> {
        let state = State::new(options.n_threads.next_power_of_two(), options.slice_ticks);
        Kernel::with_state(state, None, options)
    }

    /// Makes a kernel without threads in a cluster: threads of the cluster's kernels can send to
    /// each other. When the kernel is dropped, partners of its threads get
    /// [`Cause::Ended`](crate::Cause::Ended).
    ///
    /// # Errors
    /// The system's, if it has no more timers for this process.
    pub fn join(membership: Membership, options: Options) -> io::Result<Box<Kernel<K>>> {
        let state = State::in_cluster(&membership, options.slice_ticks);
        Kernel::with_state(state, Some(membership), options)
    }

    fn with_state(
        mut state: State<K>,
        membership: Option<Membership>,
        options: Options,
    ) -> io::Result<Box<Kernel<K>>> {
        let () = Self::STATE_FOLLOWS;
        let n_threads = state.utcbs.len();
        let host_state = HostState {
            stack_bytes: options.stack_bytes,
            stacks: (0..n_threads).map(|_| None).collect(),
            pool: Vec::new(),
            failures: Vec::new(),
            interrupts: Interrupts::new(),
            timer: Timer::new(options.tick)?,
            membership,
            spin: options.spin,
            external_interrupts: ExternalInterrupts::default(),
            interrupter: Interrupter::empty(),
        };
        for index in 0..n_threads {
            state.tcbs.0[index].utcb = &raw mut state.utcbs[index] as usize;
        }
        let entry_points = EntryPoints {
            entry: switch::entry::<K>(),
            preempt_entry: switch::preempt_entry::<K>(),
            in_kernel: AtomicU32::new(1),
            interrupt_line: InterruptLine::default(),
            tcbs: state.tcbs.0.as_mut_ptr(),
            current_tcb: Cell::new(std::ptr::null_mut()),
            mask: n_threads as u32 - 1,
            kernel_stack: Cell::new(0),
            host_float_control: Cell::new([0; 2]),
            thread_start: switch::thread_start::<K>(),
            overflow_start: switch::overflow_start::<K>(),
            host_state: HostStateCell(UnsafeCell::new(host_state)),
        };
        let processor = options.processor;
        let state = UnsafeCell::new(state);
        let kernel =
            Box::new(Kernel { entry_points, state, processor, of_one_thread: PhantomData });
        // SAFETY: the kernel does not run, so nobody else uses its host state.
        let host_state = unsafe { &*kernel.entry_points.host_state.0.get() };
        // SAFETY: the interrupt line lives as long as the kernel, and `drop` revokes both.
        unsafe {
            host_state.interrupter.line().set(&kernel.entry_points.interrupt_line);
            if let Some(membership) = &host_state.membership {
                membership.wakeup().interrupt_line.set(&kernel.entry_points.interrupt_line);
            }
        }
        Ok(kernel)
    }

    /// Lets other OS threads interrupt this kernel. `take` returns the interrupts that came since
    /// its last call, as bits by their numbers.
    ///
    /// The kernel calls `take` when it begins to run and after each [`Interrupter::interrupt`]. An
    /// idle kernel does not wait for these interrupts: it returns, and its user runs it again.
    pub fn set_external_interrupts(&mut self, take: impl FnMut() -> u64 + 'static) {
        let host_state = self.entry_points.host_state.0.get_mut();
        host_state.external_interrupts = ExternalInterrupts::new(take);
    }

    /// A handle by which other OS threads make the running kernel look for interrupts.
    pub fn interrupter(&mut self) -> Interrupter {
        self.entry_points.host_state.0.get_mut().interrupter.clone()
    }

    /// Makes a thread that begins when the kernel runs. The tick does not interrupt it outside of
    /// system calls: see [`CurrentThread::preemptible`].
    ///
    /// # Errors
    /// `OutOfMemory` if the kernel has [`Options::n_threads`] threads; the system's, if it has no
    /// memory for a stack.
    pub fn spawn(
        &mut self,
        priority: u8,
        body: impl FnOnce(CurrentThread) + 'static,
    ) -> io::Result<ThreadId> {
        let host_state = self.entry_points.host_state.0.get_mut();
        let stack = host_state.new_stack()?;
        let Some(id) = self.state.get_mut().create(priority) else {
            host_state.pool.push(stack);
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        // SAFETY: the kernel does not run, so nobody else uses its host state.
        unsafe { prepare_thread(&self.entry_points, id, stack, Box::new(body)) };
        self.state.get_mut().start(id);
        Ok(id)
    }

    /// Runs the kernel's threads on this OS thread until none can run any more. A kernel of a
    /// cluster runs until no thread of any of its kernels can, so they have to run at the same
    /// time.
    ///
    /// # Panics
    /// If the OS thread cannot be bound to [`Options::processor`].
    pub fn run(&mut self) -> Summary {
        self.run_on(&SignalStack::install());
        let failures = std::mem::take(&mut self.entry_points.host_state.0.get_mut().failures);
        Summary { failures, n_left: self.state.get_mut().n_threads() }
    }

    /// Like [`Kernel::run`], with a signal stack that serves many runs and without a summary.
    ///
    /// # Panics
    /// If the OS thread cannot be bound to [`Options::processor`].
    pub fn run_on(&mut self, signal_stack: &SignalStack) {
        let entry_points = &raw const self.entry_points;
        let _running = RunningKernel::enter(entry_points, signal_stack);
        let _bound = self.processor.map(Bound::to);
        self.entry_points.interrupt_line.begin(signal_stack.os_thread());
        let host_state = self.entry_points.host_state.0.get_mut();
        host_state.timer.start(now_ns());
        host_state.membership.iter().for_each(Membership::begin);
        // SAFETY: these are the entry points of a kernel of this variant; `&mut self` is its only
        // user.
        unsafe { switch::launch::<K>(entry_points) };
        self.entry_points.interrupt_line.os_thread.store(0, Relaxed);
        self.entry_points.host_state.0.get_mut().timer.stop();
    }

    /// The kernel's state, between runs.
    pub fn state(&mut self) -> &State<K> {
        self.state.get_mut()
    }
}

impl<K: Variant> Drop for Kernel<K> {
    fn drop(&mut self) {
        let host_state = self.entry_points.host_state.0.get_mut();
        host_state.interrupter.line().revoke();
        if let Some(membership) = &host_state.membership {
            membership.wakeup().interrupt_line.revoke();
            let state = self.state.get_mut();
            state.leave();
            membership.cluster().wake(state.take_wakeups());
        }
    }
}

/// A kernel that several OS threads run in turn.
#[derive(Debug)]
pub struct Portable<K: Variant>(Box<Kernel<K>>);

// SAFETY: the promise of `new`.
unsafe impl<K: Variant> Send for Portable<K> {}

impl<K: Variant> Portable<K> {
    /// # Safety
    /// The kernel has no tick, no timer interrupts and no cluster: they belong to one OS thread.
    ///
    /// Whenever [`Portable::run_on`] returns, one of two things is true of each thread of the
    /// kernel. Either the thread goes on only on that OS thread. Or it uses nothing that belongs to
    /// that OS thread, such as its `thread_local!` values, and all values on its stack are `Send`.
    pub unsafe fn new(kernel: Box<Kernel<K>>) -> Portable<K> {
        Portable(kernel)
    }

    /// Runs the kernel: see [`Kernel::run_on`].
    pub fn run_on(&mut self, signal_stack: &SignalStack) {
        self.0.run_on(signal_stack);
    }
}

/// The parts of the kernel that begins with these entry points.
///
/// # Safety
/// A `Kernel<K>` begins with them, and the caller is kernel code: nobody else uses the kernel's
/// state and host state while the references live.
unsafe fn open<'a, K: Variant>(
    entry_points: *const EntryPoints,
) -> (&'a EntryPoints, &'a mut State<K>, &'a mut HostState) {
    // SAFETY: the caller's promise. The state follows the entry points (`STATE_FOLLOWS`).
    unsafe {
        let state: *const UnsafeCell<State<K>> = entry_points.add(1).cast();
        (&*entry_points, &mut *(*state).get(), &mut *(*entry_points).host_state.0.get())
    }
}

impl<K: Variant> Upcalls for K {
    extern "C" fn enter(entry_points: *const EntryPoints) -> *const Tcb {
        // SAFETY: called by the entry of this variant, on the kernel's stack.
        let (entry_points, state, host_state) = unsafe { open::<K>(entry_points) };
        let current = entry_points.current();
        state.decision.current = current;
        if state.utcbs[current.index()].peer as u32 == raw::REQUEST {
            carry_out_request(entry_points, state, host_state);
        } else {
            state.ipc();
        }
        choose_next(entry_points, state, host_state)
    }

    extern "C" fn interrupted(entry_points: *const EntryPoints) -> *const Tcb {
        // SAFETY: called by the entries of this variant, on the kernel's stack.
        let (entry_points, state, host_state) = unsafe { open::<K>(entry_points) };
        state.decision.current = entry_points.current();
        take_interrupts(entry_points, state, host_state);
        choose_next(entry_points, state, host_state)
    }

    extern "C" fn launched(entry_points: *const EntryPoints) -> *const Tcb {
        // SAFETY: called by `launch` of this variant, on the kernel's stack.
        let (entry_points, state, host_state) = unsafe { open::<K>(entry_points) };
        take_interrupts(entry_points, state, host_state);
        choose_next(entry_points, state, host_state)
    }

    unsafe extern "C" fn run_thread(entry_points: *const EntryPoints, body: *mut ()) -> ! {
        // SAFETY: `prepare_thread` has made it from a box, for this thread alone.
        let body = unsafe { *Box::from_raw(body.cast::<ThreadBody>()) };
        // SAFETY: this is the current thread of that kernel.
        let mut this = unsafe { CurrentThread::new(entry_points) };
        // SAFETY: this is the current thread of that kernel, and `this` is used after the body.
        let for_body = unsafe { CurrentThread::new(entry_points) };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(move || body(for_body))) {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            this.fail(Failure::Panic(text.unwrap_or_default()));
            // The payload's drop may panic once more.
            std::mem::forget(payload);
        }
        this.end()
    }

    unsafe extern "C" fn fail_overflowed(entry_points: *const EntryPoints) -> ! {
        // SAFETY: this is the current thread of that kernel.
        let mut this = unsafe { CurrentThread::new(entry_points) };
        this.fail(Failure::StackOverflow);
        this.end()
    }
}

#[inline(never)]
fn carry_out_request<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
) {
    let current = state.decision.current;
    let trusted_request = state.utcbs[current.index()].trusted_request;
    if !matches!(trusted_request, TrustedRequest::None) {
        // SAFETY: only `CurrentThread` writes trusted requests, and only through it a thread enters
        // the kernel.
        let answer =
            unsafe { trusted::carry_out(entry_points, state, host_state, trusted_request) };
        state.utcbs[current.index()].trusted_request = answer;
        return;
    }
    match state.utcbs[current.index()].request {
        Request::Start(id) if !has_code(state, id) => {
            state.utcbs[current.index()].request = Request::Refused;
            return;
        }
        Request::End => host_state.take_stack(state.tcbs[current].id),
        _ => {}
    }
    state.request(state.utcbs[current.index()].request);
}

/// Whether a thread has an instruction to begin with: see `prepare_thread`.
fn has_code<K: Variant>(state: &State<K>, id: ThreadId) -> bool {
    state.find(id).is_some_and(|slot| state.tcbs[slot].resume != 0)
}

/// Returns the TCB of the thread that runs next. Most of the time that is decided already.
#[inline(always)]
fn choose_next<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
) -> *const Tcb {
    let has_more_to_do = state.has_wakeups()
        || K::PREEMPTION == Preemption::BetweenIpcs
            && entry_points.interrupt_line.pending.load(Relaxed) != 0;
    if let Some(tcb) = state.current_if_settled().filter(|_| !has_more_to_do) {
        host_state.timer.set(next_deadline_ns(state, host_state));
        return tcb;
    }
    choose_next_slowly(entry_points, state, host_state)
}

/// Like `choose_next`, after the rest of a chain of IPCs, interrupts and, if no thread can run, a
/// wait. Null: no thread can run any more.
#[inline(never)]
fn choose_next_slowly<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
) -> *const Tcb {
    loop {
        if K::PREEMPTION == Preemption::BetweenIpcs
            && entry_points.interrupt_line.pending.load(Relaxed) != 0
        {
            take_interrupts(entry_points, state, host_state);
        }
        if let Some(membership) = host_state.membership.as_ref().filter(|_| state.has_wakeups()) {
            membership.cluster().wake(state.take_wakeups());
        }
        if state.continue_current() {
            continue;
        }
        if !state.is_idle() {
            host_state.timer.set(next_deadline_ns(state, host_state));
            return &raw const state.tcbs[state.decision.current];
        }
        if !wait(state, host_state) {
            return std::ptr::null();
        }
        take_interrupts(entry_points, state, host_state);
    }
}

fn take_interrupts<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
) {
    // Cleared first, so that an interrupt that comes later sets it again. Acquire: pairs with
    // `InterruptLine::raise`.
    entry_points.interrupt_line.pending.swap(0, Acquire);
    let now_ns = now_ns();
    let is_tick = host_state.timer.take_tick(now_ns);
    state.expire(now_ns);
    let mut due = host_state.interrupts.take(now_ns) | host_state.external_interrupts.take();
    while due != 0 {
        state.interrupt(due.trailing_zeros() as u8);
        due &= due - 1;
    }
    state.read_inbox();
    if is_tick {
        state.tick();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::variant::StrictPlus;

    #[test]
    fn a_thread_without_memory_for_a_stack_is_not_left() {
        let mut kernel = Kernel::<StrictPlus>::new(Options::default()).unwrap();
        let spawned = |result: io::Result<ThreadId>| result.map_err(|error| error.kind());
        kernel
            .spawn(5, move |mut here| {
                assert_eq!(spawned(here.spawn(6, |_| ())), Err(io::ErrorKind::OutOfMemory));
            })
            .unwrap();
        // No process has that much.
        kernel.entry_points.host_state.0.get_mut().stack_bytes = 1 << 60;
        assert_eq!(spawned(kernel.spawn(5, |_| ())), Err(io::ErrorKind::OutOfMemory));
        assert_eq!(kernel.run(), Summary { failures: Vec::new(), n_left: 0 });
    }
}
