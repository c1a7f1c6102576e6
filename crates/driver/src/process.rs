//! The typed API: a process that calls and serves without command buffers.
//!
//! It carries bytes and objects, and nothing of AIDL. One [`Process`] is one opened device; its
//! threads share it. Handles and parcels are of the process that made them: with another one they
//! are `EINVAL`, never some other object that has the same number there.
//!
//! A signal does not end a call: it is waited for again, as libbinder does. A transaction that has
//! been sent cannot be taken back, and its late answer must not be taken for the next one's.

mod loan;

pub use loan::Loan;

use crate::device::OpenError;
use crate::engine::fast::{Answered, INLINE_BYTES, Inline, Outcome, Seats, Server, while_serving};
use crate::engine::{Engine, tid};
use crate::parcel;
use crate::send::{Data, Outgoing};
use crate::state::transaction::{Incoming, Target};
use crate::state::work::Tid;
use crate::state::{Return, State};
use crate::thread_end;
use baton_abi::control::Strength;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::*;
use bytemuck::bytes_of;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

/// Size of the receive buffer, as libbinder has it.
pub const RECEIVE_BYTES: usize = (1 << 20) - 8192;

type Handler = dyn Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync;
type Recipient = Box<dyn FnOnce() + Send>;
type Recipients = HashMap<u64, Vec<Recipient>>;

/// One opened device.
#[derive(Clone)]
pub struct Process {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    objects: RwLock<HashMap<u64, Arc<Handler>>>,
    /// By the cookie of the one notice that a handle has.
    recipients: Mutex<Recipients>,
}

/// Why a call came back without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The target's process is gone, or there is no context manager.
    #[error("the target is dead")]
    Dead,
    /// The target's process is frozen.
    #[error("the target is frozen")]
    Frozen,
    /// The transaction could not be made: too large, no right, no room.
    #[error("the transaction failed: {0}")]
    Failed(Errno),
}

/// What is sent: bytes, and objects at places in them. It keeps the handles and the descriptors
/// that it was given for itself until it is dropped.
#[derive(Clone, Default)]
pub struct Parcel {
    data: SmallVec<[u8; SHORT_BYTES]>,
    objects: Option<Box<Objects>>,
}

/// A parcel of so few bytes needs no memory of its own, and is moved for next to nothing.
const SHORT_BYTES: usize = 32;

/// Where a parcel's objects stand in its bytes, and what it keeps for them.
#[derive(Clone, Default)]
struct Objects {
    offsets: Vec<u64>,
    handles: Vec<Handle>,
    fds: Vec<Arc<OwnedFd>>,
}

/// An object of this process that can be sent and called. Only its own process knows it: in a
/// parcel of another one it is an object that nobody serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    ptr: u64,
}

/// A strong reference to an object of another process. Dropped, it is released.
///
/// As in the kernel, number 0 stands for whoever is the context manager when it is called.
pub struct Handle {
    inner: Arc<Inner>,
    number: u32,
}

/// A transaction or reply in the receive buffer. Dropped, the buffer is freed.
pub struct Received<'a> {
    inner: &'a Arc<Inner>,
    place: Place,
}

enum Place {
    Buffer(Box<Incoming>),
    /// Here: it came by the fast path.
    Here(Inline),
}

/// A transaction to serve.
pub struct Request<'a> {
    /// What it brought.
    pub received: Received<'a>,
}

impl Parcel {
    /// An empty one.
    pub fn new() -> Parcel {
        Parcel::default()
    }

