//! A thread's effects on other threads by address: it grants memory, copies to and from memory that
//! others grant, and changes where they go on.

use super::{CurrentThread, Message, ThreadBody};
use crate::grant::{Access, CHUNK_BYTES, Grant, GrantError, Part, RawGrant};
use crate::message::{Ipc, IpcError};
use crate::request::{Registers, Request, TrustedRequest};
use crate::tcb::Status;
use crate::thread_id::{Sender, ThreadId};
use std::io;

impl CurrentThread {
    /// Makes an IPC that grants memory to the partner while this thread waits for it and no other
    /// thread. In a call that is from the receipt of the message until the answer, or until the
    /// call fails.
    ///
    /// # Errors
    /// The errors of [`CurrentThread::ipc`].
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

    /// Like [`CurrentThread::call`], with memory that the partner may reach until it answers.
    ///
    /// # Errors
    /// The errors of [`CurrentThread::call`].
    #[inline]
    pub fn call_granting(
        &mut self,
        to: ThreadId,
        grant: &Grant,
        message: &mut Message,
    ) -> Result<(), IpcError> {
        self.ipc_granting(Ipc::call(to), grant, message).map(drop)
    }

    /// Copies from memory that `owner`, which waits for this thread, has granted.
    ///
    /// # Errors
    /// `NotGranted`: `owner` grants no such memory. It may also stop waiting between two parts of
    /// 4 KiB: the first ones are copied then. `OutOfBounds`: this thread's mistake.
    pub fn copy_from(
        &mut self,
        owner: ThreadId,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), GrantError> {
        self.copy(owner, Access::Read, offset, to.as_mut_ptr() as usize, to.len())
    }

    /// Copies to memory that `owner`, which waits for this thread, has granted.
    ///
    /// # Errors
    /// The errors of [`CurrentThread::copy_from`].
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
            let request = TrustedRequest::Copy { owner, part, local: local + done };
            if let TrustedRequest::Copied(Err(error)) = self.trusted_request(request) {
                return Err(error);
            }
            done += length;
            if done == bytes {
                return Ok(());
            }
        }
    }

    fn trusted_request(&mut self, request: TrustedRequest) -> TrustedRequest {
        // SAFETY: as in `more_words`.
        unsafe { (*self.utcb()).trusted_request = request };
        self.request(Request::None);
        // SAFETY: as in `more_words`.
        unsafe { std::mem::replace(&mut (*self.utcb()).trusted_request, TrustedRequest::None) }
    }

    /// Where another thread of this kernel goes on when it runs again. `None`: there is no such
    /// thread, or `id` is this thread.
    pub fn registers(&mut self, id: ThreadId) -> Option<Registers> {
        let is_one = id != self.id() && id.slot().index() <= self.entry_points().mask as usize;
        // SAFETY: one of the kernel's TCBs, which only kernel code changes.
        let tcb = is_one.then(|| unsafe { &*self.entry_points().tcbs.add(id.slot().index()) })?;
        let is_there = tcb.id == id && tcb.status != Status::Free;
        is_there.then_some(Registers {
            stack_pointer: tcb.stack_pointer,
            instruction_pointer: tcb.resume,
        })
    }

    /// Lets another thread of this kernel go on at `new`, and returns where it would have gone on.
    /// An IPC in which the thread waits is aborted. The thread stays suspended if it was, and stops
    /// being preemptible. `None`: nothing was changed. There is no such thread, `id` is this
    /// thread, or another kernel is just writing the message that the thread waits for.
    ///
    /// # Safety
    /// `new` is the result of an earlier call for this thread, which has not run since. Or its code
    /// expects message registers and no return address, on a stack that nobody else uses.
    /// The values on the thread's old stack are not dropped; if `new` uses that stack again, nobody
    /// needs them.
    pub unsafe fn exchange_registers(&mut self, id: ThreadId, new: Registers) -> Option<Registers> {
        match self.trusted_request(TrustedRequest::Exchange { id: id.raw(), new }) {
            TrustedRequest::Exchanged(old) => old,
            _ => None,
        }
    }

    /// Lets another thread of this kernel run `body` instead, on a new stack. An IPC in which the
    /// thread waits is aborted; the thread stays suspended, or not started, if it was. The values
    /// on its old stack are leaked.
    ///
    /// `false`: nothing was changed. There is no such thread, `id` is this thread, its stack is
    /// none of the kernel's, or another kernel is just writing the message that the thread waits
    /// for.
    ///
    /// # Errors
    /// The system's, if it has no memory for a stack.
    pub fn restart(
        &mut self,
        id: ThreadId,
        body: impl FnOnce(CurrentThread) + 'static,
    ) -> io::Result<bool> {
        let body: ThreadBody = Box::new(body);
        self.hold(|this| {
            this.host_state(|host_state| {
                host_state.new_stack().map(|stack| host_state.pool.push(stack))
            })?;
            let body = Box::into_raw(Box::new(body));
            let request = TrustedRequest::Restart { id: id.raw(), body: body as u64 };
            let answer = this.trusted_request(request);
            let is_restarted = matches!(answer, TrustedRequest::Exchanged(Some(_)));
            if !is_restarted {
                // SAFETY: made above, and the kernel has not taken it.
                drop(unsafe { Box::from_raw(body) });
            }
            Ok(is_restarted)
        })
    }
}
