//! Entering and leaving the kernel: the assembly, one file for each architecture, with equal
//! functions.
//!
//! A thread that does not run goes on at `Tcb::resume`, with the stack pointer
//! `Tcb::stack_pointer`. It is at one of three places:
//!
//! ```text
//!  in `ipc`              it has entered the kernel, and expects a message in registers
//!  in `preempt`          the tick took the processor from it, in a signal handler on its own stack
//!  at `start_thread`     it has not run yet
//! ```
//!
//! The kernel loads the message registers and the stack pointer of the next thread, and jumps to
//! `resume`. It never returns there, as the processor would predict another target.
//!
//! **Invariants**: kernel code runs on the stack of `Kernel::run`, never on a thread's. `in_kernel`
//! is 1 from the first instruction of an entry until a thread's stack is loaded. The kernel reads a
//! thread's TCB before it clears `in_kernel`.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod bare;
mod upcalls;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

pub(crate) use arch::{float_control, interrupted_at, ipc, launch, preempt, redirect};
pub(crate) use upcalls::Upcalls;

use crate::variant::Assembly;

/// The address at which threads of a variant enter the kernel for an IPC or a request.
pub(crate) fn entry<K: Upcalls>() -> usize {
    match K::ASSEMBLY {
        Assembly::None => arch::general_entry::<K> as *const () as usize,
        Assembly::Direct => arch::direct_entry::<K> as *const () as usize,
        Assembly::Strict => arch::strict_entry::<K> as *const () as usize,
    }
}

/// The address at which preempted threads of a variant enter the kernel.
pub(crate) fn preempt_entry<K: Upcalls>() -> usize {
    arch::interrupted_entry::<K> as *const () as usize
}

/// The address of a new thread's first instruction.
pub(crate) fn thread_start<K: Upcalls>() -> usize {
    arch::start_thread::<K> as *const () as usize
}

/// The address at which a thread goes on whose stack has overflowed.
pub(crate) fn overflow_start<K: Upcalls>() -> usize {
    arch::fail_thread::<K> as *const () as usize
}