    /// The bytes so far.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> &mut Parcel {
        self.data.extend_from_slice(bytes);
        self
    }

    fn objects(&mut self) -> &mut Objects {
        self.objects.get_or_insert_default()
    }

    fn offsets(&self) -> &[u64] {
        self.objects.as_ref().map_or(&[], |objects| &objects.offsets)
    }

    fn write_flat(&mut self, object: &FlatObject) -> &mut Parcel {
        self.data.resize(self.data.len().next_multiple_of(4), 0);
        let at = self.data.len() as u64;
        self.objects().offsets.push(at);
        self.write(bytes_of(object))
    }

    /// Appends an object of this process.
    pub fn write_object(&mut self, object: Object) -> &mut Parcel {
        let flags = FLAT_BINDER_FLAG_ACCEPTS_FDS;
        let kind = BINDER_TYPE_BINDER;
        self.write_flat(&FlatObject { kind, flags, binder: object.ptr, cookie: 0 })
    }

    /// Appends a reference to an object of another process.
    pub fn write_handle(&mut self, handle: &Handle) -> &mut Parcel {
        let binder = u64::from(handle.number);
        // The number must not come to mean another object before the parcel is sent.
        self.objects().handles.push(handle.clone());
        self.write_flat(&FlatObject { kind: BINDER_TYPE_HANDLE, flags: 0, binder, cookie: 0 })
    }

    /// Appends a descriptor. It must stay open until the parcel has been sent; for a reply, which
    /// is sent after its handler has returned, see [`Parcel::write_owned_fd`].
    pub fn write_fd(&mut self, fd: BorrowedFd<'_>) -> &mut Parcel {
        let binder = fd.as_raw_fd() as u64;
        self.write_flat(&FlatObject { kind: BINDER_TYPE_FD, flags: 0, binder, cookie: 0 })
    }

    /// Appends a descriptor, which is closed with the parcel.
    pub fn write_owned_fd(&mut self, fd: OwnedFd) -> &mut Parcel {
        self.write_fd(fd.as_fd());
        self.objects().fds.push(Arc::new(fd));
        self
    }

    /// `EINVAL` if it holds a handle of another process.
    fn check_owner(&self, inner: &Arc<Inner>) -> Result<(), Errno> {
        let ours = |handle: &Handle| Arc::ptr_eq(&handle.inner, inner);
        let mut handles = self.objects.iter().flat_map(|objects| &objects.handles);
        if handles.all(ours) { Ok(()) } else { Err(Errno::INVAL) }
    }
}

impl std::fmt::Debug for Parcel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, objects) = (self.data.len(), self.offsets().len());
        f.debug_struct("Parcel").field("bytes", &bytes).field("objects", &objects).finish()
    }
}

impl From<&[u8]> for Parcel {
    fn from(bytes: &[u8]) -> Parcel {
        Parcel { data: SmallVec::from_slice(bytes), ..Parcel::default() }
    }
}

impl Process {
    /// Opens a context at the broker that listens at `socket`.
    pub fn open(context: &str, socket: &Path) -> Result<Process, OpenError> {
        Process::open_with(context, socket, RECEIVE_BYTES)
    }

    /// Opens with a receive buffer of another size: of so many bytes, but of 4 MiB at most.
    pub fn open_with(
        context: &str,
        socket: &Path,
        receive_bytes: usize,
    ) -> Result<Process, OpenError> {
        let engine = Engine::open(context, socket)?;
        let mut state = engine.lock();
        state.buffers.map(receive_bytes.min(MAX_PAYLOAD_BYTES));
        engine.unlock(state);
        let (objects, recipients) = Default::default();
        Ok(Process { inner: Arc::new(Inner { engine, objects, recipients }) })
    }

    /// An object that `handler` serves, on whichever thread serves. It lives as long as the process.
    /// A one-way transaction's answer is dropped; an `Err` becomes a failed reply, and so does a
    /// panic (`EFAULT`), after which the thread goes on serving.
    pub fn add_object(
        &self,
        handler: impl Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
    ) -> Object {
        let ptr = self.inner.engine.lock().next_number();
        write(&self.inner.objects).insert(ptr, Arc::new(handler));
        Object { ptr }
    }

    /// Makes an object the one that others reach by [`Process::context_manager`]. `EBUSY` if the
    /// context has a manager, `EPERM` if it belongs to another user.
    pub fn become_context_manager(&self, object: Object) -> Result<(), Errno> {
        self.inner.engine.become_manager(object.ptr, 0, FLAT_BINDER_FLAG_ACCEPTS_FDS)
    }

