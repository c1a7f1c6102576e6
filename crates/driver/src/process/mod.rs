//! The typed API: a process that calls and serves without command buffers.
//!
//! It carries bytes and objects, and nothing of AIDL. One [`Process`] is one opened device; its
//! threads share it. Handles and parcels are of the process that made them: with another one they
//! are `EINVAL`, never some other object that has the same number there.
//!
//! A signal does not end a call: it is waited for again, as libbinder does. A transaction that has
//! been sent cannot be taken back, and its late answer must not be taken for the next one's.

mod handle;
mod lane_looper;
mod loan;
mod looper;
mod options;
mod parcel;
mod prepare;
mod received;

pub use baton_abi::sched_priority::{SchedPolicy, SchedPriority};
pub use handle::Handle;
pub use loan::Loan;
pub use options::Options;
pub use parcel::Parcel;
pub use received::{Received, Request};

use crate::device::OpenError;
use crate::engine::fast::Outcome;
use crate::engine::{Engine, tid};
use crate::payload::Payload;
use crate::priority;
use crate::send::Outgoing;
use crate::thread_end;
use baton_abi::control::Strength;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::*;
use baton_shm::lock::Lock;
use baton_state::Return;
use baton_state::parcel::Sent;
use baton_state::transaction::Target;
use baton_state::work::Tid;
use received::Place;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Size of the receive buffer, as libbinder has it.
pub const RECEIVE_BYTES: usize = (1 << 20) - 8192;

/// What serves an object: the program's code.
type Handler = Box<dyn Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync>;
type Recipient = Box<dyn FnOnce() + Send>;
type Recipients = HashMap<u64, Vec<Recipient>>;

/// One opened device.
///
/// A child of `fork` does not have it, and can open its own. There every call, and whatever else
/// says how it has ended, fails
/// with `EBADF`; `add_object` makes an object that nobody serves, and `link_to_death` is nothing;
/// what is dropped is the
/// parent's as before. A child that was forked inside of a handler must not return from that.
#[derive(Clone)]
pub struct Process {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    objects: Lock<HashMap<u64, Arc<Handler>>>,
    /// By the cookie of the one notice that a handle has.
    recipients: Lock<Recipients>,
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

/// An object of this process that can be sent and called. Only its own process knows it: in a
/// parcel of another one it is an object that nobody serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    ptr: u64,
    /// `FLAT_BINDER_FLAG_*`.
    flags: u32,
}

/// A thread of this process has got another scheduling policy, priority or nice value, or is bound
/// to other processors, by itself or by somebody: its next call is served accordingly. A thread
/// that has had them since its first call need not say so.
pub fn priority_changed() {
    crate::thread::priorities_changed();
}

/// The calling thread's priority: as it was when it first asked, after the last
/// [`priority_changed`].
pub fn own_priority() -> SchedPriority {
    priority::of_transaction(None)
}

impl Process {
    /// Opens a context at the broker that listens at `socket`, with the default [`Options`].
    pub fn open(context: &str, socket: &Path) -> Result<Process, OpenError> {
        Options::new().open(context, socket)
    }

    /// An object that `handler` serves, on whichever thread serves. It lives as long as the
    /// process. A one-way transaction's answer is dropped; an `Err` becomes a failed reply, and so
    /// does a panic (`EFAULT`), after which the thread goes on serving.
    pub fn add_object(
        &self,
        handler: impl Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
    ) -> Object {
        self.add_object_at(SchedPriority::default(), handler)
    }

