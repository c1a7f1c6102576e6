//! Traps Binder calls that do not go through the C library.
//!
//! Programs built on rustix make the `ioctl` system call themselves. A seccomp filter answers every
//! `ioctl` of request type `b` with SIGSYS. The handler makes the call at the engine, stores the
//! result like the system call would, and returns behind the instruction.
//!
//! ```text
//!   program: syscall ioctl(fd, BINDER_..., p)
//!     kernel: filter -> SIGSYS          device:     engine, which blocks in the handler
//!       handler ------------------+---- otherwise:  the system call again, 6th argument MAGIC
//!   program: continues with rax / x0 = value or -errno
//! ```
//!
//! The handler runs in place of the system call, so it may do what a function called there may:
//! take locks and allocate. It has the program's signal mask (an empty `sa_mask`, and SA_NODEFER
//! for SIGSYS itself). So signals arrive during a blocking call as they would in the kernel, and
//! end it with `EINTR`. SA_RESTART has no effect on a trapped call, which nothing else interrupts.
//! It is set for a system call that a SIGSYS from `kill` interrupts.
//!
//! The call runs on Baton's stack of the thread ([`stack`](crate::stack)). The kernel puts the
//! signal's frame on the alternate stack:
//!
//! ```text
//!   Baton's      frame there     the call runs right below the frame
//!   none         frame below the interrupted code, perhaps on a stack too small for it: the
//!                call runs on Baton's, which is the alternate stack from then on
//!   program's    frame there     the frame is copied to Baton's, the call runs there, and the
//!                frame is copied back: meanwhile the program's handlers have their stack
//! ```
//!
//! A handler of the program that runs on the program's alternate stack may make a call too. Its
//! frames stay. During the call the alternate stack is the part below them, as it would be for a
//! system call.
//!
//! No code here uses a thread-local, including `errno`, before it knows that the thread pointer is
//! the C library's. A thread with another one can neither open nor use a device.
//!
//! A filter cannot be removed and survives `exec`. So the filter passes calls that carry [`MAGIC`],
//! at whatever address the library is loaded. It is installed only when a program first opens a
//! device. An inherited filter is recognized, and no second one is added.
//!
//! A program may also open, duplicate, map, poll and close a device by its own system calls. Their
//! arguments do not tell them from others, but their addresses do: they lie in the code of an
//! executable that names a device ([`image`]). A second filter traps them from the start. It is
//! valid for the addresses of this execution, so each such executable installs its own.
//!
//! Inline calls of other libraries are not trapped. `mmap` maps the memfd as it should, flags that
//! `fcntl` changes are read again here, and `close` is noticed when the number is used again.

use crate::alternate::{Alternate, RED_ZONE_BYTES};
use crate::filter::{self, MAGIC, PROBE, PROBE_ANSWER};
use crate::stack::{self, StackHeader};
use crate::{calls, device, real, registers, signals, switch, table, thread_pointer};
use libc::{c_int, c_long, c_ulong, c_void, siginfo_t, ucontext_t};
use std::mem::zeroed;
use std::ops::Range;
use std::ptr::null_mut;

/// `si_code` of a SIGSYS from a filter.
const SYS_SECCOMP: c_int = 1;

/// Installs the handler, at the start, because a filter may be inherited.
pub fn install_handler() {
    // SAFETY: zeroes are an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is complete, and its handler has the form for SA_SIGINFO.
    if unsafe { real::sigaction(libc::SIGSYS, &action, null_mut()) } == 0 {
        signals::unblock();
        signals::set_handled();
        stack::set_alternate_stack();
    }
}