    /// The context manager's object. `Dead` if there is none.
    pub fn context_manager(&self) -> Result<Handle, CallError> {
        self.find_manager()?;
        let engine = &self.inner.engine;
        let mut state = engine.lock();
        let number = state.manager.ok_or(CallError::Dead)?;
        state.increase_manager(Strength::Strong);
        engine.unlock(state);
        Ok(Handle { inner: Arc::clone(&self.inner), number })
    }

    fn find_manager(&self) -> Result<(), CallError> {
        self.inner.engine.find_manager().map_err(|errno| match errno {
            Errno::INVAL => CallError::Failed(errno),
            _ => CallError::Dead,
        })
    }

    /// A two-way transaction: returns when it has been answered. Meanwhile this thread serves the
    /// transactions that the call causes back into this process.
    pub fn call(
        &self,
        handle: &Handle,
        code: u32,
        parcel: &Parcel,
    ) -> Result<Received<'_>, CallError> {
        let inner = &self.inner;
        if parcel.objects.is_none() && Arc::ptr_eq(&handle.inner, inner) {
            match inner.engine.call_fast(handle.number, code, TF_ACCEPT_FDS, &parcel.data) {
                Outcome::Answered(answer) => {
                    return Ok(Received { inner, place: Place::Here(answer) });
                }
                Outcome::Adopted => return self.await_reply(tid(), handle.number),
                Outcome::No => {}
            }
        }
        self.check(handle, parcel)?;
        self.send(tid(), Target::Handle(handle.number), code, TF_ACCEPT_FDS, Ok(parcel));
        self.await_reply(tid(), handle.number)
    }

    fn await_reply(&self, tid: Tid, handle: u32) -> Result<Received<'_>, CallError> {
        let (engine, inner) = (&self.inner.engine, &self.inner);
        let mut state = engine.lock();
        state.thread(tid).return_once = false;
        let via = state.thread(tid).calls_on().map(|calling| calling.via);
        loop {
            state = match engine.await_work(state, tid, false, false, None) {
                Ok(state) => state,
                Err(Errno::INTR) => engine.lock(),
                Err(_) => return Err(CallError::Dead),
            };
            while let Some(item) = state.next_return(tid, false) {
                match item {
                    Return::Reply(incoming) => {
                        if let Some(via) = via {
                            engine.learn_route(&mut state, tid, handle, via);
                        }
                        engine.unlock(state);
                        return Ok(Received { inner, place: Place::Buffer(Box::new(incoming)) });
                    }
                    Return::Bare(command @ (BR_FAILED_REPLY | BR_DEAD_REPLY | BR_FROZEN_REPLY)) => {
                        let errno = -state.thread(tid).error.param;
                        engine.unlock(state);
                        return Err(failure(command, errno));
                    }
                    item => state = self.attend(state, item),
                }
            }
        }
    }

    /// A one-way transaction: returns when the target has it or will have it.
    pub fn one_way(&self, handle: &Handle, code: u32, parcel: &Parcel) -> Result<(), CallError> {
        self.check(handle, parcel)?;
        let tid = tid();
        self.send(tid, Target::Handle(handle.number), code, TF_ONE_WAY, Ok(parcel));
        let engine = &self.inner.engine;
        let mut state = engine.lock();
        let mut result = Ok(());
        while let Some(item) = state.next_return(tid, false) {
            match item {
                Return::Bare(command @ (BR_FAILED_REPLY | BR_DEAD_REPLY)) => {
                    result = Err(failure(command, -state.thread(tid).error.param));
                }
                item => state = self.attend(state, item),
            }
        }
        engine.unlock(state);
        result
    }

    fn check(&self, handle: &Handle, parcel: &Parcel) -> Result<(), CallError> {
        self.check_handle(handle)?;
        parcel.check_owner(&self.inner).map_err(CallError::Failed)
    }

    fn check_handle(&self, handle: &Handle) -> Result<(), CallError> {
        if self.inner.engine.is_closed() {
            return Err(CallError::Failed(Errno::BADF));
        }
        thread_end::remember(&self.inner.engine);
        let ours = Arc::ptr_eq(&handle.inner, &self.inner);
        if ours { Ok(()) } else { Err(CallError::Failed(Errno::INVAL)) }
    }

    /// Serves on this thread, with every other one that serves, until the process is closed.
    /// Returns the reason: `EBADF` after [`Process::close`].
    pub fn serve(&self) -> Errno {
        let tid = tid();
        let engine = &self.inner.engine;
        let mut looper = Looper { process: self, seats: Seats::new() };
        let mut state = engine.lock();
        state.enter_looper(tid);
        state.thread(tid).return_once = false;
        loop {
            let process_work = state.takes_process_work(tid);
            let server: &mut dyn Server = &mut looper;
            state = match engine.await_work(state, tid, process_work, false, Some(server)) {
                Ok(state) => state,
                Err(Errno::INTR) => engine.lock(),
                Err(errno) => {
                    engine.forget_thread(tid);
                    return errno;
                }
            };
            while let Some(item) = state.next_return(tid, process_work) {
                looper.learn(&state, &item);
                state = self.attend(state, item);
            }
        }
    }

    /// Calls `recipient` once when the handle's owner is gone; soon, if it is already. It runs on a
    /// thread that serves. It is forgotten if the process drops its last handle to the object.
    pub fn link_to_death(&self, handle: &Handle, recipient: impl FnOnce() + Send + 'static) {
        let engine = &self.inner.engine;
        thread_end::remember(engine);
        let mut state = engine.lock();
        let mut recipients = lock(&self.inner.recipients);
        let cookie = state.references.get(handle.number).and_then(|r| r.death).map(|d| d.cookie);
        if let Some(waiting) = cookie.and_then(|cookie| recipients.get_mut(&cookie)) {
            waiting.push(Box::new(recipient));
            return;
        }
        // A handle has one notice: one that has been told makes way for the next.
        if let Some(told) = cookie {
            state.clear_death(tid(), handle.number, told);
        }
        let cookie = state.next_number();
        recipients.insert(cookie, vec![Box::new(recipient)]);
        state.request_death(handle.number, cookie);
        drop(recipients);
        engine.unlock(state);
    }

    /// Ends the process's part: calls under way are dead, new ones fail with `EBADF`, threads that
    /// serve return.
    pub fn close(&self) {
        self.inner.engine.close();
    }

    fn send(
        &self,
        tid: Tid,
        target: Target,
        code: u32,
        flags: u32,
        parcel: Result<&Parcel, Errno>,
    ) {
        let mut copy = Vec::new();
        let outgoing = parcel.and_then(|parcel| {
            parcel.check_owner(&self.inner)?;
            let mut sent = parcel::Sent::default();
            let mut data = &parcel.data[..];
            if parcel.objects.is_some() {
                copy.extend_from_slice(data);
                sent = parcel::send(&mut copy, parcel.offsets(), 0, |_, _| Err(Errno::FAULT));
                data = &copy;
            }
            if data.len() > MAX_PAYLOAD_BYTES {
                return Err(Errno::NOSPC);
            }
            let (data, offsets) = (Data::Bytes(data), parcel.offsets());
            Ok(Outgoing { code, flags, data, offsets, sent })
        });
        let sizes = parcel.map_or((0, 0), |parcel| {
            (parcel.data.len() as u64, size_of_val(parcel.offsets()) as u64)
        });
        self.inner.engine.send(tid, target, flags, sizes, outgoing);
    }

    /// Deals with what is no answer: serves, acknowledges, tells recipients.
    fn attend<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        item: Return,
    ) -> MutexGuard<'a, State> {
        let engine = &self.inner.engine;
        match item {
            Return::Transaction(incoming, (ptr, _)) => {
                engine.unlock(state);
                self.serve_one(incoming, ptr);
                engine.lock()
            }
            Return::Node(news) => {
                let (ptr, cookie) = news.subject;
                for command in news.returns {
                    match command {
                        BR_ACQUIRE => state.acknowledge(ptr, cookie, Strength::Strong),
                        BR_INCREFS => state.acknowledge(ptr, cookie, Strength::Weak),
                        _ => {}
                    }
                }
                state
            }
            Return::Cookie(BR_DEAD_BINDER, cookie) => {
                state.death_done(tid(), cookie);
                engine.unlock(state);
                let told = lock(&self.inner.recipients).remove(&cookie);
                for recipient in told.unwrap_or_default() {
                    caught(recipient);
                }
                engine.lock()
            }
            // Replies are taken by the call that they answer.
            Return::Reply(_)
            | Return::Bare(_)
            | Return::Cookie(..)
            | Return::Frozen(..)
            | Return::Nothing => state,
        }
    }

    fn serve_one(&self, incoming: Incoming, ptr: u64) {
        let two_way = incoming.flags & TF_ONE_WAY == 0;
        let handler = read(&self.inner.objects).get(&ptr).cloned();
        let received = Received { inner: &self.inner, place: Place::Buffer(Box::new(incoming)) };
        let request = Request { received };
        let answer = match handler {
            Some(handler) => handle(&handler, &request),
            None => Err(Errno::NOENT),
        };
        drop(request);
        if two_way {
            self.reply(&answer);
        }
    }

    fn reply(&self, answer: &Result<Parcel, Errno>) {
        self.send(tid(), Target::Reply, 0, 0, answer.as_ref().map_err(|errno| *errno));
    }
}

