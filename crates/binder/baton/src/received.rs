//! What comes in: a transaction to serve, or the reply to a call, where it lies.

use crate::driver::Driver;
use crate::handle::Handle;
use crate::object::Object;
use crate::process::Process;
use baton_abi::control::Strength;
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::*;
use baton_driver::typed::{CopiedPayload, of_transaction, tid};
use baton_shm::lock::{Guard, Lock};
use baton_state::State;
use baton_state::transaction::{Freer, Incoming};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

/// A transaction or reply, where it lies. Dropped, its memory is freed, with the references and the
/// descriptors that it brought.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let socket = directory.path().join("broker.sock");
/// # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
/// use baton::{Handle, Parcel, Process};
///
/// let server = Process::open("binder", &socket)?;
/// let inner = server.object(|_| Ok(Parcel::from(&b"inner"[..]))).add();
/// let outer = server.object(move |_| {
///     let mut answer = Parcel::new();
///     answer.write_object(inner);
///     Ok(answer)
/// });
/// server.become_context_manager(outer.add())?;
/// # let looper = std::thread::spawn({
/// #     let server = server.clone();
/// #     move || server.serve()
/// # });
/// let client = Process::open("binder", &socket)?;
/// let manager = client.context_manager()?;
/// let answer = manager.call(1, &Parcel::new())?;
/// let inner: Handle = answer.handle(0).expect("an object");
/// assert_eq!(inner.call(1, &Parcel::new())?.data(), b"inner");
/// # drop(answer);
/// # server.close();
/// # looper.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Received<'a> {
    pub(crate) driver: &'a Arc<Driver>,
    /// The message, if it came by the fast path.
    here: CopiedPayload,
    /// The message, if it came otherwise. A Box would be dropped in line, where everybody passes.
    in_buffer: Option<Arc<InBuffer>>,
}

/// A message in the receive buffer.
struct InBuffer {
    incoming: Incoming,
    /// The descriptors that the program has not taken out: they are closed with the message.
    fds: Lock<Vec<OwnedFd>>,
}

impl Deref for InBuffer {
    type Target = Incoming;

    fn deref(&self) -> &Incoming {
        &self.incoming
    }
}

/// A transaction to serve.
pub struct Request<'a> {
    /// What it brought.
    pub received: Received<'a>,
}

