//! A stack of Baton's for each thread, on which trapped system calls run.
//!
//! The program's own stack may be too small: goroutines and coroutines have a few KiB, which the
//! kernel's signal frame alone exceeds. A thread without an alternate signal stack gets Baton's as
//! its alternate stack, and SIGSYS is delivered on it. A thread with an alternate stack of its
//! program's keeps that one, and the SIGSYS handler moves from it to Baton's stack
//! ([`trap`](crate::trap)).
//!
//! ```text
//!   | guard | Header | free ...        <- sp | frames |
//!           ^ low                                     ^ top
//! ```
//!
//! **Invariant**: only its own thread uses a stack, and the child of a `vfork` while its parent
//! waits. The thread pointer leads to the stack. So a stack is used only where that pointer is the
//! C library's ([`thread_pointer`](crate::thread_pointer)).

use crate::alternate::{self, Alternate};
use crate::{real, signals, switch};
use libc::{c_int, c_void, pid_t, pthread_attr_t, pthread_t, size_t, stack_t};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::cell::Cell;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// Size of a stack: room for the driver and for the program's signal handlers while a call waits.
const BYTES: usize = 256 << 10;
/// Unmapped bytes below a stack, at least one page of any size.
const GUARD_BYTES: usize = 64 << 10;
/// Room for one call. A handler on another stack may then make the next call below it.
const CALL_BYTES: usize = 64 << 10;
/// Gap below a stack pointer: the red zone and the alignment of the next frame.
const GAP_BYTES: usize = 256;
const MAGIC: u64 = 0x6261_746f_6e73_746b;

/// The header at the low end of a stack.
#[repr(C)]
#[derive(Debug)]
pub struct StackHeader {
    magic: u64,
    /// Its own address, which tells a header from its copies.
    own: *const StackHeader,
    /// Id of the thread that owns the stack.
    thread: pid_t,
    process: pid_t,
    /// Upper end of the last call that moved here from another stack; 0 for none.
    used_from: AtomicUsize,
}

const UNKNOWN: (usize, usize) = (0, 0);

/// Marks a thread that has had its stack and is about to end.
const ENDED: *const StackHeader = std::ptr::without_provenance(1);

thread_local! {
    static OWN: Cell<*const StackHeader> = const { Cell::new(std::ptr::null()) };
    static END: End = const { End };
    /// The bounds of the stack that the C library gave to the thread, from [`threads_stack`].
    static THREADS: Cell<(usize, usize)> = const { Cell::new(UNKNOWN) };
}

/// Unmaps the stack at the end of its thread.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let header = OWN.replace(ENDED);
        // SAFETY: made by `StackHeader::make`. A thread's own header is mapped until here.
        let Some(header) = (unsafe { header.as_ref() }) else { return };
        // In a child of `vfork` the memory belongs to the parent. A stack that is in use stays.
        if header.is_callers() && (!is_set(header) || alternate::set(&alternate::NONE)) {
            // SAFETY: the thread runs on another stack, or the alternate stack could not have been
            // disabled.
            let _ = unsafe { rustix::mm::munmap(header.guard(), GUARD_BYTES + BYTES) };
        }
    }
}

fn is_set(header: &StackHeader) -> bool {
    std::ptr::eq(alternate::current().ss_sp.cast(), header)
}

/// Whether an alternate stack is one of Baton's.
///
/// # Safety
/// The kernel reported the stack as a thread's alternate stack.
pub unsafe fn is_own(stack: &stack_t) -> bool {
    let header = stack.ss_sp.cast::<StackHeader>();
    stack.ss_flags & libc::SS_DISABLE == 0
        && stack.ss_size == BYTES
        && header.is_aligned()
        // SAFETY: by this function's contract the stack is mapped, with this size.
        && unsafe { (*header).magic == MAGIC && std::ptr::eq((*header).own, header) }
}

