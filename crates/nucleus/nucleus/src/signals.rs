//! The two signals that a kernel's OS thread handles: the kernel's own signal (timer, other
//! kernels), and SIGSEGV of a stack that has overflowed.
//!
//! The handler of the kernel's signal runs on the stack of the thread that it interrupts. If the
//! thread is preemptible, the handler enters the kernel; the thread's registers stay in the signal
//! frame until the thread runs again. SIGSEGV is handled on a stack of its own.
//!
//! **Invariant**: outside of preemptible threads, both handlers do only what async-signal-safe
//! functions do. The code of a preemptible thread has promised that other threads may run.

use crate::entry_points::EntryPoints;
use crate::switch;
use crate::timer::SIGNAL;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// The entry points of the kernel that runs on this OS thread, or null.
    static RUNNING: Cell<*const EntryPoints> = const { Cell::new(ptr::null()) };
}

/// The action of SIGSEGV before ours. Other faults than overflows go on to it.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// The `si_code` of a fault for lack of room for a signal frame.
const SI_KERNEL: c_int = 0x80;
/// More bytes than a signal frame has.
const FRAME_BYTES: usize = 16 << 10;
const SIGNAL_STACK_BYTES: usize = 64 << 10;

/// Installs the two handlers, once for all kernels of the process.
fn install_handlers() {
    BEFORE.get_or_init(|| {
        // The handler lets other threads run, so the signal may come again within it.
        set(
            SIGNAL,
            on_kernel_signal as *const () as usize,
            libc::SA_RESTART | libc::SA_NODEFER,
            &[],
        );
        // The kernel's signal is blocked, or its handler would switch threads on the signal stack.
        let flags = libc::SA_ONSTACK | libc::SA_NODEFER;
        set(libc::SIGSEGV, on_fault as *const () as usize, flags, &[SIGNAL])
    });
}

/// Installs a handler, in which the signals of `blocked` are blocked, and returns the former
/// action.
fn set(signal: c_int, handler: usize, flags: c_int, blocked: &[c_int]) -> libc::sigaction {
    let mut before = MaybeUninit::uninit();
    // SAFETY: all zeroes is a value of this C structure; the handlers have the form that
    // SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags | libc::SA_SIGINFO;
        for &signal in blocked {
            libc::sigaddset(&raw mut action.sa_mask, signal);
        }
        let result = libc::sigaction(signal, &action, before.as_mut_ptr());
        assert_eq!(result, 0, "sigaction of a signal that can be handled");
        before.assume_init()
    }
}

/// The alternate signal stack of an OS thread. The OS thread may run kernels while this lives.
#[derive(Debug)]
pub struct SignalStack {
    stack: Box<[u8]>,
    stack_before: libc::stack_t,
    os_thread: i32,
}

impl SignalStack {
    /// Installs a signal stack for the calling OS thread, and the kernels' signal handlers for the
    /// process. Dropping it restores the former signal stack.
    pub fn install() -> SignalStack {
        install_handlers();
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

    /// Like [`SignalStack::install`], for the rest of the OS thread's life: dropping it disables
    /// the alternate stack, as the owner of the former one may have unmapped it by then.
    pub fn install_for_good() -> SignalStack {
        let mut signal_stack = SignalStack::install();
        signal_stack.stack_before.ss_flags = libc::SS_DISABLE;
        signal_stack
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        // SAFETY: the former stack, or none.
        unsafe { libc::sigaltstack(&self.stack_before, ptr::null_mut()) };
        debug_assert_eq!(self.stack.len(), SIGNAL_STACK_BYTES);
    }
}

/// Says which kernel runs on this OS thread, until it is dropped.
pub(crate) struct RunningKernel {
    before: *const EntryPoints,
}

impl RunningKernel {
    pub(crate) fn enter(entry_points: *const EntryPoints, _stack: &SignalStack) -> RunningKernel {
        RunningKernel { before: RUNNING.replace(entry_points) }
    }
}

impl Drop for RunningKernel {
    fn drop(&mut self) {
        RUNNING.set(self.before);
    }
}

extern "C" fn on_kernel_signal(_signal: c_int, _info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the entry points of a kernel that runs (`RunningKernel`), or null.
    let Some(entry_points) = (unsafe { RUNNING.get().as_ref() }) else { return };
    entry_points.interrupt_line.pending.store(1, Relaxed);
    if entry_points.in_kernel.load(Relaxed) != 0 || std::thread::panicking() {
        return;
    }
    let tcb = entry_points.current_tcb.get();
    // SAFETY: the TCB of the current thread, which is outside of the kernel. Only `CurrentThread`
    // writes this field then.
    if !unsafe { (&raw const (*tcb).preemptible).read_volatile() } {
        return;
    }
    // SAFETY: this is the current thread of that kernel, outside of the kernel. errno belongs to
    // the OS thread, so it is kept while other threads run.
    unsafe {
        let errno = *libc::__errno_location();
        // The system gives a handler control words of its own, and restores the thread's after it.
        let float_control = (*tcb).float_control;
        switch::preempt(entry_points);
        (*tcb).float_control = float_control;
        *libc::__errno_location() = errno;
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as in `on_kernel_signal`; the system passes valid pointers to a handler.
    let overflow = unsafe {
        let address = (*info).si_addr() as usize;
        // Without room for a signal frame the system tells no address; the stack pointer is near.
        let is_frame = (*info).si_code == SI_KERNEL;
        let address = if is_frame { switch::interrupted_at(context) } else { address };
        let room = if is_frame { FRAME_BYTES } else { 0 };
        RUNNING.get().as_ref().and_then(|entry_points| stack_top(entry_points, address, room))
    };
    match overflow {
        // SAFETY: the context of this handler, and the top of the thread's stack.
        Some(stack_top) => unsafe { switch::redirect(context, RUNNING.get(), stack_top) },
        None => {
            // Without an action yet, another OS thread is just installing this handler, and the
            // instruction faults once more.
            if let Some(before) = BEFORE.get() {
                pass_on(before, signal, info, context);
            }
        }
    }
}

/// Passes a fault on to the action that the process had before.
fn pass_on(
    before: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    type Plain = extern "C" fn(c_int);
    type Detailed = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    match before.sa_sigaction {
        // The instruction faults once more, and the system ends the process.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: an action that `sigaction` has returned.
            unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the flag says that the address is that of such a function.
            (unsafe { std::mem::transmute::<usize, Detailed>(handler) })(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag the address is that of such a function.
            (unsafe { std::mem::transmute::<usize, Plain>(handler) })(signal);
        }
    }
}

/// The top of the current thread's stack, if a fault at this address means that it has overflowed.
///
/// # Safety
/// The entry points are those of the kernel that runs on this OS thread.
unsafe fn stack_top(entry_points: &EntryPoints, address: usize, room: usize) -> Option<usize> {
    if entry_points.in_kernel.load(Relaxed) != 0 {
        return None;
    }
    // SAFETY: a shared reference. A thread that was writing the host state does not go on if this
    // is an overflow.
    let host_state = unsafe { &*entry_points.host_state.0.get() };
    let stack = host_state.stack_of(entry_points.current())?;
    let guard = stack.guard();
    (guard.start..guard.end + room).contains(&address).then(|| stack.top())
}
