//! The assembly for x86-64.
//!
//! The stack of a thread that does not run, in `ipc` or `preempt`:
//!
//! ```text
//!                         +--------------------+
//!                         | the caller's frame |
//!  Tcb.stack_pointer + 8  | rbp                |
//!  Tcb.stack_pointer -->  | rbx                |
//!                         +--------------------+
//!  Tcb.resume: the instruction that pops them
//! ```
//!
//! The registers of a message, into the kernel and out of it:
//!
//! ```text
//!  rdi  the entry points, in and out
//!  rax  destination and timeout; out: sender and error
//!  rcx  source and timeout
//!  rdx  tag
//!  rsi r8 r9 r10 r11 r12 r13 r14   words 0 to 7
//!  r15  the thread's next instruction
//! ```
//!
//! While the kernel runs, rbp is the TCB of the thread that enters, rbx of the thread that leaves.
//! The compiler saves all other registers around the entry as around a call, if they are in use.
//! MXCSR and the x87 control word belong to the thread and are loaded only if they differ: a load
//! takes longer than the rest of an IPC. Even a store of MXCSR takes a quarter of an IPC, so the
//! fast paths compare the values in the TCBs (`CurrentThread::float_control_changed`).

use super::bare::Context;
use super::upcalls::{Upcalls, kernel_asm};
use crate::entry_points::EntryPoints;
use crate::tcb::{Status, Tcb};
use crate::thread_id::raw;
use std::arch::{asm, naked_asm};
use std::mem::offset_of;

const READY: i32 = -1 << 16 | Status::Ready as i32;
const _: () =
    assert!(offset_of!(Tcb, gate) == offset_of!(Tcb, status) + 4 && raw::SHUT == u32::MAX);

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
    // SAFETY: the kernel switches stacks, and comes back with this one unchanged, rbx and rbp
    // included. All other registers are operands or clobbers. Without `nostack` the compiler keeps
    // nothing in the red zone.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea r15, [rip + 2f]",
            "jmp qword ptr [rdi]",
            "2:",
            "pop rbx",
            "pop rbp",
            in("rdi") entry_points,
            inout("rax") *peer,
            inout("rcx") receive => _,
            inout("rdx") *tag,
            inout("rsi") *w0,
            inout("r8") *w1,
            inout("r9") *w2,
            inout("r10") *w3,
            inout("r11") *w4,
            inout("r12") *w5,
            inout("r13") *w6,
            inout("r14") *w7,
            out("r15") _,
            clobber_abi("sysv64"),
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
            "push rbp",
            "push rbx",
            "lea r15, [rip + 2f]",
            "jmp qword ptr [rdi + {entry}]",
            "2:",
            "pop rbx",
            "pop rbp",
            entry = const offset_of!(EntryPoints, preempt_entry),
            in("rdi") entry_points,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("sysv64"),
        );
    }
}

/// Enters the kernel: loads the current TCB into rbp, and saves the thread's stack and next
/// instruction.
macro_rules! arrive {
    () => {
        concat!(
            "mov dword ptr [rdi + {in_kernel}], 1\n",
            "mov rbp, [rdi + {current_tcb}]\n",
            "mov [rbp + {stack}], rsp\n",
            "mov [rbp + {resume}], r15\n",
        )
    };
}

/// Leaves the kernel for the thread rbx, whose message is in the registers.
macro_rules! depart {
    () => {
        concat!(
            "mov rsp, [rbx + {stack}]\n",
            "mov r15, [rbx + {resume}]\n",
            "mov dword ptr [rdi + {in_kernel}], 0\n",
            "cmp dword ptr [rdi + {pending}], 0\n",
            "jne {interrupted}\n",
            "jmp r15\n",
        )
    };
}

/// Loads the TCB of the thread rax into rbx, or takes the slow path.
macro_rules! find_partner {
    () => {
        concat!(
            "mov ebx, eax\n",
            "and ebx, [rdi + {mask}]\n",
            "shl rbx, 7\n",
            "add rbx, [rdi + {tcbs}]\n",
            "cmp [rbx + {id}], eax\n",
            "jne {slow}\n",
            "cmp dl, 8\n",
            "ja {slow}\n",
        )
    };
}

/// Takes the slow path if the two threads use different floating-point control words.
macro_rules! compare_float_control {
    () => {
        concat!("mov r15, [rbp + {float}]\n", "cmp r15, [rbx + {float}]\n", "jne {slow}\n",)
    };
}

