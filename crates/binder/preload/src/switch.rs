//! Switches from one stack to another and back.

use libc::c_void;
use std::arch::naked_asm;

/// Calls `function(argument)` on the stack that ends at `top`, and returns.
///
/// # Safety
/// `top` is a multiple of 16 with room below it for the function, which does not unwind.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C" fn call_on(
    top: usize,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `function(argument)` on the stack that ends at `top`. Then calls `back(argument)` on the
/// stack that `function` returned, and returns from the signal whose frame `back` returned.
///
/// # Safety
/// As for [`call_on`], for both functions. The frame is the kernel's, of a signal.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C" fn leave_signal_by(
    top: usize,
    function: unsafe extern "C" fn(*mut c_void) -> usize,
    back: unsafe extern "C" fn(*mut c_void) -> usize,
    argument: *mut c_void,
) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rsp, rdi",
        "mov rbx, rdx",
        "mov r12, rcx",
        "mov rdi, rcx",
        "call rsi",
        "mov rsp, rax",
        "mov rdi, r12",
        "call rbx",
        "mov rsp, rax",
        "mov eax, {rt_sigreturn}",
        "syscall",
        "ud2",
        ".cfi_endproc",
        rt_sigreturn = const libc::SYS_rt_sigreturn,
    )
}

/// As for x86-64.
///
/// # Safety
/// As for x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C" fn call_on(
    top: usize,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    )
}

/// As for x86-64.
///
/// # Safety
/// As for x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C" fn leave_signal_by(
    top: usize,
    function: unsafe extern "C" fn(*mut c_void) -> usize,
    back: unsafe extern "C" fn(*mut c_void) -> usize,
    argument: *mut c_void,
) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        "mov sp, x0",
        "mov x19, x2",
        "mov x20, x3",
        "mov x0, x3",
        "blr x1",
        "mov sp, x0",
        "mov x0, x20",
        "blr x19",
        "mov sp, x0",
        "mov x8, {rt_sigreturn}",
        "svc 0",
        "brk 1",
        ".cfi_endproc",
        rt_sigreturn = const libc::SYS_rt_sigreturn,
    )
}
