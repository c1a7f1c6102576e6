//! A kernel on an OS thread: its state, and what runs it.
//!
//! ```text
//!  thread --- assembly ---> enter --> State::ipc, State::request
//!                             |
//!                           settle: chains of IPCs, interrupts, idle
//!                             |
//!  thread <-- assembly ------ next thread
//! ```
//!
//! **Invariant**: a reference to the state or the host_state lives within one function of this
//! file, never across a switch: the threads are other users of the same memory.

use crate::cluster::Seat;
use crate::cluster::bell::Knocker;
use crate::current_thread::CurrentThread;
use crate::host_state::{Failure, HostState, SideCell};
use crate::idle::{Bound, wait};
use crate::interrupts::Interrupts;
use crate::list::Slot;
use crate::outside::{Nudge, Outside};
use crate::registers::{self, Wish};
use crate::request::Request;
use crate::signals::{self, SignalStack};
use crate::state::State;
use crate::switch::{self, EntryPoints};
use crate::tcb::Tcb;
use crate::thread_id::{ThreadId, raw};
use crate::timer::{Timer, UNSET, now_ns};
use crate::variant::{Preemption, Variant};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

/// How a kernel is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads at once, at most; rounded up to a power of two.
    pub n_threads: usize,
    /// Stack of each thread. A signal needs some 4 KiB of it.
    pub stack_bytes: usize,
    /// How often the timer ticks. `None`: never, so equals take turns only when they block.
    pub tick: Option<Duration>,
    /// A timeslice.
    pub slice_ticks: u32,
    /// The processor that the kernel's OS thread is bound to while it runs. `None`: it is left as
    /// it is.
    pub processor: Option<usize>,
    /// How long a kernel of a cluster that has nothing to do keeps its processor, to look for
    /// messages of others, before it sleeps.
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

/// How a run has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Threads that ended before their time, and why.
    pub failures: Vec<(ThreadId, Failure)>,
    /// Threads that wait for something that cannot come any more, or were never started.
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

pub(crate) type Body = Box<dyn FnOnce(CurrentThread)>;

impl<K: Variant> Kernel<K> {
    const STATE_FOLLOWS: () = assert!(offset_of!(Kernel<K>, state) == size_of::<EntryPoints>());

    /// A kernel without threads.
    ///
    /// # Errors
    /// The system's, if it has no timer for us.
    pub fn new(options: Options) -> io::Result<Box<Kernel<K>>> {
        let state = State::new(options.n_threads.next_power_of_two(), options.slice_ticks);
        Kernel::with_state(state, None, options)
    }

    /// A kernel without threads whose threads reach those of its cluster, and they them. The
    /// cluster says how many there may be.
    ///
    /// # Errors
    /// As for `new`.
    pub fn join(seat: Seat, options: Options) -> io::Result<Box<Kernel<K>>> {
        let state = State::in_cluster(&seat, options.slice_ticks);
        Kernel::with_state(state, Some(seat), options)
    }

