//! Where a thread that does not run goes on, and how another one changes that (L4's
//! ExchangeRegisters).
//!
//! ```text
//!  Tcb.resume          the instruction that it goes on with
//!  Tcb.stack_pointer   its stack then
//!  Utcb                its message registers
//! ```
//!
//! There are no flags among them: an IPC keeps none, as a call of a function keeps none. What the
//! user means by a thread is its user word (`Request::ExchangeUserWord`).

use crate::grant::{Access, GrantError, Part, RawGrant};
use crate::host_state::HostState;
use crate::list::Slot;
use crate::state::State;
use crate::switch::{self, EntryPoints};
use crate::thread_id::ThreadId;
use crate::variant::Variant;
use std::sync::atomic::Ordering::Relaxed;

/// Where a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registers {
    /// Its stack pointer then.
    pub stack_pointer: usize,
    /// The address of the instruction.
    pub instruction_pointer: usize,
}

/// What only `CurrentThread` asks of the kernel, since addresses are in it; then what came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    Nothing,
    /// From or to the thread of this name. `local`: the memory of who copies.
    Copy {
        owner: u32,
        part: Part,
        local: usize,
    },
    Copied(Result<(), GrantError>),
    /// Another thread goes on there, and its IPC is aborted.
    Exchange {
        id: u32,
        new: Registers,
    },
    /// The same, with this body (`kernel::body`) and a stack of the pool.
    Restart {
        id: u32,
        body: u64,
    },
    /// Where it would have gone on. `None`: there is no such thread, or it cannot be stopped.
    Exchanged(Option<Registers>),
}

/// Does what a thread wishes.
///
/// # Safety
/// `CurrentThread` has laid the wish into the current thread's UTCB, with what it says of its
/// addresses.
pub(crate) unsafe fn grant<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
    wish: Wish,
) -> Wish {
    match wish {
        Wish::Copy { owner, part, local } => {
            // SAFETY: the caller's promise.
            let result = unsafe { copy(state, owner, part, local) };
            Wish::Copied(result)
        }
        Wish::Exchange { id, new } => Wish::Exchanged(
            ThreadId::from_raw(id)
                .and_then(|id| state.stop(id))
                .map(|slot| exchange(entry_points, state, slot, new)),
        ),
        Wish::Restart { id, body } => {
            Wish::Exchanged(restart(entry_points, state, host_state, id, body))
        }
        other => other,
    }
}

/// A thread that has been stopped goes on there when it runs.
fn exchange<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    slot: Slot,
    new: Registers,
) -> Registers {
    let tcb = &mut state.tcbs[slot];
    let old = Registers { stack_pointer: tcb.stack_pointer, instruction_pointer: tcb.resume };
    (tcb.stack_pointer, tcb.resume) = (new.stack_pointer, new.instruction_pointer);
    // What it goes on with has not said so.
    if std::mem::take(&mut tcb.preemptible) {
        entry_points.knocker.n_preemptible.fetch_sub(1, Relaxed);
    }
    let utcb = &mut state.utcbs[slot.index()];
    (utcb.grant, utcb.wish) = (RawGrant::default(), Wish::Nothing);
    old
}

fn restart<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
    id: u32,
    body: u64,
) -> Option<Registers> {
    let slot = state.stop(ThreadId::from_raw(id)?)?;
    let stack_pointer = host_state.change_stack(slot)?;
    let new = Registers { stack_pointer, instruction_pointer: switch::beginning() };
    state.utcbs[slot.index()].words[0] = body;
    Some(exchange(entry_points, state, slot, new))
}

/// Copies from or to what another thread has granted to the current one.
///
/// # Safety
/// `local` may be read, or written if the grant is to be read, for as many bytes as the part has.
unsafe fn copy<K: Variant>(
    state: &mut State<K>,
    owner: u32,
    part: Part,
    local: usize,
) -> Result<(), GrantError> {
    let owner = ThreadId::from_raw(owner).ok_or(GrantError::NotGranted)?;
    let place = state.open_grant(state.decision.current, owner, part)?;
    let (local, place, bytes) = (local as *mut u8, place as *mut u8, part.bytes as usize);
    // SAFETY: the caller's promise for one host_state. The other one is within a slice that its
    // owner has borrowed for the time of its wait, shared if it is to be read and alone if it is to
    // be written; the wait does not end before `close_grant`. The two are different threads'
    // borrows.
    unsafe {
        match part.access {
            Access::Read => std::ptr::copy_nonoverlapping(place, local, bytes),
            Access::Write => std::ptr::copy_nonoverlapping(local, place, bytes),
        }
    }
    state.close_grant(owner);
    Ok(())
}
