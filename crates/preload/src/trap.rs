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
//! called there: it may take locks and allocate. It has the program's signal mask (an empty
//! `sa_mask`, and SA_NODEFER for SIGSYS itself), so that signals arrive during a blocking call as
//! they would in the kernel, and end it with `EINTR`. SA_RESTART does nothing for a trapped call,
//! which has no other way to be interrupted; it is set for the system call that a SIGSYS sent by
//! `kill` would interrupt.
//!
//! The call is made on the thread's stack of ours ([`stack`](crate::stack)), and where the kernel
//! puts the signal's frame depends on the alternate stack:
//!
//! ```text
//!   ours         frame there     the call is made right below it
//!   none         frame below the interrupted code, perhaps on a stack too small for it: the
//!                call is made on ours, which is the alternate stack from then on
//!   program's    frame there     copied to ours, the call made on ours, and the frame copied
//!                back: meanwhile the program's handlers have the alternate stack for themselves
//! ```
//!
//! A call that one of the program's handlers makes on the program's alternate stack leaves that
//! handler's frames where they are: for the time of the call the alternate stack is what lies
//! below them, as it would be for a system call.
//!
//! Nothing here uses a thread-local, `errno` included, before it is known that the thread pointer
//! is the C library's. Where it is not, a device can be neither opened nor used.
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

