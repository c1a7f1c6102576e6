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
//! **Invariant**: a reference to the state or the side lives within one function of this file,
//! never across a switch: the threads are other users of the same memory.

use crate::cluster::Seat;
use crate::cluster::bell::Knocker;
use crate::here::Here;
use crate::idle::{Bound, wait};
use crate::interrupts::Interrupts;
use crate::list::Slot;
use crate::outside::{Nudge, Outside};
use crate::registers::{self, Wish};
use crate::request::Request;
use crate::side::{Failure, Side, SideCell};
use crate::signals::{self, Ground};
use crate::state::State;
use crate::switch::{self, Doors};
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
    doors: Doors,
    state: UnsafeCell<State<K>>,
    processor: Option<usize>,
    of_one_thread: PhantomData<*mut ()>,
}

pub(crate) type Body = Box<dyn FnOnce(Here)>;

impl<K: Variant> Kernel<K> {
    const STATE_FOLLOWS: () = assert!(offset_of!(Kernel<K>, state) == size_of::<Doors>());

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
        let side = Side {
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
        let doors = Doors {
            entry: switch::entry::<K>(),
            preempt_entry: switch::preempt_entry::<K>(),
            in_kernel: AtomicU32::new(1),
            knocker: Knocker::default(),
            tcbs: state.tcbs.0.as_mut_ptr(),
            current_tcb: Cell::new(std::ptr::null_mut()),
            mask: n_threads as u32 - 1,
            kernel_stack: Cell::new(0),
            host_float_control: Cell::new([0; 2]),
            side: SideCell(UnsafeCell::new(side)),
        };
        let processor = options.processor;
        let state = UnsafeCell::new(state);
        let kernel = Box::new(Kernel { doors, state, processor, of_one_thread: PhantomData });
        // SAFETY: the kernel does not run: nobody else touches its side.
        let side = unsafe { &*kernel.doors.side.0.get() };
        // SAFETY: `drop` takes them back.
        unsafe {
            side.nudge.lent().lend(&kernel.doors.knocker);
            if let Some(seat) = &side.seat {
                seat.bell().knocker.lend(&kernel.doors.knocker);
            }
        }
        Ok(kernel)
    }

    /// Other OS threads interrupt this kernel from now on: `take` says by which interrupts, as bits
    /// by their numbers, since it was asked last. It is asked when the kernel begins to run, and
    /// when it has been nudged. The kernel does not wait for them: that is for whoever runs it.
    pub fn listen(&mut self, take: impl FnMut() -> u64 + 'static) {
        self.doors.side.0.get_mut().outside = Outside::new(take);
    }

    /// What makes this kernel look for interrupts although its threads run.
    pub fn nudge(&mut self) -> Nudge {
        self.doors.side.0.get_mut().nudge.clone()
    }

    /// A thread that begins when the kernel runs. It is not preempted: see
    /// [`Here::preemptible`].
    ///
    /// # Errors
    /// `OutOfMemory` if there are as many as there may be; the system's, if it has no stack for us.
    pub fn spawn(
        &mut self,
        priority: u8,
        body: impl FnOnce(Here) + 'static,
    ) -> io::Result<ThreadId> {
        let full = || io::Error::from(io::ErrorKind::OutOfMemory);
        let id = self.state.get_mut().create(priority).ok_or_else(full)?;
        // SAFETY: the kernel does not run: nobody else touches its side.
        unsafe { furnish(&self.doors, id, Box::new(body))? };
        self.state.get_mut().start(id);
        Ok(id)
    }

    /// Runs the threads on this OS thread until none can run any more, whatever comes: in a
    /// cluster, until none of any kernel can. So kernels of a cluster run at the same time.
    ///
    /// # Panics
    /// If the OS thread cannot be bound to its processor.
    pub fn run(&mut self) -> Summary {
        self.run_on(&Ground::lay());
        let failures = std::mem::take(&mut self.doors.side.0.get_mut().failures);
        Summary { failures, n_left: self.state.get_mut().n_threads() }
    }

