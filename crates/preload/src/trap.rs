//! Binder calls that do not go through the C library.
//!
//! Programs built on rustix make the `ioctl` system call themselves. A seccomp filter answers
//! every `ioctl` whose request type is `b` with SIGSYS; the handler makes the call at the engine,
//! puts the result where the system call would have, and returns behind the instruction.
//!
//! ```text
//!   program: syscall ioctl(fd, BINDER_..., p)
//!     kernel: filter -> SIGSYS          fd is ours:  engine, blocking right here in the handler
//!       handler ------------------+---- otherwise:   the system call once more, 6th argument MAGIC
//!   program: continues with rax / x0 = value or -errno
//! ```
//!
//! The handler stands where the system call stood, so it is no more restricted than a function
//! called there: it may take locks and allocate. It runs on the thread's own stack (an alternate
//! stack could not hold a second trapped call, made by a handler that interrupts the first), with
//! the program's signal mask (an empty `sa_mask`, and SA_NODEFER for SIGSYS itself), so that
//! signals arrive during a blocking call as they would in the kernel, and end it with `EINTR`.
//! SA_RESTART does nothing for a trapped call, which has no other way to be interrupted; it is
//! set for the system call that a SIGSYS sent by `kill` would interrupt.
//!
//! A filter cannot be taken off and survives `exec`. So it passes calls that carry [`MAGIC`],
//! wherever the library is loaded then; it is installed when a program first opens a device,
//! not before; and one that is inherited is recognized and not stacked upon.
//!
//! A program may also open, duplicate, map, poll and close a device by its own system calls. A
//! filter cannot tell these by their arguments, but by where they stand: in the code of an
//! executable that names a device ([`image`]). A second filter traps those from the start. It is
//! about addresses of this execution alone, so each such executable installs its own.
//!
//! Other libraries' inline calls are not seen: `mmap` maps the memfd as it should, `fcntl` changes
//! flags that are read back here, and `close` is noticed when the number is used again.

use crate::filter::{self, MAGIC};
use crate::{calls, device, image, real, signals};
use libc::{c_int, c_long, c_ulong, c_void, siginfo_t, ucontext_t};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request of type `b` that Binder does not have, and what the handler answers to it on no
/// descriptor: how an inherited filter is recognized.
const PROBE: c_ulong = 0x62ff;
const PROBE_ANSWER: c_long = 0xba70;
/// `si_code` of a SIGSYS that a filter raised.
const SYS_SECCOMP: c_int = 1;

/// Whether the handler is in place. Set once, in the constructor.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// Whether SIGSYS is ours.
pub fn is_handled() -> bool {
    HANDLED.load(Ordering::Relaxed)
}

/// Installs the handler: at the start, for a filter may be inherited.
pub fn handle() {
    // SAFETY: zeroes are an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: the action is complete and its handler has the form that SA_SIGINFO says.
    if unsafe { real::sigaction(libc::SIGSYS, &action, null_mut()) } == 0 {
        signals::unblock();
        HANDLED.store(true, Ordering::Relaxed);
    }
}

/// Installs the filter, unless this process was asked not to or has inherited one.
pub fn arm() {
    static ARMED: Once = Once::new();
    if is_handled() {
        ARMED.call_once(|| {
            // Where the system refuses a filter, programs that use the C library still work.
            if !is_trapping() {
                let _ = filter::install(&filter::of_ioctls());
            }
        });
    }
}

/// At the start: has the kernel show us what the executable's own code does with descriptors, if
/// the executable names a device. Later would be too late, for it may open one that way.
pub fn arm_code() {
    if !is_handled() {
        return;
    }
    if let Some(filter) = image::code_that_names_a_device().and_then(filter::of_code) {
        let _ = filter::install(&filter);
    }
}

fn is_trapping() -> bool {
    let errno = real::errno();
    let arguments = [-1, PROBE as c_long, 0, 0, 0, 0];
    // SAFETY: no descriptor, and a request without argument: at worst EBADF.
    let answer = unsafe { real::system_call(libc::SYS_ioctl, arguments) };
    real::set_errno(errno);
    answer == PROBE_ANSWER
}

/// The registers of an interrupted system call.
#[cfg(target_arch = "x86_64")]
mod registers {
    use super::{c_long, ucontext_t};

    const ARGUMENTS: [libc::c_int; 6] =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];

    pub fn number(context: &ucontext_t) -> c_long {
        context.uc_mcontext.gregs[libc::REG_RAX as usize]
    }

    pub fn arguments(context: &ucontext_t) -> [c_long; 6] {
        ARGUMENTS.map(|register| context.uc_mcontext.gregs[register as usize])
    }

    pub fn set_result(context: &mut ucontext_t, result: c_long) {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
    }
}

/// The registers of an interrupted system call.
#[cfg(target_arch = "aarch64")]
mod registers {
    use super::{c_long, ucontext_t};

    pub fn number(context: &ucontext_t) -> c_long {
        context.uc_mcontext.regs[8] as c_long
    }

    pub fn arguments(context: &ucontext_t) -> [c_long; 6] {
        [0, 1, 2, 3, 4, 5].map(|register| context.uc_mcontext.regs[register] as c_long)
    }

    pub fn set_result(context: &mut ucontext_t, result: c_long) {
        context.uc_mcontext.regs[0] = result as u64;
    }
}

/// # Safety
/// Called by the kernel as a SA_SIGINFO handler.
unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = real::errno();
    // SAFETY: the kernel passes the address of the interrupted context, on this stack.
    let registers = unsafe { &mut *context.cast::<ucontext_t>() };
    // SAFETY: and of the signal's information.
    let from_filter = unsafe { (*info).si_code } == SYS_SECCOMP;
    let result = from_filter
        .then(|| {
            let (number, arguments) =
                (registers::number(registers), registers::arguments(registers));
            // SAFETY: these are the arguments of the program's own system call.
            unsafe { answer(number, arguments) }
        })
        .flatten();
    if let Some(result) = result {
        registers::set_result(registers, result);
    } else {
        // SAFETY: these are a signal handler's arguments.
        unsafe { signals::deliver(signal, info, context) };
    }
    real::set_errno(errno);
}

/// The trapped system call: a value or a negative errno. `None` if no filter of ours traps it.
///
/// # Safety
/// As the system call's.
unsafe fn answer(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    if number == libc::SYS_ioctl {
        // SAFETY: by this function's contract.
        return device::is_binder(arguments[1] as c_ulong).then(|| unsafe { ioctl(arguments) });
    }
    if !filter::OF_CODE.contains(&number) {
        return None;
    }
    // SAFETY: by this function's contract.
    Some(system(unsafe {
        calls::call(number, arguments).unwrap_or_else(|| real::system_call(number, arguments))
    }))
}

/// From the C library's way to say what happened to the kernel's.
fn system(result: c_long) -> c_long {
    if result == -1 { -c_long::from(real::errno()) } else { result }
}

/// # Safety
/// As the system call's.
unsafe fn ioctl(arguments: [c_long; 6]) -> c_long {
    let [fd, request, argument, fourth, fifth, _] = arguments;
    let fd = fd as c_int;
    if fd == -1 && request as c_ulong == PROBE {
        return PROBE_ANSWER;
    }
    let nonblocking = || {
        // SAFETY: F_GETFL takes no argument. A program that makes system calls itself may have
        // set the flag that way.
        unsafe { real::fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0 }
    };
    if crate::table::is_mine(fd) {
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
    system(unsafe { real::system_call(libc::SYS_ioctl, arguments) })
}