/// The point of no return: the partner runs, and the current thread waits for the source rcx.
macro_rules! hand_over {
    () => {
        concat!(
            "mov [rbp + {gate}], ecx\n",
            "mov [rbp + {partner}], ecx\n",
            // The sign extension of `READY` also writes `SHUT` to the gate.
            "mov qword ptr [rbx + {status}], {READY}\n",
            "mov [rdi + {current_tcb}], rbx\n",
            "mov eax, [rbp + {id}]\n",
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
        "mov r15d, [rbx + {gate}]",
        "test r15d, r15d",
        "jz 2f",
        "cmp r15d, [rbp + {id}]",
        "jne {slow}",
        "2:",
        compare_float_control!(),
        "cmp rcx, rax",
        "jne 3f",
        // A call. From here on no check can fail.
        "mov word ptr [rbp + {status}], {RECEIVING}",
        hand_over!(),
        depart!(),
        // A receive from any source, which has to find no sender.
        "3:",
        "test rcx, rcx",
        "jnz {slow}",
        "cmp dword ptr [rbp + {inbox}], 0",
        "jne {slow}",
        // From here on no check can fail.
        "mov word ptr [rbp + {status}], {RECEIVING}",
        hand_over!(),
        depart!();
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
        "mov r15d, [rbx + {gate}]",
        "cmp rcx, rax",
        "jne 3f",
        // A call: the server receives from any source, and has no `caller` yet.
        "or r15d, [rbx + {caller}]",
        "jnz {slow}",
        "movzx r15d, byte ptr [rbp + {priority}]",
        "cmp r15d, [rdi + {ceiling}]",
        "jl {slow}",
        // From here on no check can fail.
        "mov word ptr [rbp + {status}], {LENDING}",
        hand_over!(),
        "mov [rbx + {caller}], eax",
        "movzx ecx, byte ptr [rbx + {priority}]",
        "cmp ecx, r15d",
        "cmovb ecx, r15d",
        "mov [rbx + {priority}], cl",
        depart!(),
        // A reply: no thread waits to send to the current one. The partner is its `caller`, or
        // receives from any source.
        "3:",
        "test rcx, rcx",
        "jnz {slow}",
        "cmp dword ptr [rbp + {inbox}], 0",
        "jne {slow}",
        "test r15d, r15d",
        "jz 4f",
        "cmp r15d, [rbp + {id}]",
        "jne {slow}",
        "cmp [rbp + {caller}], eax",
        "jne {slow}",
        "4:",
        // rcx is 0 here, and has to be 0 again in the slow path.
        "movzx ecx, byte ptr [rbx + {priority}]",
        "cmp ecx, [rdi + {ceiling}]",
        "mov ecx, 0",
        "jl {slow}",
        // From here on no check can fail.
        "test r15d, r15d",
        "jz 5f",
        "mov [rbp + {caller}], ecx",
        "movzx r15d, byte ptr [rbp + {floor}]",
        "mov [rbp + {priority}], r15b",
        "5:",
        "mov word ptr [rbp + {status}], {RECEIVING}",
        hand_over!(),
        depart!();
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
        "jmp {slow}";
        in_kernel, current_tcb, stack, resume;
        slow = sym slow::<K>,
    )
}

/// Saves the message into the UTCB of the current thread, rbp, and calls Rust.
#[unsafe(naked)]
unsafe extern "C" fn slow<K: Upcalls>() {
    kernel_asm!(
        "mov r15, [rbp + {utcb}]",
        "mov [r15], rsi",
        "mov [r15 + 8], r8",
        "mov [r15 + 16], r9",
        "mov [r15 + 24], r10",
        "mov [r15 + 32], r11",
        "mov [r15 + 40], r12",
        "mov [r15 + 48], r13",
        "mov [r15 + 56], r14",
        "mov [r15 + {tag}], rdx",
        "mov [r15 + {peer}], rax",
        "mov [r15 + {receive}], rcx",
        "mov rsp, [rdi + {kernel_stack}]",
        "mov rbx, rdi",
        "call {enter}",
        "mov rdi, rbx",
        "jmp {leave}";
        utcb, tag, peer, receive, kernel_stack;
        enter = sym K::enter,
        leave = sym leave::<K>,
    )
}

/// Lets the thread run whose TCB is in rax, with the message of its UTCB. Null: returns to the
/// caller of `launch`. The control words in use are those of the TCB rbp.
#[unsafe(naked)]
unsafe extern "C" fn leave<K: Upcalls>() {
    kernel_asm!(
        "test rax, rax",
        "jz {land}",
        "mov rbx, rax",
        "mov [rdi + {current_tcb}], rbx",
        "mov rcx, [rbp + {float}]",
        "cmp rcx, [rbx + {float}]",
        "je 2f",
        "ldmxcsr [rbx + {float}]",
        "fldcw [rbx + {float} + 4]",
        "2:",
        "mov rcx, [rbx + {utcb}]",
        "mov rsi, [rcx]",
        "mov r8, [rcx + 8]",
        "mov r9, [rcx + 16]",
        "mov r10, [rcx + 24]",
        "mov r11, [rcx + 32]",
        "mov r12, [rcx + 40]",
        "mov r13, [rcx + 48]",
        "mov r14, [rcx + 56]",
        "mov rdx, [rcx + {tag}]",
        "mov rax, [rcx + {peer}]",
        depart!();
        current_tcb, float, utcb, tag, peer, stack, resume, in_kernel, pending;
        interrupted = sym interrupted_exit::<K>,
        land = sym land,
    )
}

/// Puts the stack and the message back that the thread rbx was given, since a signal came
/// meanwhile.
#[unsafe(naked)]
unsafe extern "C" fn interrupted_exit<K: Upcalls>() {
    kernel_asm!(
        "mov dword ptr [rdi + {in_kernel}], 1",
        "mov rbp, rbx",
        "mov [rbx + {stack}], rsp",
        "mov [rbx + {resume}], r15",
        "mov rcx, [rbx + {utcb}]",
        "mov [rcx], rsi",
        "mov [rcx + 8], r8",
        "mov [rcx + 16], r9",
        "mov [rcx + 24], r10",
        "mov [rcx + 32], r11",
        "mov [rcx + 40], r12",
        "mov [rcx + 48], r13",
        "mov [rcx + 56], r14",
        "mov [rcx + {tag}], rdx",
        "mov [rcx + {peer}], rax",
        "mov rsp, [rdi + {kernel_stack}]",
        "mov rbx, rdi",
        "call {interrupted}",
        "mov rdi, rbx",
        "jmp {leave}";
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
        "stmxcsr [rbp + {float}]",
        "fnstcw [rbp + {float} + 4]",
        "mov rsp, [rdi + {kernel_stack}]",
        "mov rbx, rdi",
        "call {interrupted}",
        "mov rdi, rbx",
        "jmp {leave}";
        in_kernel, current_tcb, stack, resume, float, kernel_stack;
        interrupted = sym K::interrupted,
        leave = sym leave::<K>,
    )
}

/// Runs the kernel's threads on this OS thread until none can run any more.
///
/// ```text
///  +--------------------------------+
///  | return address                 |
///  | rbx rbp r12 r13 r14 r15        |
///  | padding                        |  <-- EntryPoints.kernel_stack, aligned to 16
///  +--------------------------------+
///  | frames of kernel code          |
/// ```
///
/// # Safety
/// `entry_points` begins a `Kernel<K>` that nobody else uses.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn launch<K: Upcalls>(entry_points: *const EntryPoints) {
    kernel_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "mov [rdi + {kernel_stack}], rsp",
        "stmxcsr [rdi + {host}]",
        "fnstcw [rdi + {host} + 4]",
        // `leave` reads the host's control words as those of a TCB at rbp.
        "lea rbp, [rdi + {host} - {float}]",
        "mov rbx, rdi",
        "call {launched}",
        "mov rdi, rbx",
        "jmp {leave}";
        kernel_stack, host, float;
        launched = sym K::launched,
        leave = sym leave::<K>,
    )
}