    fn with_state(
        mut state: State<K>,
        seat: Option<Seat>,
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
            seat,
            spin: options.spin,
            outside: Outside::default(),
            nudge: Nudge::nobodys(),
        };
        for index in 0..n_threads {
            state.tcbs.0[index].utcb = &raw mut state.utcbs[index] as usize;
        }
        let entry_points = EntryPoints {
            entry: switch::entry::<K>(),
            preempt_entry: switch::preempt_entry::<K>(),
            in_kernel: AtomicU32::new(1),
            knocker: Knocker::default(),
            tcbs: state.tcbs.0.as_mut_ptr(),
            current_tcb: Cell::new(std::ptr::null_mut()),
            mask: n_threads as u32 - 1,
            kernel_stack: Cell::new(0),
            host_float_control: Cell::new([0; 2]),
            host_state: SideCell(UnsafeCell::new(host_state)),
        };
        let processor = options.processor;
        let state = UnsafeCell::new(state);
        let kernel =
            Box::new(Kernel { entry_points, state, processor, of_one_thread: PhantomData });
        // SAFETY: the kernel does not run: nobody else touches its host_state.
        let host_state = unsafe { &*kernel.entry_points.host_state.0.get() };
        // SAFETY: `drop` takes them back.
        unsafe {
            host_state.nudge.lent().lend(&kernel.entry_points.knocker);
            if let Some(seat) = &host_state.seat {
                seat.bell().knocker.lend(&kernel.entry_points.knocker);
            }
        }
        Ok(kernel)
    }

    /// Other OS threads interrupt this kernel from now on: `take` says by which interrupts, as bits
    /// by their numbers, since it was asked last. It is asked when the kernel begins to run, and
    /// when it has been nudged. The kernel does not wait for them: that is for whoever runs it.
    pub fn listen(&mut self, take: impl FnMut() -> u64 + 'static) {
        self.entry_points.host_state.0.get_mut().outside = Outside::new(take);
    }

    /// What makes this kernel look for interrupts although its threads run.
    pub fn nudge(&mut self) -> Nudge {
        self.entry_points.host_state.0.get_mut().nudge.clone()
    }

    /// A thread that begins when the kernel runs. It is not preempted: see
    /// [`CurrentThread::preemptible`].
    ///
    /// # Errors
    /// `OutOfMemory` if there are as many as there may be; the system's, if it has no stack for us.
    pub fn spawn(
        &mut self,
        priority: u8,
        body: impl FnOnce(CurrentThread) + 'static,
    ) -> io::Result<ThreadId> {
        let full = || io::Error::from(io::ErrorKind::OutOfMemory);
        let id = self.state.get_mut().create(priority).ok_or_else(full)?;
        // SAFETY: the kernel does not run: nobody else touches its host_state.
        unsafe { furnish(&self.entry_points, id, Box::new(body))? };
        self.state.get_mut().start(id);
        Ok(id)
    }

    /// Runs the threads on this OS thread until none can run any more, whatever comes: in a
    /// cluster, until none of any kernel can. So kernels of a cluster run at the same time.
    ///
    /// # Panics
    /// If the OS thread cannot be bound to its processor.
    pub fn run(&mut self) -> Summary {
        self.run_on(&SignalStack::lay());
        let failures = std::mem::take(&mut self.entry_points.host_state.0.get_mut().failures);
        Summary { failures, n_left: self.state.get_mut().n_threads() }
    }

    /// The same, where it is to be done time and again.
    pub fn run_on(&mut self, ground: &SignalStack) {
        let entry_points = &raw const self.entry_points;
        let _here = signals::Kernel::enter(entry_points, ground);
        let _bound = self.processor.map(Bound::to);
        self.entry_points.knocker.os_thread.store(ground.os_thread(), Relaxed);
        let host_state = self.entry_points.host_state.0.get_mut();
        host_state.timer.start(now_ns());
        host_state.seat.iter().for_each(Seat::begin);
        // SAFETY: these are the entry_points of a kernel of this variant; `&mut self` is its only
        // user.
        unsafe { switch::launch::<K>(entry_points) };
        self.entry_points.knocker.os_thread.store(0, Relaxed);
        self.entry_points.host_state.0.get_mut().timer.stop();
    }

    /// The state, between runs.
    pub fn state(&mut self) -> &mut State<K> {
        self.state.get_mut()
    }
}

impl<K: Variant> Drop for Kernel<K> {
    fn drop(&mut self) {
        let host_state = self.entry_points.host_state.0.get_mut();
        host_state.nudge.lent().take_back();
        if let Some(seat) = &host_state.seat {
            seat.bell().knocker.take_back();
            let state = self.state.get_mut();
            state.leave();
            seat.cluster().ring(state.take_rings());
        }
    }
}

/// A kernel that OS threads run in turn.
#[derive(Debug)]
pub struct Portable<K: Variant>(Box<Kernel<K>>);

