//! The assembly for aarch64.
//!
//! The stack of a thread that does not run, in `ipc` or `preempt`:
//!
//! ```text
//!                         +--------------------+
//!                         | the caller's frame |
//!  Tcb.stack_pointer + 8  | x19                |
//!  Tcb.stack_pointer -->  | x29                |
//!                         +--------------------+
//!  Tcb.resume: the instruction that loads them
//! ```
//!
//! The registers of a message, into the kernel and out of it:
//!
//! ```text
//!  x0 to x7  words 0 to 7
//!  x8   tag
//!  x9   destination and timeout; out: sender and error
//!  x10  source and timeout
//!  x11  the entry points, in and out
//!  x16  the thread's next instruction
//! ```
//!
//! x12, x13 and x17 are scratch registers. x14 is the TCB of the thread that enters, x15 of the
//! thread that leaves. The compiler saves all other registers around the entry, if they are in use.
//! FPCR belongs to the thread and is loaded only if it differs; the fast paths compare the values
//! in the TCBs.

use super::bare::Context;
use super::upcalls::{Upcalls, kernel_asm};
use crate::entry_points::EntryPoints;
use crate::tcb::Status;
use std::arch::{asm, naked_asm};
use std::mem::offset_of;

const READY: u16 = Status::Ready as u16;

/// Makes the IPC that `peer` and `receive` say. Returns when the thread runs again.
///
/// # Safety
/// The caller is the current thread of the kernel with these entry points.
#[inline(always)]
pub(crate) unsafe fn ipc(
    entry_points: *const EntryPoints,
    peer: &mut u64,
    receive: u64,
    tag: &mut u64,
    words: &mut [u64; 8],
) {
    let [w0, w1, w2, w3, w4, w5, w6, w7] = words;
    // SAFETY: the kernel switches stacks, and comes back with this one unchanged, x19 and x29
    // included. All other registers are operands or clobbers.
    unsafe {
        asm!(
            "stp x29, x19, [sp, #-16]!",
            "adr x16, 2f",
            "ldr x17, [x11]",
            "br x17",
            "2:",
            "ldp x29, x19, [sp], #16",
            inout("x0") *w0,
            inout("x1") *w1,
            inout("x2") *w2,
            inout("x3") *w3,
            inout("x4") *w4,
            inout("x5") *w5,
            inout("x6") *w6,
            inout("x7") *w7,
            inout("x8") *tag,
            inout("x9") *peer,
            inout("x10") receive => _,
            inout("x11") entry_points => _,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        );
    }
}

/// Lets the kernel take the processor from the current thread. Returns when it runs again.
///
/// # Safety
/// The caller is the current thread of the kernel with these entry points, outside of the kernel.
pub(crate) unsafe fn preempt(entry_points: *const EntryPoints) {
    // SAFETY: as in `ipc`.
    unsafe {
        asm!(
            "stp x29, x19, [sp, #-16]!",
            "adr x16, 2f",
            "ldr x17, [x11, #{entry}]",
            "br x17",
            "2:",
            "ldp x29, x19, [sp], #16",
            entry = const offset_of!(EntryPoints, preempt_entry),
            inout("x11") entry_points => _,
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _,
            out("x25") _, out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        );
    }
}

/// Enters the kernel: loads the current TCB into x14, and saves the thread's stack and next
/// instruction.
macro_rules! arrive {
    () => {
        concat!(
            "mov w12, #1\n",
            "str w12, [x11, #{in_kernel}]\n",
            "ldr x14, [x11, #{current_tcb}]\n",
            "mov x12, sp\n",
            "str x12, [x14, #{stack}]\n",
            "str x16, [x14, #{resume}]\n",
        )
    };
}

/// Leaves the kernel for the thread x15, whose message is in the registers.
macro_rules! depart {
    () => {
        concat!(
            "ldr x12, [x15, #{stack}]\n",
            "mov sp, x12\n",
            "ldr x16, [x15, #{resume}]\n",
            "str wzr, [x11, #{in_kernel}]\n",
            "ldr w12, [x11, #{pending}]\n",
            "cbnz w12, 8f\n",
            "br x16\n",
        )
    };
}

