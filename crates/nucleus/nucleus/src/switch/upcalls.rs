//! The interface between the assembly and the Rust code that it calls: functions, and the words and
//! offsets that both know.

use crate::entry_points::EntryPoints;
use crate::state::Decision;
use crate::tcb::{Lending, Status, Tcb, Utcb};
use crate::variant::Variant;
use std::mem::offset_of;

/// The functions that the assembly calls. The kernel implements them for every variant; the trait
/// keeps the assembly below the kernel.
pub(crate) trait Upcalls: Variant {
    /// The current thread has laid an IPC or a request into its UTCB. Returns the TCB of the thread
    /// that runs next, or null if no thread can run any more.
    extern "C" fn enter(entry_points: *const EntryPoints) -> *const Tcb;

    /// A signal has come. Returns as `enter` does.
    extern "C" fn interrupted(entry_points: *const EntryPoints) -> *const Tcb;

    /// The kernel begins to run. Returns as `enter` does.
    extern "C" fn launched(entry_points: *const EntryPoints) -> *const Tcb;

    /// Runs the body of a new thread and ends the thread.
    ///
    /// # Safety
    /// Called at the start of a thread, with the body that `prepare_thread` has put into its UTCB.
    unsafe extern "C" fn run_thread(entry_points: *const EntryPoints, body: *mut ()) -> !;

    /// Ends a thread whose stack has overflowed, on that stack from its top.
    ///
    /// # Safety
    /// The thread goes on nowhere else.
    unsafe extern "C" fn fail_overflowed(entry_points: *const EntryPoints) -> !;
}

/// The constants that the assembly uses, by the names of its operands: offsets in `EntryPoints`,
/// `Tcb` and `Utcb`, and the two states in which a fast path leaves the current thread.
#[allow(non_upper_case_globals, reason = "operands are named after fields")]
pub(super) mod operands {
    use super::*;

    pub(in super::super) const in_kernel: usize = offset_of!(EntryPoints, in_kernel);
    pub(in super::super) const pending: usize = offset_of!(EntryPoints, interrupt_line.pending);
    pub(in super::super) const tcbs: usize = offset_of!(EntryPoints, tcbs);
    pub(in super::super) const current_tcb: usize = offset_of!(EntryPoints, current_tcb);
    pub(in super::super) const mask: usize = offset_of!(EntryPoints, mask);
    pub(in super::super) const kernel_stack: usize = offset_of!(EntryPoints, kernel_stack);
    pub(in super::super) const host: usize = offset_of!(EntryPoints, host_float_control);
    /// From the kernel's entry points: its state follows them.
    pub(in super::super) const ceiling: usize =
        size_of::<EntryPoints>() + offset_of!(Decision, ceiling);

    pub(in super::super) const stack: usize = offset_of!(Tcb, stack_pointer);
    pub(in super::super) const resume: usize = offset_of!(Tcb, resume);
    pub(in super::super) const float: usize = offset_of!(Tcb, float_control);
    pub(in super::super) const utcb: usize = offset_of!(Tcb, utcb);
    pub(in super::super) const id: usize = offset_of!(Tcb, id);
    pub(in super::super) const partner: usize = offset_of!(Tcb, partner);
    pub(in super::super) const status: usize = offset_of!(Tcb, status);
    pub(in super::super) const gate: usize = offset_of!(Tcb, gate);
    pub(in super::super) const inbox: usize = offset_of!(Tcb, inbox);
    pub(in super::super) const caller: usize = offset_of!(Tcb, caller);
    pub(in super::super) const priority: usize = offset_of!(Tcb, priority);
    pub(in super::super) const floor: usize = offset_of!(Tcb, floor);

    pub(in super::super) const tag: usize = offset_of!(Utcb, tag);
    pub(in super::super) const peer: usize = offset_of!(Utcb, peer);
    pub(in super::super) const receive: usize = offset_of!(Utcb, receive);

    /// The status of a receiver, and whether it lends, as 16 bits.
    pub(in super::super) const RECEIVING: u16 = Status::Receiving as u16;
    pub(in super::super) const LENDING: u16 = RECEIVING | (Lending::Priority as u16) << 8;
}

/// `naked_asm!` whose constants are named once: after the lines come the names of `operands`, and
/// then all other operands.
macro_rules! kernel_asm {
    ($($line:expr),*; $($operand:ident),*; $($other:tt)*) => {
        std::arch::naked_asm!(
            $($line,)*
            $($operand = const $crate::switch::upcalls::operands::$operand,)*
            $($other)*
        )
    };
}
pub(super) use kernel_asm;

const _: () = assert!(offset_of!(Tcb, lending) == offset_of!(Tcb, status) + 1);
const _: () = assert!(offset_of!(EntryPoints, entry) == 0 && offset_of!(Utcb, words) == 0);
const _: () = assert!(size_of::<Tcb>() == 1 << 7);