    /// The same, where it is to be done time and again.
    pub fn run_on(&mut self, ground: &Ground) {
        let doors = &raw const self.doors;
        let _here = signals::Kernel::enter(doors, ground);
        let _bound = self.processor.map(Bound::to);
        self.doors.knocker.os_thread.store(ground.os_thread(), Relaxed);
        let side = self.doors.side.0.get_mut();
        side.timer.start(now_ns());
        side.seat.iter().for_each(Seat::begin);
        // SAFETY: these are the doors of a kernel of this variant; `&mut self` is its only user.
        unsafe { switch::launch::<K>(doors) };
        self.doors.knocker.os_thread.store(0, Relaxed);
        self.doors.side.0.get_mut().timer.stop();
    }

    /// The state, between runs.
    pub fn state(&mut self) -> &mut State<K> {
        self.state.get_mut()
    }
}

impl<K: Variant> Drop for Kernel<K> {
    fn drop(&mut self) {
        let side = self.doors.side.0.get_mut();
        side.nudge.lent().take_back();
        if let Some(seat) = &side.seat {
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
    pub fn run_on(&mut self, ground: &Ground) {
        self.0.run_on(ground);
    }
}

/// Gives a thread that was created a stack and a body.
///
/// # Safety
/// Nobody else touches the kernel's side, and the thread has not been started.
pub(crate) unsafe fn furnish(doors: &Doors, id: ThreadId, body: Body) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let side = unsafe { &mut *doors.side.0.get() };
    let stack = side.new_stack()?;
    // SAFETY: `id` is of this kernel, so it names one of its TCBs; the thread does not run.
    let tcb = unsafe { &mut *doors.tcbs.add(id.slot().index()) };
    tcb.stack_pointer = stack.top();
    tcb.resume = switch::beginning();
    tcb.float_control = switch::float_control();
    let body = Box::into_raw(Box::new(body));
    // SAFETY: the UTCB of that thread, which is nobody else's before it runs.
    unsafe { (*(tcb.utcb as *mut crate::tcb::Utcb)).words[0] = body as u64 };
    side.stacks[id.slot().index()] = Some(stack);
    Ok(())
}

/// The kernel behind the doors.
///
/// # Safety
/// They are those of a `Kernel<K>`, in kernel code: nobody else uses its state and its side while
/// these references live.
unsafe fn open<'a, K: Variant>(doors: *const Doors) -> (&'a Doors, &'a mut State<K>, &'a mut Side) {
    // SAFETY: the caller's promise. The state follows the doors (`STATE_FOLLOWS`).
    unsafe {
        let state: *const UnsafeCell<State<K>> = doors.add(1).cast();
        (&*doors, &mut *(*state).get(), &mut *(*doors).side.0.get())
    }
}

/// The current thread has laid an IPC or a request into its UTCB. Says who runs next.
pub(crate) extern "C" fn enter<K: Variant>(doors: *const Doors) -> *const Tcb {
    // SAFETY: called by the entry of this variant, on the kernel's stack.
    let (doors, state, side) = unsafe { open::<K>(doors) };
    let current = current(doors);
    state.decision.current = current;
    if state.utcbs[current.index()].peer as u32 == raw::REQUEST {
        perform(doors, state, side);
    } else {
        state.ipc();
    }
    settle(doors, state, side)
}

#[inline(never)]
fn perform<K: Variant>(doors: &Doors, state: &mut State<K>, side: &mut Side) {
    let current = state.decision.current;
    let wish = state.utcbs[current.index()].wish;
    if !matches!(wish, Wish::Nothing) {
        // SAFETY: laid there by `Here`, by which alone a thread enters the kernel.
        let granted = unsafe { registers::grant(doors, state, side, wish) };
        state.utcbs[current.index()].wish = granted;
        return;
    }
    let request = state.utcbs[current.index()].request;
    if request == Request::End {
        side.take_stack(state.tcbs[current].id);
    }
    state.request(request);
}