    /// Like [`Process::add_object`], with a minimum priority at which the handler runs. A caller
    /// that is more urgent is served at its own; a nice value of 0 asks for nothing.
    ///
    /// The thread that serves takes the priority over in its process's own right (RLIMIT_NICE and
    /// RLIMIT_RTPRIO, or CAP_SYS_NICE), and has its own again afterwards. A thread without the
    /// right stays as it is.
    pub fn add_object_at(
        &self,
        minimum: SchedPriority,
        handler: impl Fn(&Request<'_>) -> Result<Parcel, Errno> + Send + Sync + 'static,
    ) -> Object {
        if self.inner.engine.is_inherited() {
            return Object { ptr: 0, flags: 0 };
        }
        let ptr = self.inner.engine.lock().next_number();
        self.inner.objects.lock().insert(ptr, Arc::new(Box::new(handler)));
        Object { ptr, flags: FLAT_BINDER_FLAG_ACCEPTS_FDS | minimum.node_flags() }
    }

    /// Makes an object the one that others reach by [`Process::context_manager`]. `EBUSY` if the
    /// context has a manager, `EPERM` if it belongs to another user.
    pub fn become_context_manager(&self, object: Object) -> Result<(), Errno> {
        if self.inner.engine.is_inherited() {
            return Err(Errno::BADF);
        }
        self.inner.engine.become_manager(object.ptr, 0, object.flags)
    }

    /// The context manager's object. `Dead` if there is none.
    pub fn context_manager(&self) -> Result<Handle, CallError> {
        let engine = &self.inner.engine;
        if engine.is_inherited() {
            return Err(CallError::Failed(Errno::BADF));
        }
        self.find_manager()?;
        let mut state = engine.lock();
        let number = state.manager.ok_or(CallError::Dead)?;
        state.increase_manager(Strength::Strong);
        engine.unlock(state);
        Ok(Handle { process: self.clone(), number })
    }

    fn find_manager(&self) -> Result<(), CallError> {
        self.inner.engine.find_manager().map_err(|errno| match errno {
            // No manager; no broker to ask for one.
            Errno::SRCH | Errno::CONNREFUSED => CallError::Dead,
            _ => CallError::Failed(errno),
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
        let is_plain = parcel.objects.is_none() && Arc::ptr_eq(&handle.process.inner, &self.inner);
        // The one variable that is returned: it is filled where it stays.
        let mut answer = Ok(Received::awaited(&self.inner));
        let payload = Payload::Bytes(&parcel.data);
        if !is_plain || !self.call_fast(handle.number, code, payload, &mut answer) {
            answer = self.call_by_state(handle, code, parcel);
        }
        answer
    }

    #[inline(never)]
    fn call_by_state(
        &self,
        handle: &Handle,
        code: u32,
        parcel: &Parcel,
    ) -> Result<Received<'_>, CallError> {
        self.check(handle, parcel)?;
        self.send(tid(), Target::Handle(handle.number), code, TF_ACCEPT_FDS, Ok(parcel));
        self.await_reply(tid(), handle.number)
    }

    /// Puts the answer in the place of one that is awaited. False if the call is not one for the
    /// fast path.
    #[inline(always)]
    fn call_fast<'a>(
        &'a self,
        handle: u32,
        code: u32,
        payload: Payload<'_>,
        answer: &mut Result<Received<'a>, CallError>,
    ) -> bool {
        let Ok(awaited) = answer else { return false };
        match self.inner.engine.call_fast(handle, (code, TF_ACCEPT_FDS), payload, awaited.here()) {
            Outcome::Answered => true,
            Outcome::Adopted(_) => {
                *answer = self.await_reply(tid(), handle);
                true
            }
            Outcome::No => false,
        }
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
                        return Ok(Received { inner, place: Place::Buffer(Arc::new(incoming)) });
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
        let ours = Arc::ptr_eq(&handle.process.inner, &self.inner);
        if ours { Ok(()) } else { Err(CallError::Failed(Errno::INVAL)) }
    }

    /// Calls `recipient` once when the handle's owner is gone; soon, if it is already. It runs on a
    /// thread that serves. It is forgotten if the process drops its last handle to the object.
    pub fn link_to_death(&self, handle: &Handle, recipient: impl FnOnce() + Send + 'static) {
        let engine = &self.inner.engine;
        if engine.is_inherited() {
            return;
        }
        thread_end::remember(engine);
        let mut state = engine.lock();
        let mut recipients = self.inner.recipients.lock();
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

    /// Whether the calling process is a child of `fork` of the one that has opened the device.
    pub fn is_inherited(&self) -> bool {
        self.inner.engine.is_inherited()
    }

    /// Ends the process's part: calls under way are dead, new ones fail with `EBADF`, threads that
    /// serve return. In a child of fork it does nothing.
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
            let mut sent = Sent::default();
            let mut data = &parcel.data[..];
            if parcel.objects.is_some() {
                copy.extend_from_slice(data);
                sent = baton_state::parcel::send(&mut copy, parcel.offsets(), 0, |_, _| {
                    Err(Errno::FAULT)
                });
                data = &copy;
            }
            if data.len() > MAX_PAYLOAD_BYTES {
                return Err(Errno::NOSPC);
            }
            let (data, offsets) = (Payload::Bytes(data), parcel.offsets());
            Ok(Outgoing { code, flags, data, offsets, sent })
        });
        let sizes = parcel.map_or((0, 0), |parcel| {
            (parcel.data.len() as u64, size_of_val(parcel.offsets()) as u64)
        });
        self.inner.engine.send(tid, target, flags, sizes, outgoing);
    }
}

fn failure(command: u32, errno: i32) -> CallError {
    match command {
        BR_DEAD_REPLY => CallError::Dead,
        BR_FROZEN_REPLY => CallError::Frozen,
        _ => CallError::Failed(Errno::from_raw_os_error(errno.clamp(1, 4095))),
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.close();
    }
}