/// # Safety
/// Called by the kernel as a SA_SIGINFO handler.
unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the address of the interrupted context, on this stack.
    let registers = unsafe { &mut *context.cast::<ucontext_t>() };
    let (number, arguments) = (registers::number(registers), registers::arguments(registers));
    // SAFETY: the kernel also passes the address of the signal's information.
    if unsafe { (*info).si_code } != SYS_SECCOMP || !is_trapped(number, arguments) {
        // SAFETY: these are a signal handler's arguments.
        return unsafe { signals::deliver(signal, info, context) };
    }
    if !thread_pointer::is_c_librarys() {
        // SAFETY: these are the arguments of the program's own system call.
        return registers::set_result(registers, unsafe { forward_to_kernel(number, arguments) });
    }
    // SAFETY: the kernel reports this thread's alternate stack.
    if !unsafe { stack::is_own(&registers.uc_stack) }
        && let Some(header) = stack::own().filter(|own| own.is_callers())
    {
        // SAFETY: the information and context are the kernel's, of this signal.
        unsafe { call_on_own_stack(header, number, arguments, info, registers) };
    }
    // SAFETY: as above.
    registers::set_result(registers, unsafe { emulate(number, arguments) });
}

/// A trapped call that runs on Baton's stack while the interrupted code's stack is left.
struct MovedCall {
    number: c_long,
    arguments: [c_long; 6],
    result: c_long,
    header: &'static StackHeader,
    /// Upper end of the previous call on Baton's stack.
    used_before: usize,
    /// Addresses of the signal's frame, where it has to be when the signal returns.
    frame: Range<usize>,
    /// A copy of it, if it is on the program's alternate stack.
    copy: Option<*const u8>,
    context: *mut ucontext_t,
    alternate: Alternate,
}

/// Runs the call on Baton's stack and returns from the signal. Returns to the caller only if that
/// stack has no room.
///
/// # Safety
/// The arguments are those of the program's own system call. `info` and `context` belong to the
/// frame of its signal.
#[inline(never)]
unsafe fn call_on_own_stack(
    header: &'static StackHeader,
    number: c_long,
    arguments: [c_long; 6],
    info: *const siginfo_t,
    context: &mut ucontext_t,
) {
    let interrupted = registers::stack_pointer(context);
    let had_one = context.uc_stack.ss_flags & libc::SS_DISABLE == 0;
    let alternate = Alternate::prepare(&context.uc_stack, interrupted);
    let Some(top) = header.begin(interrupted, alternate.may_nest()) else {
        return alternate.cancel();
    };
    // SAFETY: by this function's contract.
    let frame = unsafe { registers::frame(info, context) };
    let copy_at = if had_one { (top - frame.len()) & !63 } else { top };
    let call_at = (copy_at - size_of::<MovedCall>()) & !63;
    // Set first, because a signal may come at any time and its handler may make a call.
    let used_before = header.set_used_from(call_at);
    let copy = had_one.then_some(copy_at as *const u8);
    if copy.is_some() {
        let (from, to) = (frame.start as *const u8, copy_at as *mut u8);
        // SAFETY: the frame is readable. The copy lies above `call_at`, in a part of the stack that
        // no call uses.
        unsafe { std::ptr::copy_nonoverlapping(from, to, frame.len()) };
    }
    let call = call_at as *mut MovedCall;
    // SAFETY: `begin` leaves aligned and unused room for both and for the call. `restore_frame`
    // restores the kernel's frame, except for the result and the alternate stack.
    unsafe {
        call.write(MovedCall {
            number,
            arguments,
            result: 0,
            header,
            used_before: if top == header.top() { 0 } else { used_before },
            frame,
            copy,
            context,
            alternate,
        });
        switch::leave_signal_by(call_at, run_moved_call, restore_frame, call.cast());
    }
}

/// Makes the call. Returns the stack pointer at which [`restore_frame`] runs: below the frame's
/// place.
///
/// # Safety
/// `call` is a complete [`MovedCall`], and this runs on Baton's stack.
unsafe extern "C" fn run_moved_call(call: *mut c_void) -> usize {
    // SAFETY: by this function's contract.
    let call = unsafe { &mut *call.cast::<MovedCall>() };
    call.alternate.enter();
    // SAFETY: these are the arguments of the program's own system call.
    call.result = unsafe { emulate(call.number, call.arguments) };
    call.alternate.exit();
    (call.frame.start - RED_ZONE_BYTES) & !15
}