impl StackHeader {
    /// Maps a new stack for the calling thread. `None` without memory.
    fn make() -> Option<&'static StackHeader> {
        let bytes = GUARD_BYTES + BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: a new map, which nothing points into.
        let guard =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) }
                .ok()?;
        // SAFETY: within the map.
        let low = unsafe { guard.byte_add(GUARD_BYTES) };
        let protection = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the map is this function's own.
        unsafe { rustix::mm::mprotect(low, BYTES, protection) }.ok()?;
        let header = low.cast::<StackHeader>();
        let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
        // SAFETY: aligned, mapped and long enough; no other code knows it.
        unsafe {
            header.write(StackHeader {
                magic: MAGIC,
                own: header,
                thread: thread.as_raw_nonzero().get(),
                process: process.as_raw_nonzero().get(),
                used_from: AtomicUsize::new(0),
            });
            Some(&*header)
        }
    }

    fn low(&self) -> usize {
        &raw const *self as usize
    }

    pub fn top(&self) -> usize {
        self.low() + BYTES
    }

    fn guard(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast::<c_void>().wrapping_byte_sub(GUARD_BYTES)
    }

    /// Whether an address lies in this stack.
    fn has(&self, address: usize) -> bool {
        (self.low()..self.top()).contains(&address)
    }

    /// The stack as an alternate signal stack.
    pub fn as_alternate(&self) -> stack_t {
        stack_t { ss_sp: self.low() as *mut c_void, ss_flags: 0, ss_size: BYTES }
    }

    /// Whether the calling thread may use the stack. A thread that was made by `clone` without a
    /// thread pointer of its own finds another thread's stack, which it may not use.
    pub fn is_callers(&self) -> bool {
        rustix::thread::gettid().as_raw_nonzero().get() == self.thread
            || rustix::process::getpid().as_raw_nonzero().get() != self.process
    }

    /// Upper end of a call that comes from `stack_pointer`, on this stack or another. `may_nest`:
    /// the call may come from a handler while another call waits on this stack. `None` if there is
    /// no room.
    pub fn begin(&self, stack_pointer: usize, may_nest: bool) -> Option<usize> {
        let used_from = self.used_from.load(Ordering::Relaxed);
        let begin = if self.has(stack_pointer) {
            (stack_pointer - GAP_BYTES) & !63
        } else if may_nest && used_from != 0 {
            used_from - CALL_BYTES
        } else {
            self.top()
        };
        (begin >= self.low() + size_of::<StackHeader>() + CALL_BYTES).then_some(begin)
    }

    /// Records the upper end of a call that begins, or of the previous one when it ends; 0 for
    /// none. Returns the previous value.
    pub fn set_used_from(&self, address: usize) -> usize {
        // Only signal handlers of the same thread read the value.
        compiler_fence(Ordering::SeqCst);
        let before = self.used_from.swap(address, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        before
    }
}

/// The calling thread's stack, made if necessary. `None` if the thread can have none.
///
/// Only for threads whose thread pointer is the C library's.
pub fn own() -> Option<&'static StackHeader> {
    let mut header = OWN.get();
    if header.is_null() {
        header = StackHeader::make()?;
        OWN.set(header);
        // A thread that already runs its last destructors keeps its stack mapped.
        let _ = END.try_with(|_| ());
    }
    // SAFETY: made by `StackHeader::make`, and mapped until the thread's end, when ENDED replaces
    // it.
    (header != ENDED).then(|| unsafe { &*header })
}

/// Gives a starting thread an alternate stack for SIGSYS, where Baton handles that.
pub fn set_alternate_stack() {
    if signals::is_handled()
        && alternate::current().ss_flags & libc::SS_DISABLE != 0
        && let Some(header) = own()
    {
        alternate::set(&header.as_alternate());
    }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    if !signals::is_handled() {
        // SAFETY: the caller's arguments.
        return unsafe { real::sigaltstack(new, old) };
    }
    let before = alternate::current();
    // SAFETY: the caller's arguments, the stack replaced by ours at most.
    unsafe {
        let ours = match new.as_ref() {
            Some(new) if new.ss_flags & libc::SS_DISABLE != 0 => {
                own().map(StackHeader::as_alternate)
            }
            _ => None,
        };
        let new = ours.as_ref().map_or(new, |ours| ours);
        if !new.is_null() && real::sigaltstack(new, null_mut()) < 0 {
            return -1;
        }
        if let Some(old) = old.as_mut() {
            *old = if is_own(&before) { alternate::NONE } else { before };
        }
    }
    0
}

/// Runs a function that needs much stack on a large one: the caller's, or Baton's if the caller
/// does not run on the C library's stack for its thread (in a coroutine).
#[inline]
pub fn on_large_stack<T>(body: impl FnOnce() -> T) -> T {
    if is_on_threads_stack() || !signals::is_handled() { body() } else { on_own_stack(body) }
}

#[inline]
fn is_on_threads_stack() -> bool {
    let here = 0u8;
    let (low, bytes) = THREADS.get();
    (&raw const here as usize).wrapping_sub(low) < bytes
}

