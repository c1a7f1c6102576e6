//! Entering and leaving the kernel: the assembly, one file for each architecture, behind the same
//! functions.
//!
//! A thread that is not running stands at one of three places, which its TCB names (`resume`), with
//! its stack as it left it (`stack_pointer`):
//!
//! ```text
//!  in `ipc`       it has entered the kernel, and expects a message in registers
//!  in `preempt`   the tick took the processor from it, in a signal handler on its own stack
//!  at `begin`     it has not run yet
//! ```
//!
//! Whoever switches to a thread loads its message registers, its stack, and jumps to `resume`:
//! never by a return, which the processor would predict to go elsewhere.
//!
//! **Invariants**: kernel code runs on the stack of `Kernel::run`, never on a thread's; `in_kernel`
//! is 1 from the first instruction of an entry until a thread's stack is there again, and what the
//! TCB says of a thread is read before it becomes 0.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::bare;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{
    begin, entry, float_control, interrupted_at, ipc, launch, preempt, preempt_entry, redirect,
};
#[cfg(target_arch = "x86_64")]
pub use x86_64::bare;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{
    begin, entry, float_control, interrupted_at, ipc, launch, preempt, preempt_entry, redirect,
};

use crate::cluster::bell::Knocker;
use crate::tcb::Tcb;
use std::cell::Cell;
use std::sync::atomic::AtomicU32;

/// What of a kernel is known to the assembly, and to a thread, whichever variant it is. It begins
/// every `Kernel`, and the kernel's state follows it.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct EntryPoints {
    /// Where a thread enters for an IPC, and where for having been interrupted.
    pub(crate) entry: usize,
    pub(crate) preempt_entry: usize,
    /// Signals do nothing but set `pending` while this is 1. It is the OS thread's own: its order
    /// is that of the program.
    pub(crate) in_kernel: AtomicU32,
    /// `pending` is set by signals, and by other kernels of a cluster.
    pub(crate) knocker: Knocker,
    pub(crate) tcbs: *mut Tcb,
    /// The TCB of the thread that runs. The fast paths write it, and not the state's `current`.
    pub(crate) current_tcb: Cell<*mut Tcb>,
    /// The number of TCBs, a power of two, less one.
    pub(crate) mask: u32,
    /// Where kernel code has its stack.
    pub(crate) kernel_stack: Cell<usize>,
    /// The control words of whoever called `Kernel::run`.
    pub(crate) host_float_control: Cell<[u32; 2]>,
    pub(crate) host_state: crate::host_state::SideCell,
}

/// Where a thread begins.
pub(crate) fn beginning() -> usize {
    begin as *const () as usize
}
