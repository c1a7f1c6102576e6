//! Carries out the trusted requests: copies to and from granted memory, and changes of another
//! thread's registers (L4's ExchangeRegisters).

use crate::entry_points::EntryPoints;
use crate::grant::{Access, GrantError, Part, RawGrant};
use crate::host_state::HostState;
use crate::list::Slot;
use crate::request::{Registers, TrustedRequest};
use crate::state::State;
use crate::thread_id::ThreadId;
use crate::variant::Variant;
use std::sync::atomic::Ordering::Relaxed;

/// Carries out a request of the current thread and returns the answer.
///
/// # Safety
/// `CurrentThread` has made the request, so its addresses are as its functions promise.
pub(crate) unsafe fn carry_out<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
    request: TrustedRequest,
) -> TrustedRequest {
    match request {
        TrustedRequest::Copy { owner, part, local } => {
            // SAFETY: the caller's promise.
            let result = unsafe { copy(state, owner, part, local) };
            TrustedRequest::Copied(result)
        }
        TrustedRequest::Exchange { id, new } => TrustedRequest::Exchanged(
            ThreadId::from_raw(id)
                .and_then(|id| state.stop(id))
                .map(|slot| exchange(entry_points, state, slot, new)),
        ),
        TrustedRequest::Restart { id, body } => {
            TrustedRequest::Exchanged(restart(entry_points, state, host_state, id, body))
        }
        other => other,
    }
}

/// Lets a stopped thread go on at `new` when it runs. Returns where it would have gone on.
fn exchange<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    slot: Slot,
    new: Registers,
) -> Registers {
    let tcb = &mut state.tcbs[slot];
    let old = Registers { stack_pointer: tcb.stack_pointer, instruction_pointer: tcb.resume };
    (tcb.stack_pointer, tcb.resume) = (new.stack_pointer, new.instruction_pointer);
    // Only the code that the thread leaves has said that it may be interrupted anywhere.
    if std::mem::take(&mut tcb.preemptible) {
        entry_points.interrupt_line.n_preemptible.fetch_sub(1, Relaxed);
    }
    let utcb = &mut state.utcbs[slot.index()];
    (utcb.grant, utcb.trusted_request) = (RawGrant::default(), TrustedRequest::None);
    old
}

fn restart<K: Variant>(
    entry_points: &EntryPoints,
    state: &mut State<K>,
    host_state: &mut HostState,
    id: u32,
    body: u64,
) -> Option<Registers> {
    let id = ThreadId::from_raw(id)?;
    host_state.stack_of(id.slot())?;
    let slot = state.stop(id)?;
    let stack_pointer = host_state.change_stack(slot)?;
    let new = Registers { stack_pointer, instruction_pointer: entry_points.thread_start };
    state.utcbs[slot.index()].words[0] = body;
    Some(exchange(entry_points, state, slot, new))
}

/// Copies between the current thread's memory and memory that `owner` has granted to it.
///
/// # Safety
/// `part.bytes` bytes at `local` may be written if the part is to be read, or read if it is to be
/// written.
unsafe fn copy<K: Variant>(
    state: &mut State<K>,
    owner: u32,
    part: Part,
    local: usize,
) -> Result<(), GrantError> {
    let owner = ThreadId::from_raw(owner).ok_or(GrantError::NotGranted)?;
    let granted = state.open_grant(state.decision.current, owner, part)?;
    let (local, granted, bytes) = (local as *mut u8, granted as *mut u8, part.bytes as usize);
    // SAFETY: the caller's promise for `local`. `granted` is within a slice that its owner has
    // borrowed for its wait, shared if it is to be read and exclusively if it is to be written. The
    // wait does not end before `close_grant`. The two borrows belong to different threads.
    unsafe {
        match part.access {
            Access::Read => std::ptr::copy_nonoverlapping(granted, local, bytes),
            Access::Write => std::ptr::copy_nonoverlapping(local, granted, bytes),
        }
    }
    state.close_grant(owner);
    Ok(())
}