/// Loads the TCB of the thread x9 into x15, or takes the slow path.
macro_rules! find_partner {
    () => {
        concat!(
            "ldr w12, [x11, #{mask}]\n",
            "and w12, w12, w9\n",
            "ldr x13, [x11, #{tcbs}]\n",
            "add x15, x13, x12, lsl #7\n",
            "ldr w13, [x15, #{id}]\n",
            "cmp w13, w9\n",
            "b.ne 9f\n",
            "and w13, w8, #0xff\n",
            "cmp w13, #8\n",
            "b.hi 9f\n",
        )
    };
}

/// Takes the slow path if the two threads use different floating-point control words.
macro_rules! compare_float_control {
    () => {
        concat!(
            "ldr x13, [x14, #{float}]\n",
            "ldr x17, [x15, #{float}]\n",
            "cmp x13, x17\n",
            "b.ne 9f\n",
        )
    };
}

/// The point of no return: the partner runs, and the current thread waits for the source x10. w13
/// is the current thread's new status.
macro_rules! hand_over {
    () => {
        concat!(
            "strh w13, [x14, #{status}]\n",
            "str w10, [x14, #{gate}]\n",
            "str w10, [x14, #{partner}]\n",
            "mov w13, #{READY}\n",
            "strh w13, [x15, #{status}]\n",
            "mov w13, #-1\n",
            "str w13, [x15, #{gate}]\n",
            "str x15, [x11, #{current_tcb}]\n",
            "ldr w9, [x14, #{id}]\n",
        )
    };
}

/// Fast path of a call, and of a reply and wait, between two parties that are there. Priorities do
/// not count.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn direct_entry<K: Upcalls>() {
    kernel_asm!(
        arrive!(),
        find_partner!(),
        // Does the partner receive from the current thread?
        "ldr w13, [x15, #{gate}]",
        "cbz w13, 2f",
        "ldr w17, [x14, #{id}]",
        "cmp w13, w17",
        "b.ne 9f",
        "2:",
        compare_float_control!(),
        "cmp x10, x9",
        "b.ne 3f",
        // A call. From here on no check can fail.
        "mov w13, #{RECEIVING}",
        hand_over!(),
        depart!(),
        // A receive from any source, which has to find no sender.
        "3:",
        "cbnz x10, 9f",
        "ldr w13, [x14, #{inbox}]",
        "cbnz w13, 9f",
        // From here on no check can fail.
        "mov w13, #{RECEIVING}",
        hand_over!(),
        depart!(),
        "8: b {interrupted}",
        "9: b {slow}";
        in_kernel, pending, tcbs, mask, current_tcb, stack, resume, id, gate, partner,
        inbox, status, float, RECEIVING;
        READY = const READY,
        slow = sym slow::<K>,
        interrupted = sym interrupted_exit::<K>,
    )
}

/// Like `direct_entry`, if the thread that goes on has the highest priority. In a call it inherits
/// the caller's priority, and the caller is the highest because it runs. In a reply the priorities
/// are compared.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn strict_entry<K: Upcalls>() {
    kernel_asm!(
        arrive!(),
        find_partner!(),
        compare_float_control!(),
        "ldr w17, [x15, #{gate}]",
        "cmp x10, x9",
        "b.ne 3f",
        // A call: the server receives from any source, and has no `caller` yet.
        "ldr w13, [x15, #{caller}]",
        "orr w13, w13, w17",
        "cbnz w13, 9f",
        "ldrb w17, [x14, #{priority}]",
        "ldr w13, [x11, #{ceiling}]",
        "cmp w17, w13",
        "b.lt 9f",
        // From here on no check can fail.
        "mov w13, #{LENDING}",
        hand_over!(),
        "str w9, [x15, #{caller}]",
        "ldrb w13, [x15, #{priority}]",
        "cmp w13, w17",
        "csel w13, w17, w13, lo",
        "strb w13, [x15, #{priority}]",
        depart!(),
        // A reply: no thread waits to send to the current one. The partner is its `caller`, or
        // receives from any source.
        "3:",
        "cbnz x10, 9f",
        "ldr w13, [x14, #{inbox}]",
        "cbnz w13, 9f",
        "cbz w17, 4f",
        "ldr w13, [x14, #{id}]",
        "cmp w17, w13",
        "b.ne 9f",
        "ldr w13, [x14, #{caller}]",
        "cmp w13, w9",
        "b.ne 9f",
        "4:",
        "ldrb w13, [x15, #{priority}]",
        "ldr w16, [x11, #{ceiling}]",
        "cmp w13, w16",
        "b.lt 9f",
        // From here on no check can fail.
        "cbz w17, 5f",
        "str wzr, [x14, #{caller}]",
        "ldrb w13, [x14, #{floor}]",
        "strb w13, [x14, #{priority}]",
        "5:",
        "mov w13, #{RECEIVING}",
        hand_over!(),
        depart!(),
        "8: b {interrupted}",
        "9: b {slow}";
        in_kernel, pending, tcbs, mask, current_tcb, ceiling, stack, resume, id, gate,
        partner, inbox, caller, status, priority, floor, float, RECEIVING, LENDING;
        READY = const READY,
        slow = sym slow::<K>,
        interrupted = sym interrupted_exit::<K>,
    )
}