/// Puts the frame back with the result in it. Returns the stack pointer that `rt_sigreturn` needs.
///
/// # Safety
/// [`run_moved_call`] has run `call`, and this runs below the frame's place.
unsafe extern "C" fn restore_frame(call: *mut c_void) -> usize {
    // SAFETY: by this function's contract.
    let call = unsafe { &*call.cast::<MovedCall>() };
    if let Some(copy) = call.copy {
        // SAFETY: the kernel put the frame there, and every function that has used the place since
        // has returned.
        unsafe {
            std::ptr::copy_nonoverlapping(copy, call.frame.start as *mut u8, call.frame.len());
        }
    }
    // SAFETY: within the frame.
    let context = unsafe { &mut *call.context };
    registers::set_result(context, call.result);
    // `rt_sigreturn` gives the thread the alternate stack and the mask that the frame contains.
    if let Alternate::None = call.alternate {
        context.uc_stack = call.header.as_alternate();
    }
    let at = registers::frame_pointer(&call.frame);
    // From here on a handler may use Baton's stack.
    call.header.set_used_from(call.used_before);
    at
}

/// Whether Baton's filters trap a call.
fn is_trapped(number: c_long, arguments: [c_long; 6]) -> bool {
    if number == libc::SYS_ioctl {
        device::is_binder(arguments[1] as c_ulong)
    } else {
        filter::CODE_CALLS.contains(&number)
    }
}

/// Makes the system call of a thread that the driver cannot serve.
///
/// # Safety
/// The contract of the system call.
unsafe fn forward_to_kernel(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [fd, request, third, fourth, fifth, sixth] = arguments;
    if number == libc::SYS_ioctl && fd == -1 && request as c_ulong == PROBE {
        return PROBE_ANSWER;
    }
    if number == libc::SYS_ioctl && table::contains(fd as c_int) {
        return -c_long::from(libc::ENOSYS);
    }
    let sixth = if number == libc::SYS_ioctl { MAGIC as c_long } else { sixth };
    let arguments = [fd, request, third, fourth, fifth, sixth].map(|argument| argument as isize);
    // SAFETY: by this function's contract; the kernel's ioctl reads three arguments.
    unsafe { registers::system_call(number, arguments) }
}

/// Emulates a trapped system call. Returns a value or a negative errno.
///
/// # Safety
/// The contract of the system call.
unsafe fn emulate(number: c_long, arguments: [c_long; 6]) -> c_long {
    let errno = real::errno();
    // SAFETY: by this function's contract.
    let result = unsafe {
        if number == libc::SYS_ioctl {
            ioctl(arguments)
        } else {
            kernel_result(
                calls::call(number, arguments)
                    .unwrap_or_else(|| real::system_call(number, arguments)),
            )
        }
    };
    real::set_errno(errno);
    result
}

/// Converts a C library's result into the kernel's form.
fn kernel_result(result: c_long) -> c_long {
    if result == -1 { -c_long::from(real::errno()) } else { result }
}

/// # Safety
/// The contract of the system call.
unsafe fn ioctl(arguments: [c_long; 6]) -> c_long {
    let [fd, request, argument, fourth, fifth, _] = arguments;
    let fd = fd as c_int;
    if fd == -1 && request as c_ulong == PROBE {
        return PROBE_ANSWER;
    }
    let nonblocking = || {
        // SAFETY: F_GETFL takes no argument. A program that makes system calls itself may have set
        // the flag by one.
        unsafe { real::fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0 }
    };
    if crate::table::contains(fd) {
        let (request, argument) = (request as c_ulong, argument as usize);
        // SAFETY: by this function's contract.
        match unsafe { device::binder_ioctl(fd, request, argument, Some(nonblocking())) } {
            Some(Ok(value)) => return value.into(),
            Some(Err(errno)) => return -c_long::from(errno.raw_os_error()),
            None => {}
        }
    }
    let arguments = [fd.into(), request, argument, fourth, fifth, MAGIC as c_long];
    // SAFETY: by this function's contract; the kernel's ioctl reads three arguments.
    kernel_result(unsafe { real::system_call(libc::SYS_ioctl, arguments) })
}