fn handle(handler: &Arc<Handler>, request: &Request<'_>) -> Result<Parcel, Errno> {
    while_serving(|| caught(|| handler(request))).unwrap_or(Err(Errno::FAULT))
}

/// A thread that serves.
struct Looper<'a> {
    process: &'a Process,
    seats: Seats<Arc<Handler>>,
}

impl Looper<'_> {
    fn learn(&mut self, state: &State, item: &Return) {
        let Return::Transaction(incoming, (ptr, _)) = item else { return };
        let inner = &self.process.inner;
        if let Some(handler) = read(&inner.objects).get(ptr) {
            self.seats.learn(&inner.engine, state, incoming, handler.clone());
        }
    }
}

impl Server for Looper<'_> {
    fn forget_stale(&mut self) {
        self.seats.forget_stale(&self.process.inner.engine);
    }

    fn serve_next(&mut self, any_work: u32) -> bool {
        let inner = &self.process.inner;
        let taken = self.seats.take(&inner.engine, any_work);
        let Some((taken, request)) = taken else { return false };
        let place = Place::Here(request);
        let answer = handle(taken.object, &Request { received: Received { inner, place } });
        let answered = match &answer {
            Ok(parcel) if parcel.objects.is_none() && parcel.data.len() <= INLINE_BYTES => {
                taken.answer(&inner.engine, &parcel.data)
            }
            _ => taken.give_up(&inner.engine),
        };
        if answered == Answered::No {
            self.process.reply(&answer);
        }
        answered == Answered::Yes
    }
}