/// A signal has come. Says who runs next.
pub(crate) extern "C" fn interrupted<K: Variant>(doors: *const Doors) -> *const Tcb {
    // SAFETY: called by the entries of this variant, on the kernel's stack.
    let (doors, state, side) = unsafe { open::<K>(doors) };
    state.decision.current = current(doors);
    take_interrupts(doors, state, side);
    settle(doors, state, side)
}

/// The kernel begins. Says who runs next.
pub(crate) extern "C" fn launched<K: Variant>(doors: *const Doors) -> *const Tcb {
    // SAFETY: called by `launch` of this variant, on the kernel's stack.
    let (doors, state, side) = unsafe { open::<K>(doors) };
    take_interrupts(doors, state, side);
    settle(doors, state, side)
}

/// Ends what the current thread has begun. Most of the time there is nothing to it.
#[inline(always)]
fn settle<K: Variant>(doors: &Doors, state: &mut State<K>, side: &mut Side) -> *const Tcb {
    let looks = state.has_rings()
        || K::PREEMPTION == Preemption::BetweenIpcs && doors.knocker.pending.load(Relaxed) != 0;
    if let Some(tcb) = state.goes_on().filter(|_| !looks) {
        side.timer.set(next_deadline_ns(state, side));
        return tcb;
    }
    settle_all(doors, state, side)
}

/// IPCs that follow from what was done, interrupts, and waiting, if nobody can run.
#[inline(never)]
fn settle_all<K: Variant>(doors: &Doors, state: &mut State<K>, side: &mut Side) -> *const Tcb {
    loop {
        if K::PREEMPTION == Preemption::BetweenIpcs && doors.knocker.pending.load(Relaxed) != 0 {
            take_interrupts(doors, state, side);
        }
        if let Some(seat) = side.seat.as_ref().filter(|_| state.has_rings()) {
            seat.cluster().ring(state.take_rings());
        }
        if state.continue_current() {
            continue;
        }
        if !state.is_idle() {
            side.timer.set(next_deadline_ns(state, side));
            return &raw const state.tcbs[state.decision.current];
        }
        if !wait(state, side) {
            return std::ptr::null();
        }
        take_interrupts(doors, state, side);
    }
}

/// When somebody is to be woken, or `UNSET`.
pub(crate) fn next_deadline_ns<K: Variant>(state: &State<K>, side: &Side) -> u64 {
    state.next_deadline_ns().unwrap_or(UNSET).min(side.interrupts.next_ns())
}

fn take_interrupts<K: Variant>(doors: &Doors, state: &mut State<K>, side: &mut Side) {
    // Cleared first: what comes from here on is found by the next look. Acquire: pairs with
    // `Knocker::knock`.
    doors.knocker.pending.swap(0, Acquire);
    let now_ns = now_ns();
    let is_tick = side.timer.take_tick(now_ns);
    state.expire(now_ns);
    let mut come = side.interrupts.take(now_ns) | side.outside.take();
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
pub(crate) unsafe extern "C" fn body(doors: *const Doors, body: *mut Body) -> ! {
    // SAFETY: `furnish` has made it from a box, for this thread alone.
    let body = unsafe { *Box::from_raw(body) };
    // SAFETY: this is the current thread of that kernel.
    let mut here = unsafe { Here::new(doors) };
    // SAFETY: the same; this one is used after the other.
    let mine = unsafe { Here::new(doors) };
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
pub(crate) unsafe extern "C" fn overflowed(doors: *const Doors) -> ! {
    // SAFETY: this is the current thread of that kernel.
    let mut here = unsafe { Here::new(doors) };
    here.fail(Failure::StackOverflow);
    here.end()
}

/// The slot of the thread that runs.
#[inline]
pub(crate) fn current(doors: &Doors) -> Slot {
    // SAFETY: one of the kernel's TCBs, from when it begins to run; this does not change while the
    // thread runs.
    unsafe { (*doors.current_tcb.get()).id.slot() }
}
