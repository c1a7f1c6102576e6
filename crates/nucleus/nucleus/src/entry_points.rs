//! The part of a kernel that assembly, signal handlers and threads know without its variant:
//! addresses, the current thread, and the state of the host. The kernel's `State` follows it.

use crate::host_state::HostStateCell;
use crate::interrupt_line::InterruptLine;
use crate::list::Slot;
use crate::tcb::Tcb;
use std::cell::Cell;
use std::sync::atomic::AtomicU32;

/// See the module. A `Kernel` begins with it.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct EntryPoints {
    /// Where a thread enters the kernel for an IPC, and where a preempted thread enters it.
    pub(crate) entry: usize,
    pub(crate) preempt_entry: usize,
    /// While this is 1, signal handlers only set `pending`. Only the kernel's OS thread uses it, so
    /// program order is enough.
    pub(crate) in_kernel: AtomicU32,
    pub(crate) interrupt_line: InterruptLine,
    pub(crate) tcbs: *mut Tcb,
    /// The TCB of the thread that runs. The fast paths write this, and leave `Decision::current`
    /// as it is.
    pub(crate) current_tcb: Cell<*mut Tcb>,
    /// The number of TCBs, a power of two, less one.
    pub(crate) mask: u32,
    /// The stack pointer with which kernel code begins.
    pub(crate) kernel_stack: Cell<usize>,
    /// The control words of the caller of `Kernel::run`.
    pub(crate) host_float_control: Cell<[u32; 2]>,
    /// The first instruction of a new thread, and of a thread whose stack has overflowed.
    pub(crate) thread_start: usize,
    pub(crate) overflow_start: usize,
    pub(crate) host_state: HostStateCell,
}

impl EntryPoints {
    /// The slot of the thread that runs.
    #[inline]
    pub(crate) fn current(&self) -> Slot {
        // SAFETY: one of the kernel's TCBs, from when the kernel begins to run; the id of a thread
        // does not change while the thread runs.
        unsafe { (*self.current_tcb.get()).id.slot() }
    }
}