/// Runs the program's code: a panic, which the panic hook has told of, must not leave a caller
/// without an answer nor the pool with a looper that is gone.
fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    // AssertUnwindSafe: what the body shares with others is the program's, which chose locks or not.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    result.map_err(std::mem::forget).ok()
}

fn failure(command: u32, errno: i32) -> CallError {
    match command {
        BR_DEAD_REPLY => CallError::Dead,
        BR_FROZEN_REPLY => CallError::Frozen,
        _ => CallError::Failed(Errno::from_raw_os_error(errno.clamp(1, 4095))),
    }
}

impl Received<'_> {
    /// The bytes.
    pub fn data(&self) -> &[u8] {
        match &self.place {
            // SAFETY: the buffer is this value's until it is dropped, and the engine writes to no
            // buffer that has been delivered; peers never map the receive buffer.
            Place::Buffer(incoming) => unsafe {
                self.inner.engine.memory.bytes_at(incoming.buffer, incoming.sizes.0)
            },
            Place::Here(inline) => inline.data(),
        }
    }

    /// `TF_*`.
    pub fn flags(&self) -> u32 {
        match &self.place {
            Place::Buffer(incoming) => incoming.flags,
            Place::Here(inline) => inline.flags,
        }
    }

    fn object(&self, index: usize) -> Option<FlatObject> {
        let Place::Buffer(incoming) = &self.place else { return None };
        let (data_bytes, offsets_bytes) = incoming.sizes;
        if index >= offsets_bytes / 8 {
            return None;
        }
        let at = incoming.buffer + data_bytes.next_multiple_of(8) + index * 8;
        let mut offset = [0; 8];
        self.inner.engine.memory.read(at, &mut offset);
        let offset = u64::from_ne_bytes(offset) as usize;
        let object = self.data().get(offset..offset + size_of::<FlatObject>())?;
        Some(bytemuck::pod_read_unaligned(object))
    }

    /// The object with this index as a reference to another process's. `None` if it is something
    /// else.
    pub fn handle(&self, index: usize) -> Option<Handle> {
        let object = self.object(index).filter(|object| object.kind == BINDER_TYPE_HANDLE)?;
        let number = object.binder as u32;
        self.inner
            .engine
            .lock()
            .increase(number, Strength::Strong)
            .then(|| Handle { inner: Arc::clone(self.inner), number })
    }

    /// The object with this index as one of this process's own, come home.
    pub fn own_object(&self, index: usize) -> Option<Object> {
        let object = self.object(index).filter(|object| object.kind == BINDER_TYPE_BINDER)?;
        Some(Object { ptr: object.binder })
    }

    /// A duplicate of the descriptor with this index.
    pub fn fd(&self, index: usize) -> Option<OwnedFd> {
        let object = self.object(index).filter(|object| object.kind == BINDER_TYPE_FD)?;
        // SAFETY: installed for this buffer and open until it is dropped.
        let fd = unsafe { BorrowedFd::borrow_raw(object.binder as i32) };
        rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()
    }
}

