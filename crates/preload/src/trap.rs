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
//! not before; and one that is inherited is recognized and not stacked upon. Everything but
//! `ioctl` leaves it at the second instruction, which newer kernels know without running it.
//!
//! Of a program's other inline calls, `mmap` maps the memfd as it should, `fcntl` changes flags
//! that are read back here, and `close` is noticed when the number is used again.

use crate::{device, real, signals};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_int, c_long,
    c_ulong, c_void, siginfo_t, sock_filter, sock_fprog, ucontext_t,
};
use std::mem::{offset_of, zeroed};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// The sixth argument of an `ioctl` that the filter lets pass. `ioctl` has three.
const MAGIC: u64 = 0xba70_10c7_5eed_b1bd;
/// A request of type `b` that Binder does not have, and what the handler answers to it on no
/// descriptor: how an inherited filter is recognized.
const PROBE: c_ulong = 0x62ff;
const PROBE_ANSWER: c_long = 0xba70;
/// `si_code` of a SIGSYS that a filter raised.
const SYS_SECCOMP: c_int = 1;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

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
                let _ = install();
            }
        });
    }
}

fn is_trapping() -> bool {
    let errno = real::errno();
    // SAFETY: no descriptor, and a request without argument: at worst EBADF.
    let answer = unsafe { libc::syscall(libc::SYS_ioctl, -1, PROBE, 0, 0, 0, 0) };
    real::set_errno(errno);
    answer == PROBE_ANSWER
}

fn load(offset: usize) -> sock_filter {
    sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset as u32 }
}

fn jump_if(value: u32, then: u8, otherwise: u8) -> sock_filter {
    let code = (BPF_JMP | BPF_JEQ | BPF_K) as u16;
    sock_filter { code, jt: then, jf: otherwise, k: value }
}

fn answer(action: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: action }
}

/// The filter. Both architectures are little-endian: an argument's low half comes first.
fn program() -> [sock_filter; 13] {
    const ARGUMENTS: usize = offset_of!(libc::seccomp_data, args);
    const REQUEST: usize = ARGUMENTS + 8;
    const SIXTH: usize = ARGUMENTS + 5 * 8;
    [
        load(offset_of!(libc::seccomp_data, arch)),
        jump_if(ARCHITECTURE, 0, 9),
        load(offset_of!(libc::seccomp_data, nr)),
        jump_if(libc::SYS_ioctl as u32, 0, 7),
        load(REQUEST),
        sock_filter { code: (BPF_ALU | BPF_AND | BPF_K) as u16, jt: 0, jf: 0, k: 0xff00 },
        jump_if(u32::from(b'b') << 8, 0, 4),
        load(SIXTH),
        jump_if(MAGIC as u32, 0, 3),
        load(SIXTH + 4),
        jump_if((MAGIC >> 32) as u32, 0, 1),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_TRAP),
    ]
}

/// Installs the filter in every thread. With no privilege the process first gives up gaining any
/// by `exec`, which is the kernel's condition.
fn install() -> Result<(), c_int> {
    let filter = program();
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SPEC_ALLOW: the filter confines nobody, so nobody need be slowed down against speculation.
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let try_with = |flags: c_ulong| {
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the program and its instructions outlive the call.
        let result = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &program) };
        match result {
            0 => Ok(()),
            // With TSYNC: the id of a thread that has a filter of its own.
            1.. => Err(libc::EBUSY),
            _ => Err(real::errno()),
        }
    };
    let in_all_threads = flags | libc::SECCOMP_FILTER_FLAG_TSYNC;
    match try_with(in_all_threads) {
        Err(libc::EACCES) => {
            // SAFETY: a flag of this process, no memory involved.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            try_with(in_all_threads).or_else(|_| try_with(flags))
        }
        Err(libc::EBUSY) => try_with(flags),
        other => other,
    }
}

/// The registers of an interrupted system call.
#[cfg(target_arch = "x86_64")]
mod registers {
    use super::{c_long, ucontext_t};

    const ARGUMENTS: [libc::c_int; 5] =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8];

    pub fn number(context: &ucontext_t) -> c_long {
        context.uc_mcontext.gregs[libc::REG_RAX as usize]
    }

    pub fn arguments(context: &ucontext_t) -> [u64; 5] {
        ARGUMENTS.map(|register| context.uc_mcontext.gregs[register as usize] as u64)
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

    pub fn arguments(context: &ucontext_t) -> [u64; 5] {
        [0, 1, 2, 3, 4].map(|register| context.uc_mcontext.regs[register])
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
    let arguments = registers::arguments(registers);
    let request = arguments[1];
    let is_ioctl = registers::number(registers) == libc::SYS_ioctl;
    if from_filter && is_ioctl && device::is_binder(request) {
        // SAFETY: these are the arguments of the program's own system call.
        let result = unsafe { call(arguments) };
        registers::set_result(registers, result);
    } else {
        // SAFETY: these are a signal handler's arguments.
        unsafe { signals::deliver(signal, info, context) };
    }
    real::set_errno(errno);
}

/// The trapped system call: a value or a negative errno.
///
/// # Safety
/// As the system call's.
unsafe fn call(arguments: [u64; 5]) -> c_long {
    let [fd, request, argument, ..] = arguments;
    let fd = fd as c_int;
    if fd == -1 && request == PROBE {
        return PROBE_ANSWER;
    }
    let nonblocking = || {
        // SAFETY: F_GETFL takes no argument. A program that makes system calls itself may have
        // set the flag that way.
        unsafe { real::fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0 }
    };
    if crate::table::is_mine(fd) {
        // SAFETY: by this function's contract.
        let done =
            unsafe { device::binder_ioctl(fd, request, argument as usize, Some(nonblocking())) };
        match done {
            Some(Ok(value)) => return value.into(),
            Some(Err(errno)) => return -c_long::from(errno.raw_os_error()),
            None => {}
        }
    }
    let [_, _, _, fourth, fifth] = arguments;
    // SAFETY: by this function's contract; the kernel's ioctl reads three arguments.
    let result =
        unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument, fourth, fifth, MAGIC) };
    if result == -1 { -c_long::from(real::errno()) } else { result }
}
