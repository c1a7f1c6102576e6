//! A stack of Baton's for each thread: where a trapped system call is made.
//!
//! The program's own stack may have no room for it: goroutines and coroutines have a few KiB, which
//! the kernel's signal frame alone exceeds. So a thread whose program has set no alternate stack
//! gets one from here, and SIGSYS is delivered on it. A thread with an alternate stack of its
//! program's keeps that one, and the handler leaves it for the stack from here
//! ([`trap`](crate::trap)).
//!
//! ```text
//!   | guard | Header | free ...        <- sp | frames |
//!           ^ low                                     ^ top
//! ```
//!
//! **Invariant**: only its own thread uses a stack, and the child of a `vfork` while its parent
//! waits. A stack is found by the thread pointer, and therefore only where that is the C library's
//! ([`thread_pointer`](crate::thread_pointer)).

use crate::alternate::{self, Alternate};
use crate::{real, switch, trap};
use libc::{c_int, c_void, pid_t, pthread_attr_t, pthread_t, size_t, stack_t};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::cell::Cell;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// Room for the driver, and for what the program's signal handlers do while a call waits.
const BYTES: usize = 256 << 10;
/// Below it: a page of any size.
const GUARD_BYTES: usize = 64 << 10;
/// For one call, until the program makes another one from a handler on another stack.
const CALL_BYTES: usize = 64 << 10;
/// Below a stack pointer: the red zone, and what keeps the next frame aligned.
const GAP_BYTES: usize = 256;
const MAGIC: u64 = 0x6261_746f_6e73_746b;

/// At a stack's low end.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    magic: u64,
    /// Its own address, so that no copy is taken for it.
    own: *const Header,
    /// Whose it is.
    thread: pid_t,
    process: pid_t,
    /// Where the last call begins that has left another stack for this one; 0 for none.
    used_from: AtomicUsize,
}

const UNKNOWN: (usize, usize) = (0, 0);

/// A thread that has had its stack, and is about to end.
const ENDED: *const Header = std::ptr::without_provenance(1);

thread_local! {
    static OWN: Cell<*const Header> = const { Cell::new(std::ptr::null()) };
    static END: End = const { End };
    /// The stack that the C library has given to the thread, as [`threads_stack`].
    static THREADS: Cell<(usize, usize)> = const { Cell::new(UNKNOWN) };
}

/// The end of the thread: its stack goes.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let header = OWN.replace(ENDED);
        // SAFETY: made by `Header::make`; a header that is a thread's own is mapped until here.
        let Some(header) = (unsafe { header.as_ref() }) else { return };
        // In a child of `vfork` the memory is the parent's. Where it is in use, it stays.
        if header.is_callers() && (!is_set(header) || alternate::set(&alternate::NONE)) {
            // SAFETY: the thread runs on another stack, as it could not be disabled otherwise.
            let _ = unsafe { rustix::mm::munmap(header.guard(), GUARD_BYTES + BYTES) };
        }
    }
}

fn is_set(header: &Header) -> bool {
    std::ptr::eq(alternate::current().ss_sp.cast(), header)
}

/// Whether an alternate stack is one from here.
///
/// # Safety
/// It is a thread's, as the kernel has it.
pub unsafe fn is_own(stack: &stack_t) -> bool {
    let header = stack.ss_sp.cast::<Header>();
    stack.ss_flags & libc::SS_DISABLE == 0
        && stack.ss_size == BYTES
        && header.is_aligned()
        // SAFETY: by this function's contract it is memory, and as large as it says.
        && unsafe { (*header).magic == MAGIC && std::ptr::eq((*header).own, header) }
}