#[cold]
#[inline(never)]
fn on_own_stack<T>(body: impl FnOnce() -> T) -> T {
    let Some(header) = own().filter(|own| own.is_callers()) else { return body() };
    if THREADS.get() == UNKNOWN {
        call_on_stack(header, || THREADS.set(threads_stack()));
        return on_large_stack(body);
    }
    call_on_stack(header, body)
}

/// Runs a function on Baton's stack, or on the caller's if there is no room.
fn call_on_stack<T>(header: &StackHeader, body: impl FnOnce() -> T) -> T {
    struct Call<T, F> {
        body: Option<F>,
        result: MaybeUninit<T>,
        alternate: Alternate,
    }
    unsafe extern "C" fn run<T, F: FnOnce() -> T>(call: *mut c_void) {
        // SAFETY: `call_on_stack` passes a call that it keeps until this returns.
        let call = unsafe { &mut *call.cast::<Call<T, F>>() };
        call.alternate.enter();
        if let Some(body) = call.body.take() {
            call.result.write(body());
        }
        call.alternate.exit();
    }
    fn runner<T, F: FnOnce() -> T>(_: &F) -> unsafe extern "C" fn(*mut c_void) {
        run::<T, F>
    }
    let here = 0u8;
    let here = &raw const here as usize;
    if header.has(here) {
        return body();
    }
    let alternate = Alternate::prepare(&alternate::current(), here);
    let Some(top) = header.begin(here, alternate.may_nest()) else {
        alternate.cancel();
        return body();
    };
    let run = runner(&body);
    let mut call = Call { body: Some(body), result: MaybeUninit::uninit(), alternate };
    let used_before = header.set_used_from(top);
    // SAFETY: `begin` leaves room for a call below `top`, a multiple of 64. A panic out of `run`
    // ends the process.
    unsafe { switch::call_on(top, run, (&raw mut call).cast()) };
    header.set_used_from(if top == header.top() { 0 } else { used_before });
    call.alternate.cancel();
    // SAFETY: `run` has written it.
    unsafe { call.result.assume_init() }
}

/// The lowest address and the size of the C library's stack for the calling thread.
fn threads_stack() -> (usize, usize) {
    // SAFETY: functions that fill the structure with values of the calling thread.
    unsafe {
        let mut attributes: pthread_attr_t = zeroed();
        let (mut low, mut bytes) = (null_mut(), 0);
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return (1, 0);
        }
        libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
        (low as usize, bytes)
    }
}

/// The routine of a new thread and its argument.
struct Start<T> {
    routine: extern "C-unwind" fn(*mut c_void) -> T,
    argument: *mut c_void,
}

/// The first function of a new thread.
///
/// # Safety
/// `start` is a boxed [`Start`] that no other code has.
unsafe extern "C-unwind" fn start<T>(start: *mut c_void) -> T {
    // SAFETY: by this function's contract. Nothing is left to be dropped here while the routine
    // runs, since `pthread_exit` unwinds past this frame.
    let Start { routine, argument } = *unsafe { Box::from_raw(start.cast::<Start<T>>()) };
    set_alternate_stack();
    routine(argument)
}

type Routine<T> = extern "C-unwind" fn(*mut c_void) -> T;

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine<*mut c_void>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments; `start` takes the box if there is a thread.
    unsafe {
        create_thread(routine, argument, |first, argument| {
            let first = first as *const c_void as size_t;
            real::pthread_create(thread, attributes, first, argument)
        })
    }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut pthread_t,
    routine: Routine<c_int>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: as in `pthread_create`.
    unsafe {
        create_thread(routine, argument, |first, argument| {
            let first = first as *const c_void as size_t;
            real::thrd_create(thread, first, argument)
        })
    }
}

/// Lets `create` start a thread with a routine. `create` returns 0 if it did.
///
/// # Safety
/// `create` calls its first argument with the second, once and in a thread, or fails.
unsafe fn create_thread<T>(
    routine: Routine<T>,
    argument: *mut c_void,
    create: impl FnOnce(unsafe extern "C-unwind" fn(*mut c_void) -> T, *mut c_void) -> c_int,
) -> c_int {
    let begun = Box::into_raw(Box::new(Start { routine, argument }));
    let result = create(start::<T>, begun.cast());
    if result != 0 {
        // SAFETY: made above, and no thread got it.
        drop(unsafe { Box::from_raw(begun) });
    }
    result
}
