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

/// The offset of `State::decision.ceiling` from the kernel's entry points.
pub(super) const CEILING: usize = size_of::<EntryPoints>() + offset_of!(Decision, ceiling);
/// The status and the lending of a receiver, as the 16 bits that the assembly writes at once.
pub(super) const RECEIVING: u16 = Status::Receiving as u16;
pub(super) const LENDING: u16 = RECEIVING | (Lending::Priority as u16) << 8;
const _: () = assert!(offset_of!(Tcb, lending) == offset_of!(Tcb, status) + 1);
const _: () = assert!(offset_of!(EntryPoints, entry) == 0 && offset_of!(Utcb, words) == 0);
const _: () = assert!(size_of::<Tcb>() == 1 << 7);