impl<'a> Received<'a> {
    /// Nothing yet, of what comes by the fast path.
    #[inline(always)]
    pub(crate) fn awaited(driver: &'a Arc<Driver>) -> Received<'a> {
        Received { driver, here: CopiedPayload::default(), in_buffer: None }
    }

    /// Where that comes.
    #[inline(always)]
    pub(crate) fn here(&mut self) -> &mut CopiedPayload {
        &mut self.here
    }

    /// A message in the receive buffer.
    pub(crate) fn in_buffer(driver: &'a Arc<Driver>, incoming: Incoming) -> Received<'a> {
        let n_objects = incoming.sizes.1 / 8;
        let in_buffer = Some(Arc::new(InBuffer { incoming, fds: Lock::default() }));
        let received = Received { driver, here: CopiedPayload::default(), in_buffer };
        if let Some(fds) = received.fds() {
            let numbers = (0..n_objects).filter_map(|index| received.fd_number(index));
            // SAFETY: the engine has installed them for this message, and closes none of them.
            fds.lock().extend(numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
        received
    }
}

impl Received<'_> {
    /// Borrows from the process in place of the handle that the answer came by.
    ///
    /// # Panics
    /// If the process is another device's: the caller's bug.
    pub fn borrowed_from(self, process: &Process) -> Received<'_> {
        assert!(Arc::ptr_eq(self.driver, &process.driver), "another device's answer");
        let mut this = ManuallyDrop::new(self);
        let (here, in_buffer) = (std::mem::take(&mut this.here), this.in_buffer.take());
        Received { driver: &process.driver, here, in_buffer }
    }

    /// The process that received it, unless its last owner has dropped it.
    pub fn process(&self) -> Option<Process> {
        self.driver.process()
    }

    /// The bytes. A child of fork finds none of what lies in its parent's receive buffer.
    pub fn data(&self) -> &[u8] {
        match &self.in_buffer {
            None => self.here.data(),
            Some(_) if self.driver.engine.is_inherited() => &[],
            // SAFETY: the buffer is this value's until it is dropped, and the engine writes to no
            // buffer that has been delivered; peers never map the receive buffer.
            Some(incoming) => unsafe {
                self.driver.engine.buffer.view().bytes_at(incoming.buffer, incoming.sizes.0)
            },
        }
    }

    /// `TF_*`.
    pub fn flags(&self) -> u32 {
        self.in_buffer.as_ref().map_or(self.here.flags, |incoming| incoming.flags)
    }

    fn object(&self, index: usize) -> Option<FlatObject> {
        if self.driver.engine.is_inherited() {
            return None;
        }
        let offset = match &self.in_buffer {
            None => self.here.offset(index)?,
            Some(incoming) => {
                let (data_bytes, offsets_bytes) = incoming.sizes;
                if index >= offsets_bytes / 8 {
                    return None;
                }
                let at = incoming.buffer + data_bytes.next_multiple_of(8) + index * 8;
                let mut offset = [0; 8];
                self.driver.engine.buffer.view().read(at, &mut offset);
                u64::from_ne_bytes(offset)
            }
        };
        let offset = offset as usize;
        let object = self.data().get(offset..offset + size_of::<FlatObject>())?;
        Some(bytemuck::pod_read_unaligned(object))
    }

    /// The object with this index as a reference to another process's. `None` if it is something
    /// else.
    pub fn handle(&self, index: usize) -> Option<Handle> {
        let object = self.object(index).filter(|object| object.kind == BINDER_TYPE_HANDLE)?;
        let number = object.binder as u32;
        let is_there = self.driver.engine.lock().increase(number, Strength::Strong);
        is_there.then(|| self.driver.handle(number))
    }

    /// The object with this index as one of this process's own, come home.
    pub fn own_object(&self, index: usize) -> Option<Object> {
        let object = self.object(index).filter(|object| object.kind == BINDER_TYPE_BINDER)?;
        Some(Object { ptr: object.binder, cookie: object.cookie, flags: object.flags })
    }

    /// A duplicate of the descriptor with this index. `None` if it is something else, has been
    /// taken, or there is no room in the process's table.
    pub fn fd(&self, index: usize) -> Option<OwnedFd> {
        let (number, fds) = (self.fd_number(index)?, self.fds()?.lock());
        let fd = fds.iter().find(|fd| fd.as_raw_fd() == number)?;
        rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()
    }

    /// Takes out the descriptor with this index: it is not closed with the message. `None` if it is
    /// something else, or has been taken.
    pub fn take_fd(&self, index: usize) -> Option<OwnedFd> {
        let (number, mut fds) = (self.fd_number(index)?, self.fds()?.lock());
        let at = fds.iter().position(|fd| fd.as_raw_fd() == number)?;
        Some(fds.swap_remove(at))
    }

    /// The number of the descriptor with this index, taken or not.
    fn fd_number(&self, index: usize) -> Option<i32> {
        let object = self.object(index).filter(|object| object.kind == BINDER_TYPE_FD)?;
        Some(object.binder as i32)
    }

    /// The descriptors that the program has not taken out.
    fn fds(&self) -> Option<&Lock<Vec<OwnedFd>>> {
        self.in_buffer.as_ref().map_or_else(|| self.here.fds(), |incoming| Some(&incoming.fds))
    }
}

impl std::fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields = (self.data().len(), self.flags());
        f.debug_struct("Received").field("bytes", &fields.0).field("flags", &fields.1).finish()
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (code, sender) = (self.code(), self.sender());
        f.debug_struct("Request")
            .field("code", &code)
            .field("sender", &sender)
            .field("received", &self.received)
            .finish()
    }
}

impl Drop for Received<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.here.is_long() || self.in_buffer.is_some() {
            self.free();
        }
    }
}

impl Received<'_> {
    /// Frees what came by the fast path.
    pub(crate) fn free_here(&mut self) {
        if !self.driver.engine.is_inherited() {
            self.here.free(&self.driver.engine);
        }
    }

    #[inline(never)]
    fn free(&mut self) {
        let engine = &self.driver.engine;
        if engine.is_inherited() {
            return;
        }
        self.here.free(engine);
        if self.in_buffer.is_some() {
            let state = self.free_and_lock(false);
            engine.unlock(state);
        }
    }
}

impl<'a> Received<'a> {
    /// Frees a message in the receive buffer, and returns the locked state. `reads_next` as in
    /// [`Freer`].
    pub(crate) fn free_and_lock(&mut self, reads_next: bool) -> Guard<'a, State> {
        let engine = &self.driver.engine;
        // Its descriptors are closed before the lock is taken.
        let buffer = self.in_buffer.take().map(|message| message.buffer);
        let mut state = engine.lock();
        if buffer.is_some() && !engine.is_inherited() {
            engine.buffer.wipe(state.free(Freer { tid: tid(), reads_next }, buffer, 0));
        }
        state
    }
}

impl Request<'_> {
    /// What is asked.
    pub fn code(&self) -> u32 {
        let Received { here, in_buffer, .. } = &self.received;
        in_buffer.as_ref().map_or(here.code, |incoming| incoming.code)
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        self.received.data()
    }

    /// The priority at which this transaction is to be served: its caller's, its object's minimum,
    /// or the serving thread's own, whichever is the most urgent. The thread may lack the right to
    /// it. For the thread that serves.
    pub fn priority(&self) -> SchedPriority {
        // What comes by the fast path comes to a thread that has the right priority already.
        let in_buffer = self.received.in_buffer.as_ref();
        of_transaction(in_buffer.map(|incoming| incoming.requested_priority()))
    }

    /// The caller's pid, 0 of a one-way transaction, and effective user id.
    pub fn sender(&self) -> (u32, u32) {
        let Received { here, in_buffer, .. } = &self.received;
        in_buffer.as_ref().map_or(here.sender, |incoming| incoming.sender)
    }
}
