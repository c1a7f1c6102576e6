//! The two signals that a kernel's OS thread takes: the timer's, and SIGSEGV of a stack that has
//! overflowed.
//!
//! The timer's handler runs on the stack of the thread that it interrupts. If it may, it enters the
//! kernel from there, and what the thread was doing stays in the signal's frame until the thread
//! runs again. SIGSEGV has a stack of its own, as there is none left.
//!
//! **Invariant**: both do nothing but what async-signal-safe functions do, unless the thread is
//! preemptible: then its code has promised that other threads may run.

use crate::kernel::current;
use crate::switch::{self, EntryPoints};
use crate::timer::SIGNAL;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// The kernel that runs on this OS thread.
    static DOORS: Cell<*const EntryPoints> = const { Cell::new(ptr::null()) };
}

/// Who handled SIGSEGV before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// `si_code` if there was no room for a signal's frame.
const SI_KERNEL: c_int = 0x80;
/// More than such a frame needs.
const FRAME_BYTES: usize = 16 << 10;
const SIGNAL_STACK_BYTES: usize = 64 << 10;

/// Takes the two signals, for all kernels of the process.
fn install() {
    BEFORE.get_or_init(|| {
        // The timer's may come again while threads switch within its handler.
        set(SIGNAL, on_timer as *const () as usize, libc::SA_RESTART | libc::SA_NODEFER);
        set(libc::SIGSEGV, on_fault as *const () as usize, libc::SA_ONSTACK | libc::SA_NODEFER)
    });
}

fn set(signal: c_int, handler: usize, flags: c_int) -> libc::sigaction {
    let mut before = MaybeUninit::uninit();
    // SAFETY: all zeroes is a value of this C structure; the handlers have the form that
    // SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags | libc::SA_SIGINFO;
        let result = libc::sigaction(signal, &action, before.as_mut_ptr());
        assert_eq!(result, 0, "sigaction of a signal that can be handled");
        before.assume_init()
    }
}

/// Room for the handlers of the calling OS thread, which may run kernels as long as this lives.
#[derive(Debug)]
pub struct SignalStack {
    stack: Box<[u8]>,
    stack_before: libc::stack_t,
    os_thread: i32,
}

impl SignalStack {
    /// For the calling OS thread.
    pub fn lay() -> SignalStack {
        install();
        let mut stack = vec![0; SIGNAL_STACK_BYTES].into_boxed_slice();
        let new = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: SIGNAL_STACK_BYTES,
        };
        let mut before = MaybeUninit::uninit();
        // SAFETY: the stack lives until `drop` has put the other one back.
        let stack_before = unsafe {
            libc::sigaltstack(&new, before.as_mut_ptr());
            before.assume_init()
        };
        let os_thread = rustix::thread::gettid().as_raw_nonzero().get();
        SignalStack { stack, stack_before, os_thread }
    }

    pub(crate) fn os_thread(&self) -> i32 {
        self.os_thread
    }

    /// The same, until the OS thread ends: who had one before may have unmapped it by then.
    pub fn lay_for_good() -> SignalStack {
        let mut ground = SignalStack::lay();
        ground.stack_before.ss_flags = libc::SS_DISABLE;
        ground
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        // SAFETY: what was there before, or none.
        unsafe { libc::sigaltstack(&self.stack_before, ptr::null_mut()) };
        debug_assert_eq!(self.stack.len(), SIGNAL_STACK_BYTES);
    }
}

/// A kernel runs on this OS thread, as long as this lives.
pub(crate) struct Kernel {
    doors_before: *const EntryPoints,
}

impl Kernel {
    pub(crate) fn enter(entry_points: *const EntryPoints, _ground: &SignalStack) -> Kernel {
        Kernel { doors_before: DOORS.replace(entry_points) }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        DOORS.set(self.doors_before);
    }
}

extern "C" fn on_timer(_signal: c_int, _info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the entry_points of a kernel that runs (`Kernel`), or null.
    let Some(entry_points) = (unsafe { DOORS.get().as_ref() }) else { return };
    entry_points.knocker.pending.store(1, Relaxed);
    if entry_points.in_kernel.load(Relaxed) != 0 || std::thread::panicking() {
        return;
    }
    let tcb = entry_points.current_tcb.get();
    // SAFETY: the TCB of the current thread, which is outside of the kernel. `CurrentThread` writes
    // it.
    if !unsafe { (&raw const (*tcb).preemptible).read_volatile() } {
        return;
    }
    // SAFETY: errno is the OS thread's, so the other threads change it; and this is the current
    // thread of that kernel, outside of it.
    unsafe {
        let errno = *libc::__errno_location();
        // The system gives a handler control words of its own, and the thread's back after it.
        let float_control = (*tcb).float_control;
        switch::preempt(entry_points);
        (*tcb).float_control = float_control;
        *libc::__errno_location() = errno;
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as in `on_timer`; the kernel has given a handler what it says that it does.
    let overflow = unsafe {
        let address = (*info).si_addr() as usize;
        // No room for a signal's frame: the address is not told, but the stack pointer is near.
        let is_frame = (*info).si_code == SI_KERNEL;
        let address = if is_frame { switch::interrupted_at(context) } else { address };
        let room = if is_frame { FRAME_BYTES } else { 0 };
        DOORS.get().as_ref().and_then(|entry_points| stack_top(entry_points, address, room))
    };
    match overflow {
        // SAFETY: the context of this handler, and the top of the stack of the thread.
        Some(stack_top) => unsafe { switch::redirect(context, DOORS.get(), stack_top) },
        None => {
            // The fault comes again, to whoever handled it before.
            if let Some(before) = BEFORE.get() {
                // SAFETY: an action that `sigaction` has told us.
                unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
            }
        }
    }
}

/// The top of the current thread's stack, if this address says that it has overflowed.
///
/// # Safety
/// `entry_points` are those of the kernel that runs here.
unsafe fn stack_top(entry_points: &EntryPoints, address: usize, room: usize) -> Option<usize> {
    if entry_points.in_kernel.load(Relaxed) != 0 {
        return None;
    }
    // SAFETY: read only, and the thread that may have been at the host_state has been interrupted
    // for good if this is an overflow.
    let host_state = unsafe { &*entry_points.host_state.0.get() };
    let stack = host_state.stack_of(current(entry_points))?;
    let guard = stack.guard();
    (guard.start..guard.end + room).contains(&address).then(|| stack.top())
}