// SAFETY: the promise of `new`.
unsafe impl<K: Variant> Send for Portable<K> {}

impl<K: Variant> Portable<K> {
    /// # Safety
    /// Whenever [`Portable::run_on`] returns, each thread of the kernel waits where it does not
    /// matter on which OS thread it goes on, or goes on on the same one: it has no part of what
    /// that one has for itself, and whatever its code keeps may be sent to another thread. It has
    /// no ticks, no times and no cluster, which are one OS thread's.
    pub unsafe fn new(kernel: Box<Kernel<K>>) -> Portable<K> {
        Portable(kernel)
    }

    /// As [`Kernel::run_on`].
    pub fn run_on(&mut self, ground: &SignalStack) {
        self.0.run_on(ground);
    }
}

/// Gives a thread that was created a stack and a body.
///
/// # Safety
/// Nobody else touches the kernel's host_state, and the thread has not been started.
pub(crate) unsafe fn furnish(
    entry_points: &EntryPoints,
    id: ThreadId,
    body: Body,
) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let host_state = unsafe { &mut *entry_points.host_state.0.get() };
    let stack = host_state.new_stack()?;
    // SAFETY: `id` is of this kernel, so it names one of its TCBs; the thread does not run.
    let tcb = unsafe { &mut *entry_points.tcbs.add(id.slot().index()) };
    tcb.stack_pointer = stack.top();
    tcb.resume = switch::beginning();
    tcb.float_control = switch::float_control();
    let body = Box::into_raw(Box::new(body));
    // SAFETY: the UTCB of that thread, which is nobody else's before it runs.
    unsafe { (*(tcb.utcb as *mut crate::tcb::Utcb)).words[0] = body as u64 };
    host_state.stacks[id.slot().index()] = Some(stack);
    Ok(())
}

/// The kernel behind the entry_points.
///
/// # Safety
/// They are those of a `Kernel<K>`, in kernel code: nobody else uses its state and its host_state
/// while these references live.
unsafe fn open<'a, K: Variant>(
    entry_points: *const EntryPoints,
) -> (&'a EntryPoints, &'a mut State<K>, &'a mut HostState) {
    // SAFETY: the caller's promise. The state follows the entry_points (`STATE_FOLLOWS`).
    unsafe {
        let state: *const UnsafeCell<State<K>> = entry_points.add(1).cast();
        (&*entry_points, &mut *(*state).get(), &mut *(*entry_points).host_state.0.get())
    }
}

/// The current thread has laid an IPC or a request into its UTCB. Says who runs next.
pub(crate) extern "C" fn enter<K: Variant>(entry_points: *const EntryPoints) -> *const Tcb {
    // SAFETY: called by the entry of this variant, on the kernel's stack.
    let (entry_points, state, host_state) = unsafe { open::<K>(entry_points) };
    let current = current(entry_points);
    state.decision.current = current;
    if state.utcbs[current.index()].peer as u32 == raw::REQUEST {
        perform(entry_points, state, host_state);
    } else {
        state.ipc();
    }
    settle(entry_points, state, host_state)
}

#[inline(never)]
fn perform<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
) {
    let current = state.decision.current;
    let wish = state.utcbs[current.index()].wish;
    if !matches!(wish, Wish::Nothing) {
        // SAFETY: laid there by `CurrentThread`, by which alone a thread enters the kernel.
        let granted = unsafe { registers::grant(entry_points, state, host_state, wish) };
        state.utcbs[current.index()].wish = granted;
        return;
    }
    let request = state.utcbs[current.index()].request;
    if request == Request::End {
        host_state.take_stack(state.tcbs[current].id);
    }
    state.request(request);
}

/// A signal has come. Says who runs next.
pub(crate) extern "C" fn interrupted<K: Variant>(entry_points: *const EntryPoints) -> *const Tcb {
    // SAFETY: called by the entries of this variant, on the kernel's stack.
    let (entry_points, state, host_state) = unsafe { open::<K>(entry_points) };
    state.decision.current = current(entry_points);
    take_interrupts(entry_points, state, host_state);
    settle(entry_points, state, host_state)
}