use crate::alternate::{Alternate, RED_ZONE_BYTES};
use crate::filter::{self, MAGIC};
use crate::stack::{self, Header};
use crate::{calls, device, real, signals, switch, table, thread_pointer};
use libc::{c_int, c_long, c_ulong, c_void, siginfo_t, ucontext_t};
use std::mem::zeroed;
use std::ops::Range;
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
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is complete and its handler has the form that SA_SIGINFO says.
    if unsafe { real::sigaction(libc::SIGSYS, &action, null_mut()) } == 0 {
        signals::unblock();
        HANDLED.store(true, Ordering::Relaxed);
        stack::begin_thread();
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

/// At the start: has the kernel show us what the executable's own code does with descriptors. Later
/// would be too late, for it may open a device that way.
pub fn arm_code(code: Range<usize>) {
    if is_handled()
        && let Some(filter) = filter::of_code(code)
    {
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

/// The registers of an interrupted system call, and where the kernel has put them.
#[cfg(target_arch = "x86_64")]
mod registers {
    use super::{Range, c_long, siginfo_t, ucontext_t};
    use std::arch::asm;

    const ARGUMENTS: [libc::c_int; 6] =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    /// Of a saved floating-point state: the old form's, and where the kernel says more of a newer
    /// one's (`_fpx_sw_bytes`).
    const LEGACY_BYTES: usize = 512;
    const EXTENSION_AT: usize = 464;
    const EXTENSION: u32 = 0x4650_5853;

    pub fn number(context: &ucontext_t) -> c_long {
        context.uc_mcontext.gregs[libc::REG_RAX as usize]
    }

    pub fn arguments(context: &ucontext_t) -> [c_long; 6] {
        ARGUMENTS.map(|register| context.uc_mcontext.gregs[register as usize])
    }

    pub fn set_result(context: &mut ucontext_t, result: c_long) {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = result;
    }

    pub fn stack_pointer(context: &ucontext_t) -> usize {
        context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    }

    /// The frame of a signal: what `rt_sigreturn` reads.
    ///
    /// # Safety
    /// The kernel's, of a signal whose handler has not returned.
    pub unsafe fn frame(_info: *const siginfo_t, context: *const ucontext_t) -> Range<usize> {
        // The handler's return address, the context, the information; and above them the
        // floating-point state.
        let start = context as usize - size_of::<usize>();
        // SAFETY: by this function's contract, also below.
        let state = unsafe { (*context).uc_mcontext.fpregs }.cast::<u8>();
        if state.is_null() {
            return start..context as usize + size_of::<ucontext_t>();
        }
        // SAFETY: the old form is always there, with two words for the newer ones.
        let [magic, bytes] = unsafe { state.add(EXTENSION_AT).cast::<[u32; 2]>().read_unaligned() };
        let bytes = if magic == EXTENSION { bytes as usize } else { LEGACY_BYTES };
        start..state as usize + bytes
    }

    /// The stack pointer with which `rt_sigreturn` finds the frame.
    pub fn frame_pointer(frame: &Range<usize>) -> usize {
        frame.start + size_of::<usize>()
    }

    /// A system call that is neither interposed nor trapped: a value or a negative errno.
    ///
    /// # Safety
    /// As the system call's.
    pub unsafe fn system_call(number: c_long, arguments: [isize; 6]) -> c_long {
        let [first, second, third, fourth, fifth, sixth] = arguments;
        let result: c_long;
        // SAFETY: by this function's contract; the kernel changes no register but these.
        unsafe {
            asm!(
                "syscall", inlateout("rax") number => result, in("rdi") first, in("rsi") second,
                in("rdx") third, in("r10") fourth, in("r8") fifth, in("r9") sixth,
                lateout("rcx") _, lateout("r11") _, options(nostack),
            );
        }
        result
    }
}

/// The registers of an interrupted system call, and where the kernel has put them.
#[cfg(target_arch = "aarch64")]
mod registers {
    use super::{Range, c_long, siginfo_t, ucontext_t};
    use std::arch::asm;

    /// Of a record in `uc_mcontext.__reserved`: more of them lie elsewhere (`extra_context`).
    const EXTRA: u32 = 0x4558_5401;
    const HEADER_BYTES: usize = 8;
    const RECORDS_BYTES: usize = 4096;

    pub fn number(context: &ucontext_t) -> c_long {
        context.uc_mcontext.regs[8] as c_long
    }

    pub fn arguments(context: &ucontext_t) -> [c_long; 6] {
        [0, 1, 2, 3, 4, 5].map(|register| context.uc_mcontext.regs[register] as c_long)
    }

    pub fn set_result(context: &mut ucontext_t, result: c_long) {
        context.uc_mcontext.regs[0] = result as u64;
    }

    pub fn stack_pointer(context: &ucontext_t) -> usize {
        context.uc_mcontext.sp as usize
    }

    /// The frame of a signal: what `rt_sigreturn` reads.
    ///
    /// # Safety
    /// The kernel's, of a signal whose handler has not returned.
    pub unsafe fn frame(info: *const siginfo_t, context: *const ucontext_t) -> Range<usize> {
        let start = info as usize;
        let mut end = context as usize + size_of::<ucontext_t>();
        // SAFETY: by this function's contract, also below. The records are the context's last
        // field.
        let records = unsafe { (&raw const (*context).uc_mcontext).add(1).cast::<u8>() };
        let records = records.wrapping_sub(RECORDS_BYTES);
        let mut at = 0;
        while at + HEADER_BYTES + 16 <= RECORDS_BYTES {
            // SAFETY: within the records.
            let [magic, bytes] = unsafe { records.add(at).cast::<[u32; 2]>().read_unaligned() };
            if magic == EXTRA {
                // SAFETY: within the records: an address and a size.
                let (address, bytes) = unsafe {
                    let words = records.add(at + HEADER_BYTES);
                    (
                        words.cast::<u64>().read_unaligned(),
                        words.add(8).cast::<u32>().read_unaligned(),
                    )
                };
                end = end.max(address as usize + bytes as usize);
            }
            if magic == 0 || bytes == 0 {
                break;
            }
            at += bytes as usize;
        }
        start..end
    }

    /// The stack pointer with which `rt_sigreturn` finds the frame.
    pub fn frame_pointer(frame: &Range<usize>) -> usize {
        frame.start
    }

    /// A system call that is neither interposed nor trapped: a value or a negative errno.
    ///
    /// # Safety
    /// As the system call's.
    pub unsafe fn system_call(number: c_long, arguments: [isize; 6]) -> c_long {
        let [first, second, third, fourth, fifth, sixth] = arguments;
        let result: isize;
        // SAFETY: by this function's contract; the kernel changes no register but these.
        unsafe {
            asm!(
                "svc 0", in("x8") number, inlateout("x0") first => result, in("x1") second,
                in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth, options(nostack),
            );
        }
        result as c_long
    }
}

pub use registers::system_call;

/// # Safety
/// Called by the kernel as a SA_SIGINFO handler.
unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the address of the interrupted context, on this stack.
    let registers = unsafe { &mut *context.cast::<ucontext_t>() };
    let (number, arguments) = (registers::number(registers), registers::arguments(registers));
    // SAFETY: and of the signal's information.
    if unsafe { (*info).si_code } != SYS_SECCOMP || !is_trapped(number, arguments) {
        // SAFETY: these are a signal handler's arguments.
        return unsafe { signals::deliver(signal, info, context) };
    }
    if !thread_pointer::is_the_librarys() {
        // SAFETY: these are the arguments of the program's own system call.
        return registers::set_result(registers, unsafe { pass_on(number, arguments) });
    }
    // SAFETY: the kernel's word for this thread's alternate stack.
    if !unsafe { stack::is_own(&registers.uc_stack) }
        && let Some(header) = stack::own().filter(|own| own.is_callers())
    {
        // SAFETY: the kernel's, of this signal.
        unsafe { leave_for(header, number, arguments, info, registers) };
    }
    // SAFETY: as above.
    registers::set_result(registers, unsafe { answer(number, arguments) });
}

/// A trapped call that is made on the thread's stack of ours, while the interrupted code's is left
/// alone.
struct Elsewhere {
    number: c_long,
    arguments: [c_long; 6],
    result: c_long,
    header: &'static Header,
    /// What of our stack was in use before.
    used_before: usize,
    /// Where the frame was, and is to be when the signal returns.
    frame: Range<usize>,
    /// A copy of it, if it is on the program's alternate stack.
    copy: Option<*const u8>,
    context: *mut ucontext_t,
    alternate: Alternate,
}

/// Makes the call on the thread's own stack of ours, and returns from the signal. Returns here if
/// that stack has no room.
///
/// # Safety
/// The arguments are those of the program's own system call, whose signal's frame has `info` and
/// `context`.
#[inline(never)]
unsafe fn leave_for(
    header: &'static Header,
    number: c_long,
    arguments: [c_long; 6],
    info: *const siginfo_t,
    context: &mut ucontext_t,
) {
    let interrupted = registers::stack_pointer(context);
    let had_one = context.uc_stack.ss_flags & libc::SS_DISABLE == 0;
    let alternate = Alternate::leave(&context.uc_stack, interrupted);
    let Some(top) = header.begin(interrupted, alternate.may_nest()) else {
        return alternate.stay();
    };
    // SAFETY: by this function's contract.
    let frame = unsafe { registers::frame(info, context) };
    let copy_at = if had_one { (top - frame.len()) & !63 } else { top };
    let call_at = (copy_at - size_of::<Elsewhere>()) & !63;
    // First: a signal may come at any time, and its handler make a call.
    let used_before = header.use_from(call_at);
    let copy = had_one.then_some(copy_at as *const u8);
    if copy.is_some() {
        let (from, to) = (frame.start as *const u8, copy_at as *mut u8);
        // SAFETY: the frame is memory of its length; the copy's place is above `call_at`, in a part
        // of our stack that no call uses.
        unsafe { std::ptr::copy_nonoverlapping(from, to, frame.len()) };
    }
    let call = call_at as *mut Elsewhere;
    // SAFETY: `begin` leaves room for both and for the call; aligned, and used by nobody else.
    // `come_back` gives a
    // frame that is as the kernel has made it, but for the result and the alternate stack.
    unsafe {
        call.write(Elsewhere {
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
        switch::leave_signal_by(call_at, call_elsewhere, come_back, call.cast());
    }
}

/// Makes the call, and says at which stack pointer [`come_back`] is to run: below the frame's
/// place.
///
/// # Safety
/// `call` is a complete [`Elsewhere`]; this runs on our stack.
unsafe extern "C" fn call_elsewhere(call: *mut c_void) -> usize {
    // SAFETY: by this function's contract.
    let call = unsafe { &mut *call.cast::<Elsewhere>() };
    call.alternate.begin();
    // SAFETY: these are the arguments of the program's own system call.
    call.result = unsafe { answer(call.number, call.arguments) };
    call.alternate.end();
    (call.frame.start - RED_ZONE_BYTES) & !15
}

/// Puts the frame back, with the result in it, and says where `rt_sigreturn` finds it.
///
/// # Safety
/// `call` has been at [`call_elsewhere`]; this runs below the frame's place.
unsafe extern "C" fn come_back(call: *mut c_void) -> usize {
    // SAFETY: by this function's contract.
    let call = unsafe { &*call.cast::<Elsewhere>() };
    if let Some(copy) = call.copy {
        // SAFETY: the kernel has put the frame there, and what was there since has returned.
        unsafe {
            std::ptr::copy_nonoverlapping(copy, call.frame.start as *mut u8, call.frame.len());
        }
    }
    // SAFETY: within the frame.
    let context = unsafe { &mut *call.context };
    registers::set_result(context, call.result);
    // The signal's return gives the thread the alternate stack and the mask that the frame says.
    if let Alternate::None = call.alternate {
        context.uc_stack = call.header.as_alternate();
    }
    let at = registers::frame_pointer(&call.frame);
    // A handler may use our stack from here on.
    call.header.use_from(call.used_before);
    at
}

/// Whether a filter of ours traps it.
fn is_trapped(number: c_long, arguments: [c_long; 6]) -> bool {
    if number == libc::SYS_ioctl {
        device::is_binder(arguments[1] as c_ulong)
    } else {
        filter::OF_CODE.contains(&number)
    }
}

/// The call of a thread that the driver cannot serve.
///
/// # Safety
/// As the system call's.
unsafe fn pass_on(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [fd, request, third, fourth, fifth, sixth] = arguments;
    if number == libc::SYS_ioctl && fd == -1 && request as c_ulong == PROBE {
        return PROBE_ANSWER;
    }
    if number == libc::SYS_ioctl && table::is_mine(fd as c_int) {
        return -c_long::from(libc::ENOSYS);
    }
    let sixth = if number == libc::SYS_ioctl { MAGIC as c_long } else { sixth };
    let arguments = [fd, request, third, fourth, fifth, sixth].map(|argument| argument as isize);
    // SAFETY: by this function's contract; the kernel's ioctl reads three arguments.
    unsafe { system_call(number, arguments) }
}

/// The trapped system call: a value or a negative errno.
///
/// # Safety
/// As the system call's.
unsafe fn answer(number: c_long, arguments: [c_long; 6]) -> c_long {
    let errno = real::errno();
    // SAFETY: by this function's contract.
    let result = unsafe {
        if number == libc::SYS_ioctl {
            ioctl(arguments)
        } else {
            system(
                calls::call(number, arguments)
                    .unwrap_or_else(|| real::system_call(number, arguments)),
            )
        }
    };
    real::set_errno(errno);
    result
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