impl Drop for Received<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Place::Buffer(incoming) = &self.place {
            self.free(incoming);
        }
    }
}

impl Received<'_> {
    fn free(&self, incoming: &Incoming) {
        let engine = &self.inner.engine;
        let mut fds = Vec::new();
        if incoming.sizes.1 > 0 {
            let objects = (0..incoming.sizes.1 / 8).filter_map(|index| self.object(index));
            fds.extend(objects.filter(|o| o.kind == BINDER_TYPE_FD).map(|o| o.binder as i32));
        }
        let mut state = engine.lock();
        if let Some((offset, bytes)) = state.free(Some(incoming.buffer), 0) {
            engine.memory.zero(offset, bytes);
        }
        state.close_fds(fds);
        engine.unlock(state);
    }
}

impl Request<'_> {
    /// What is asked.
    pub fn code(&self) -> u32 {
        match &self.received.place {
            Place::Buffer(incoming) => incoming.code,
            Place::Here(inline) => inline.code,
        }
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        self.received.data()
    }

    /// The caller's pid, 0 of a one-way transaction, and effective user id.
    pub fn sender(&self) -> (u32, u32) {
        match &self.received.place {
            Place::Buffer(incoming) => incoming.sender,
            Place::Here(inline) => inline.sender,
        }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        self.inner.engine.lock().increase(self.number, Strength::Strong);
        Handle { inner: Arc::clone(&self.inner), number: self.number }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.number)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.inner.engine.lock();
        state.decrease(self.number, Strength::Strong);
        self.inner.engine.unlock(state);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.close();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}