/// Entry without a fast path.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn general_entry<K: Upcalls>() {
    kernel_asm!(
        arrive!(),
        "b {slow}";
        in_kernel, current_tcb, stack, resume;
        slow = sym slow::<K>,
    )
}

/// Saves the message into the UTCB of the current thread, x14, and calls Rust.
#[unsafe(naked)]
unsafe extern "C" fn slow<K: Upcalls>() {
    kernel_asm!(
        "mrs x12, fpcr",
        "str x12, [x14, #{float}]",
        "ldr x13, [x14, #{utcb}]",
        "stp x0, x1, [x13]",
        "stp x2, x3, [x13, #16]",
        "stp x4, x5, [x13, #32]",
        "stp x6, x7, [x13, #48]",
        "str x8, [x13, #{tag}]",
        "str x9, [x13, #{peer}]",
        "str x10, [x13, #{receive}]",
        "ldr x12, [x11, #{kernel_stack}]",
        "mov sp, x12",
        "mov x19, x11",
        "mov x0, x11",
        "bl {enter}",
        "mov x11, x19",
        "b {leave}";
        float, utcb, tag, peer, receive, kernel_stack;
        enter = sym K::enter,
        leave = sym leave::<K>,
    )
}

/// Lets the thread run whose TCB is in x0, with the message of its UTCB. Null: returns to the
/// caller of `launch`.
#[unsafe(naked)]
unsafe extern "C" fn leave<K: Upcalls>() {
    kernel_asm!(
        "cbz x0, 7f",
        "mov x15, x0",
        "str x15, [x11, #{current_tcb}]",
        "mrs x12, fpcr",
        "ldr x13, [x15, #{float}]",
        "cmp x12, x13",
        "b.eq 2f",
        "msr fpcr, x13",
        "2:",
        "ldr x13, [x15, #{utcb}]",
        "ldp x0, x1, [x13]",
        "ldp x2, x3, [x13, #16]",
        "ldp x4, x5, [x13, #32]",
        "ldp x6, x7, [x13, #48]",
        "ldr x8, [x13, #{tag}]",
        "ldr x9, [x13, #{peer}]",
        depart!(),
        "7: b {land}",
        "8: b {interrupted}";
        current_tcb, float, utcb, tag, peer, stack, resume, in_kernel, pending;
        interrupted = sym interrupted_exit::<K>,
        land = sym land,
    )
}

/// Puts the stack and the message back that the thread x15 was given, since a signal came
/// meanwhile.
#[unsafe(naked)]
unsafe extern "C" fn interrupted_exit<K: Upcalls>() {
    kernel_asm!(
        "mov w12, #1",
        "str w12, [x11, #{in_kernel}]",
        "mov x12, sp",
        "str x12, [x15, #{stack}]",
        "str x16, [x15, #{resume}]",
        "ldr x13, [x15, #{utcb}]",
        "stp x0, x1, [x13]",
        "stp x2, x3, [x13, #16]",
        "stp x4, x5, [x13, #32]",
        "stp x6, x7, [x13, #48]",
        "str x8, [x13, #{tag}]",
        "str x9, [x13, #{peer}]",
        "ldr x12, [x11, #{kernel_stack}]",
        "mov sp, x12",
        "mov x19, x11",
        "mov x0, x11",
        "bl {interrupted}",
        "mov x11, x19",
        "b {leave}";
        in_kernel, stack, resume, utcb, tag, peer, kernel_stack;
        interrupted = sym K::interrupted,
        leave = sym leave::<K>,
    )
}