/// Returns from `launch`.
#[unsafe(naked)]
unsafe extern "C" fn land() {
    kernel_asm!(
        "ldmxcsr [rdi + {host}]",
        "fldcw [rdi + {host} + 4]",
        "mov rsp, [rdi + {kernel_stack}]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret";
        kernel_stack, host;
    )
}

/// The first instruction of a thread: at the top of its stack, where a backtrace ends. The first
/// message register has its body.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn start_thread<K: Upcalls>() {
    naked_asm!("xor ebp, ebp", "push 0", "jmp {run_thread}", run_thread = sym K::run_thread)
}

/// The next instruction of a thread whose stack has overflowed, at the top of that stack.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn fail_thread<K: Upcalls>() {
    naked_asm!("xor ebp, ebp", "push 0", "jmp {fail}", fail = sym K::fail_overflowed)
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
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: a handler may change its context until it returns.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    // SAFETY: the caller's promise.
    registers[libc::REG_RIP as usize] = unsafe { (*entry_points).overflow_start } as i64;
    registers[libc::REG_RSP as usize] = stack_top as i64;
    registers[libc::REG_RDI as usize] = entry_points as i64;
}

/// The stack pointer of the code that a signal has interrupted.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub(crate) unsafe fn interrupted_at(context: *mut libc::c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    }
}

/// The current floating-point control words.
pub(crate) fn float_control() -> [u32; 2] {
    let (mut mxcsr, mut x87) = (0_u32, 0_u16);
    // SAFETY: each instruction stores into a variable of its size.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack));
        asm!("fnstcw [{}]", in(reg) &raw mut x87, options(nostack));
    }
    [mxcsr, u32::from(x87)]
}

/// Suspends the current computation into `here` and resumes the one in `there`. Returns when
/// another call resumes `here`.
///
/// # Safety
/// `there` is a context that was suspended and not resumed since, or a beginning.
#[unsafe(naked)]
pub unsafe extern "C" fn bare_switch(here: *mut Context, there: *const Context) {
    naked_asm!(
        "pop rax",
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov [rdi + 8], rax",
        "mov rsp, [rsi]",
        "mov rax, [rsi + 8]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "jmp rax",
    )
}
