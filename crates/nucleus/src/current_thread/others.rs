//! What a thread does with others by address: it grants memory and reaches theirs, and lets them go
//! on elsewhere.

use super::{CurrentThread, Message};
use crate::grant::{Access, CHUNK_BYTES, Grant, GrantError, Part, RawGrant};
use crate::kernel::Body;
use crate::message::{Ipc, IpcError};
use crate::registers::{Registers, Wish};
use crate::request::Request;
use crate::tcb::Status;
use crate::thread_id::{Sender, ThreadId};
use std::io;

impl CurrentThread {
    /// Any IPC, with memory that the partner may reach while this thread waits for it and for
    /// nobody else: in a call, from when the message was received until it is answered, or the call
    /// is given up.
    #[inline]
    pub fn ipc_granting(
        &mut self,
        ipc: Ipc,
        grant: &Grant,
        message: &mut Message,
    ) -> Result<Option<Sender>, IpcError> {
        // SAFETY: as in `more_words`.
        unsafe { (*self.utcb()).grant = grant.raw() };
        let result = self.ipc(ipc, message);
        // SAFETY: as in `more_words`.
        unsafe { (*self.utcb()).grant = RawGrant::default() };
        result
    }

    /// Sends a message and receives its answer, and meanwhile the partner may reach this memory.
    #[inline]
    pub fn call_granting(
        &mut self,
        to: ThreadId,
        grant: &Grant,
        message: &mut Message,
    ) -> Result<(), IpcError> {
        self.ipc_granting(Ipc::call(to), grant, message).map(drop)
    }

    /// Copies from the memory that a thread has granted which waits for this one.
    ///
    /// # Errors
    /// `NotGranted` also if that thread gives up between two parts of 4 KiB: the first are copied
    /// then.
    pub fn copy_from(
        &mut self,
        owner: ThreadId,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), GrantError> {
        self.copy(owner, Access::Read, offset, to.as_mut_ptr() as usize, to.len())
    }

    /// Copies to the memory that a thread has granted which waits for this one.
    ///
    /// # Errors
    /// As for `copy_from`.
    pub fn copy_to(
        &mut self,
        owner: ThreadId,
        offset: usize,
        from: &[u8],
    ) -> Result<(), GrantError> {
        self.copy(owner, Access::Write, offset, from.as_ptr() as usize, from.len())
    }

    fn copy(
        &mut self,
        owner: ThreadId,
        access: Access,
        offset: usize,
        local: usize,
        bytes: usize,
    ) -> Result<(), GrantError> {
        let owner = owner.raw();
        let mut done = 0;
        loop {
            let left_bytes = bytes - done;
            let length = left_bytes.min(CHUNK_BYTES);
            let part = Part {
                access,
                offset: (offset as u64).saturating_add(done as u64),
                bytes: length as u64,
                left_bytes: left_bytes as u64,
            };
            let wish = Wish::Copy { owner, part, local: local + done };
            if let Wish::Copied(Err(error)) = self.wish(wish) {
                return Err(error);
            }
            done += length;
            if done == bytes {
                return Ok(());
            }
        }
    }

    fn wish(&mut self, wish: Wish) -> Wish {
        // SAFETY: as in `more_words`.
        unsafe { (*self.utcb()).wish = wish };
        self.request(Request::None);
        // SAFETY: as in `more_words`.
        unsafe { std::mem::replace(&mut (*self.utcb()).wish, Wish::Nothing) }
    }

    /// Where another thread of this kernel goes on when it runs again. `None`: there is no such
    /// thread, or it is this one.
    pub fn registers(&mut self, id: ThreadId) -> Option<Registers> {
        let is_one = id != self.id() && id.slot().index() <= self.entry_points().mask as usize;
        // SAFETY: one of the kernel's TCBs, which change in kernel code only.
        let tcb = is_one.then(|| unsafe { &*self.entry_points().tcbs.add(id.slot().index()) })?;
        let is_there = tcb.id == id && tcb.status != Status::Free;
        is_there.then_some(Registers {
            stack_pointer: tcb.stack_pointer,
            instruction_pointer: tcb.resume,
        })
    }

    /// Another thread of this kernel goes on elsewhere. If it is blocked its IPC is aborted, if it
    /// has been suspended it stays so, and it is not preemptible. Says where it would have gone on.
    /// `None`: there is no such thread, it is this one, or what it waits for is just being written
    /// by another kernel.
    ///
    /// # Safety
    /// The new registers are what this has said of the same thread, which has not run since; or
    /// there is code that expects message registers and no return address, on a stack that nobody
    /// else uses. What the thread leaves on a stack that is used again is needed by nobody: it is
    /// not dropped.
    pub unsafe fn exchange_registers(&mut self, id: ThreadId, new: Registers) -> Option<Registers> {
        match self.wish(Wish::Exchange { id: id.raw(), new }) {
            Wish::Exchanged(old) => old,
            _ => None,
        }
    }

    /// Another thread of this kernel does this from now on, on a new stack. If it is blocked its
    /// IPC is aborted, if it has been suspended or not been started it stays so. Says whether it
    /// does: not if there is no such thread, it is this one, or what it waits for is just being
    /// written by another kernel.
    ///
    /// What is on its old stack is not dropped, and stays there for ever.
    ///
    /// # Errors
    /// The system's, if it has no stack for us.
    pub fn restart(
        &mut self,
        id: ThreadId,
        body: impl FnOnce(CurrentThread) + 'static,
    ) -> io::Result<bool> {
        let body: Body = Box::new(body);
        self.hold(|here| {
            here.host_state(|host_state| {
                host_state.new_stack().map(|stack| host_state.pool.push(stack))
            })?;
            let body = Box::into_raw(Box::new(body));
            let wish = Wish::Restart { id: id.raw(), body: body as u64 };
            let is_restarted = matches!(here.wish(wish), Wish::Exchanged(Some(_)));
            if !is_restarted {
                // SAFETY: made above, and given to nobody.
                drop(unsafe { Box::from_raw(body) });
            }
            Ok(is_restarted)
        })
    }
}