/// Entry of a preempted thread: a signal came while it was outside of the kernel.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn interrupted_entry<K: Upcalls>() {
    kernel_asm!(
        arrive!(),
        "mrs x12, fpcr",
        "str x12, [x14, #{float}]",
        "ldr x12, [x11, #{kernel_stack}]",
        "mov sp, x12",
        "mov x19, x11",
        "mov x0, x11",
        "bl {interrupted}",
        "mov x11, x19",
        "b {leave}";
        in_kernel, current_tcb, stack, resume, float, kernel_stack;
        interrupted = sym K::interrupted,
        leave = sym leave::<K>,
    )
}

/// Runs the kernel's threads on this OS thread until none can run any more.
///
/// ```text
///  +--------------------------------+
///  | d14 d15, d12 d13, d10 d11, d8 d9
///  | x27 x28, x25 x26, ... x19 x20  |
///  | x29 x30                        |  <-- EntryPoints.kernel_stack, aligned to 16
///  +--------------------------------+
///  | frames of kernel code          |
/// ```
///
/// # Safety
/// `entry_points` begins a `Kernel<K>` that nobody else uses.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn launch<K: Upcalls>(entry_points: *const EntryPoints) {
    kernel_asm!(
        "sub sp, sp, #160",
        "stp x29, x30, [sp]",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x12, sp",
        "str x12, [x0, #{kernel_stack}]",
        "mrs x12, fpcr",
        "str x12, [x0, #{host}]",
        "mov x19, x0",
        "bl {launched}",
        "mov x11, x19",
        "b {leave}";
        kernel_stack, host;
        launched = sym K::launched,
        leave = sym leave::<K>,
    )
}

/// Returns from `launch`.
#[unsafe(naked)]
unsafe extern "C" fn land() {
    kernel_asm!(
        "ldr x12, [x11, #{host}]",
        "msr fpcr, x12",
        "ldr x12, [x11, #{kernel_stack}]",
        "mov sp, x12",
        "ldp x29, x30, [sp]",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "add sp, sp, #160",
        "ret";
        kernel_stack, host;
    )
}

/// The first instruction of a thread: at the top of its stack, where a backtrace ends. The first
/// message register has its body.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn start_thread<K: Upcalls>() {
    naked_asm!(
        "mov x29, #0",
        "mov x30, #0",
        "mov x1, x0",
        "mov x0, x11",
        "b {run_thread}",
        run_thread = sym K::run_thread,
    )
}

/// The next instruction of a thread whose stack has overflowed, at the top of that stack.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn fail_thread<K: Upcalls>() {
    naked_asm!(
        "mov x29, #0",
        "mov x30, #0",
        "b {fail_overflowed}",
        fail_overflowed = sym K::fail_overflowed,
    )
}

/// Makes the thread that a signal has interrupted go on at `fail_thread`.
///
/// # Safety
/// `context` is the third argument of a signal handler, and the entry points are those of the
/// kernel that runs.
pub(crate) unsafe fn redirect(
    context: *mut libc::c_void,
    entry_points: *const EntryPoints,
    stack_top: usize,
) {
    // SAFETY: a handler may change its context until it returns.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    // SAFETY: the caller's promise.
    machine.pc = unsafe { (*entry_points).overflow_start } as u64;
    machine.sp = stack_top as u64;
    machine.regs[0] = entry_points as u64;
}

/// The stack pointer of the code that a signal has interrupted.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub(crate) unsafe fn interrupted_at(context: *mut libc::c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.sp as usize }
}

/// The current floating-point control words.
pub(crate) fn float_control() -> [u32; 2] {
    let word: u64;
    // SAFETY: the instruction reads a register and nothing else.
    unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack)) };
    [word as u32, (word >> 32) as u32]
}

/// Suspends the current computation into `here` and resumes the one in `there`. Returns when
/// another call resumes `here`.
///
/// # Safety
/// `there` is a context that was suspended and not resumed since, or a beginning.
#[unsafe(naked)]
pub unsafe extern "C" fn bare_switch(here: *mut Context, there: *const Context) {
    naked_asm!(
        "sub sp, sp, #160",
        "stp x29, x30, [sp]",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "stp x9, x30, [x0]",
        "ldp x9, x10, [x1]",
        "mov sp, x9",
        "ldp x29, x30, [sp]",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "add sp, sp, #160",
        "br x10",
    )
}