impl Header {
    /// A new stack for the calling thread. `None` where there is no memory.
    fn make() -> Option<&'static Header> {
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
        let header = low.cast::<Header>();
        let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
        // SAFETY: aligned, mapped and long enough; nobody else knows of it.
        unsafe {
            header.write(Header {
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

    /// Whether an address is in this stack.
    fn has(&self, address: usize) -> bool {
        (self.low()..self.top()).contains(&address)
    }

    /// As an alternate stack.
    pub fn as_alternate(&self) -> stack_t {
        stack_t { ss_sp: self.low() as *mut c_void, ss_flags: 0, ss_size: BYTES }
    }

    /// Whether the calling thread may use it. A thread that was made by a `clone` without a thread
    /// pointer of its own finds that of another thread, and may not.
    pub fn is_callers(&self) -> bool {
        rustix::thread::gettid().as_raw_nonzero().get() == self.thread
            || rustix::process::getpid().as_raw_nonzero().get() != self.process
    }

    /// Where a call begins that comes from `stack_pointer`, here or somewhere else. `may_nest`: it
    /// may come from a handler that runs while another call waits here. `None` if there is no room
    /// for it.
    pub fn begin(&self, stack_pointer: usize, may_nest: bool) -> Option<usize> {
        let used_from = self.used_from.load(Ordering::Relaxed);
        let begin = if self.has(stack_pointer) {
            (stack_pointer - GAP_BYTES) & !63
        } else if may_nest && used_from != 0 {
            used_from - CALL_BYTES
        } else {
            self.top()
        };
        (begin >= self.low() + size_of::<Header>() + CALL_BYTES).then_some(begin)
    }

    /// A call begins at this address, or the one before it goes on: 0 for none. The one before.
    pub fn use_from(&self, address: usize) -> usize {
        // Only signal handlers of the same thread look.
        compiler_fence(Ordering::SeqCst);
        let before = self.used_from.swap(address, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        before
    }
}

/// The calling thread's stack, made if it has none. `None` where it can have none.
///
/// Only for a thread whose thread pointer is the C library's.
pub fn own() -> Option<&'static Header> {
    let mut header = OWN.get();
    if header.is_null() {
        header = Header::make()?;
        OWN.set(header);
        // It is too late for a thread that runs its last destructors: its stack stays.
        let _ = END.try_with(|_| ());
    }
    // SAFETY: made by `Header::make` and mapped until the thread's end, when it is replaced by
    // ENDED.
    (header != ENDED).then(|| unsafe { &*header })
}

/// At the start of a thread: SIGSYS is to have a stack.
pub fn begin_thread() {
    if alternate::current().ss_flags & libc::SS_DISABLE != 0
        && let Some(header) = own()
    {
        alternate::set(&header.as_alternate());
    }
}

/// Does what takes much of a stack on one that has room: the caller's own, or ours if the caller
/// runs on another one than the C library has given to its thread (a coroutine's).
#[inline]
pub fn with_room<T>(body: impl FnOnce() -> T) -> T {
    if is_on_threads_stack() || !trap::is_handled() { body() } else { elsewhere(body) }
}

#[inline]
fn is_on_threads_stack() -> bool {
    let here = 0u8;
    let (low, bytes) = THREADS.get();
    (&raw const here as usize).wrapping_sub(low) < bytes
}

#[cold]
#[inline(never)]
fn elsewhere<T>(body: impl FnOnce() -> T) -> T {
    let Some(header) = own().filter(|own| own.is_callers()) else { return body() };
    if THREADS.get() == UNKNOWN {
        on(header, || THREADS.set(threads_stack()));
        return with_room(body);
    }
    on(header, body)
}

/// Does something on our stack, or right here if there is no room.
fn on<T>(header: &Header, body: impl FnOnce() -> T) -> T {
    struct Call<T, F> {
        body: Option<F>,
        result: MaybeUninit<T>,
        alternate: Alternate,
    }
    unsafe extern "C" fn run<T, F: FnOnce() -> T>(call: *mut c_void) {
        // SAFETY: `on` passes a call that it keeps until this returns.
        let call = unsafe { &mut *call.cast::<Call<T, F>>() };
        call.alternate.begin();
        if let Some(body) = call.body.take() {
            call.result.write(body());
        }
        call.alternate.end();
    }
    fn runner<T, F: FnOnce() -> T>(_: &F) -> unsafe extern "C" fn(*mut c_void) {
        run::<T, F>
    }
    let here = 0u8;
    let here = &raw const here as usize;
    if header.has(here) {
        return body();
    }
    let alternate = Alternate::leave(&alternate::current(), here);
    let Some(top) = header.begin(here, alternate.may_nest()) else {
        alternate.stay();
        return body();
    };
    let run = runner(&body);
    let mut call = Call { body: Some(body), result: MaybeUninit::uninit(), alternate };
    let used_before = header.use_from(top);
    // SAFETY: `begin` leaves room for a call below `top`, which is a multiple of 64; what unwinds
    // out of `run` ends the process.
    unsafe { switch::call_on(top, run, (&raw mut call).cast()) };
    header.use_from(if top == header.top() { 0 } else { used_before });
    call.alternate.stay();
    // SAFETY: `run` has written it.
    unsafe { call.result.assume_init() }
}

/// Where the C library has the calling thread's stack: its lowest address, and how many bytes.
fn threads_stack() -> (usize, usize) {
    // SAFETY: zeroes are to be filled, by functions that are asked about the calling thread.
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

/// What a thread begins with.
struct Start<T> {
    routine: extern "C-unwind" fn(*mut c_void) -> T,
    argument: *mut c_void,
}

/// A thread's first function.
///
/// # Safety
/// `start` is a boxed [`Start`] that nobody else has.
unsafe extern "C-unwind" fn start<T>(start: *mut c_void) -> T {
    // SAFETY: by this function's contract. Nothing here is left to be dropped while the routine
    // runs, since
    // `pthread_exit` unwinds past this frame.
    let Start { routine, argument } = *unsafe { Box::from_raw(start.cast::<Start<T>>()) };
    begin_thread();
    routine(argument)
}

type Routine<T> = extern "C-unwind" fn(*mut c_void) -> T;

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine<*mut c_void>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments; `start` takes the box if there is a thread.
    unsafe {
        begin(routine, argument, |first, argument| {
            let first = first as *const c_void as size_t;
            real::pthread_create(thread, attributes, first, argument)
        })
    }
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut pthread_t,
    routine: Routine<c_int>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: as in `pthread_create`.
    unsafe {
        begin(routine, argument, |first, argument| {
            let first = first as *const c_void as size_t;
            real::thrd_create(thread, first, argument)
        })
    }
}

/// Has `create` make a thread of a routine. It answers 0 if it has.
///
/// # Safety
/// `create` calls its first argument with the second, once and in a thread, or fails.
unsafe fn begin<T>(
    routine: Routine<T>,
    argument: *mut c_void,
    create: impl FnOnce(unsafe extern "C-unwind" fn(*mut c_void) -> T, *mut c_void) -> c_int,
) -> c_int {
    let begun = Box::into_raw(Box::new(Start { routine, argument }));
    let result = create(start::<T>, begun.cast());
    if result != 0 {
        // SAFETY: made above, and no thread has it.
        drop(unsafe { Box::from_raw(begun) });
    }
    result
}