/// The kernel begins. Says who runs next.
pub(crate) extern "C" fn launched<K: Variant>(entry_points: *const EntryPoints) -> *const Tcb {
    // SAFETY: called by `launch` of this variant, on the kernel's stack.
    let (entry_points, state, host_state) = unsafe { open::<K>(entry_points) };
    take_interrupts(entry_points, state, host_state);
    settle(entry_points, state, host_state)
}

/// Ends what the current thread has begun. Most of the time there is nothing to it.
#[inline(always)]
fn settle<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
) -> *const Tcb {
    let looks = state.has_rings()
        || K::PREEMPTION == Preemption::BetweenIpcs
            && entry_points.knocker.pending.load(Relaxed) != 0;
    if let Some(tcb) = state.goes_on().filter(|_| !looks) {
        host_state.timer.set(next_deadline_ns(state, host_state));
        return tcb;
    }
    settle_all(entry_points, state, host_state)
}

/// IPCs that follow from what was done, interrupts, and waiting, if nobody can run.
#[inline(never)]
fn settle_all<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
) -> *const Tcb {
    loop {
        if K::PREEMPTION == Preemption::BetweenIpcs
            && entry_points.knocker.pending.load(Relaxed) != 0
        {
            take_interrupts(entry_points, state, host_state);
        }
        if let Some(seat) = host_state.seat.as_ref().filter(|_| state.has_rings()) {
            seat.cluster().ring(state.take_rings());
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

/// When somebody is to be woken, or `UNSET`.
pub(crate) fn next_deadline_ns<K: Variant>(state: &State<K>, host_state: &HostState) -> u64 {
    state.next_deadline_ns().unwrap_or(UNSET).min(host_state.interrupts.next_ns())
}

fn take_interrupts<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
) {
    // Cleared first: what comes from here on is found by the next look. Acquire: pairs with
    // `Knocker::knock`.
    entry_points.knocker.pending.swap(0, Acquire);
    let now_ns = now_ns();
    let is_tick = host_state.timer.take_tick(now_ns);
    state.expire(now_ns);
    let mut come = host_state.interrupts.take(now_ns) | host_state.outside.take();
    while come != 0 {
        state.interrupt(come.trailing_zeros() as u8);
        come &= come - 1;
    }
    state.look();
    if is_tick {
        state.tick();
    }
}

/// What a thread runs.
///
/// # Safety
/// Called at the beginning of a thread, with the body that `furnish` has laid there.
pub(crate) unsafe extern "C" fn body(entry_points: *const EntryPoints, body: *mut Body) -> ! {
    // SAFETY: `furnish` has made it from a box, for this thread alone.
    let body = unsafe { *Box::from_raw(body) };
    // SAFETY: this is the current thread of that kernel.
    let mut here = unsafe { CurrentThread::new(entry_points) };
    // SAFETY: the same; this one is used after the other.
    let mine = unsafe { CurrentThread::new(entry_points) };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(move || body(mine))) {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        here.fail(Failure::Panic(text.unwrap_or_default()));
        // A payload may panic once more when it is dropped.
        std::mem::forget(payload);
    }
    here.end()
}

/// What a thread whose stack has overflowed runs, on the same stack from its top.
///
/// # Safety
/// The thread goes on nowhere else.
pub(crate) unsafe extern "C" fn overflowed(entry_points: *const EntryPoints) -> ! {
    // SAFETY: this is the current thread of that kernel.
    let mut here = unsafe { CurrentThread::new(entry_points) };
    here.fail(Failure::StackOverflow);
    here.end()
}

/// The slot of the thread that runs.
#[inline]
pub(crate) fn current(entry_points: &EntryPoints) -> Slot {
    // SAFETY: one of the kernel's TCBs, from when it begins to run; this does not change while the
    // thread runs.
    unsafe { (*entry_points.current_tcb.get()).id.slot() }
}
