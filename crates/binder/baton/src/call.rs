//! Calls: a handle's way to its object, and the answer's way back.

use crate::driver::Driver;
use crate::error::CallError;
use crate::handle::Handle;
use crate::parcel::Parcel;
use crate::received::Received;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::*;
use baton_driver::typed::{
    self, Carries, INLINE_BYTES, Nothing, Outcome, Outgoing, Payload, References, Until, tid,
};
use baton_shm::clock::now;
use baton_state::Return;
use baton_state::parcel::{FewObjects, Sent};
use baton_state::transaction::Target;
use baton_state::work::Tid;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Handle {
    /// A two-way transaction: returns when it has been answered. Meanwhile this thread serves the
    /// transactions that the call causes back into this process.
    ///
    /// A signal does not end a call: it is waited for again, as libbinder does. The wait has no
    /// bound; see [`Handle::call_within`].
    pub fn call(&self, code: u32, parcel: &Parcel) -> Result<Received<'_>, CallError> {
        self.driver.call(self.number, code, parcel, None)
    }

    /// Like [`Handle::call`], for at most this long: then [`CallError::TimedOut`].
    ///
    /// A transaction that has been sent cannot be taken back. Its object may still serve it; the
    /// answer is freed when it comes, with its objects and descriptors, and the memory between the
    /// two processes that the call had taken is used again after that. A process has at most
    /// 1,024 calls to another one open at a time, those that were given up included: the next one
    /// fails.
    ///
    /// While this thread serves a transaction that the call has caused, or if the call goes back to
    /// a thread that waits for this one, the time-out waits, too. A caller of a real-time priority
    /// does not lend it to the server: with a looper of its own, which has the priority, it need
    /// not.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let socket = directory.path().join("broker.sock");
    /// # let _broker = baton_broker::Running::start(baton_broker::Config::at(socket.clone()))?;
    /// # use baton::{CallError, Parcel, Process};
    /// # use std::time::Duration;
    /// let server = Process::open("binder", &socket)?;
    /// server.become_context_manager(server.object(|_| Ok(Parcel::new())).add())?;
    /// // Nobody serves.
    /// let client = Process::open("binder", &socket)?;
    /// let manager = client.context_manager()?;
    /// let answer = manager.call_within(1, &Parcel::new(), Duration::from_millis(5));
    /// assert_eq!(answer.err(), Some(CallError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_within(
        &self,
        code: u32,
        parcel: &Parcel,
        longest: Duration,
    ) -> Result<Received<'_>, CallError> {
        // One that is too far ahead for the clock does not come.
        let deadline = now().checked_add(longest);
        self.driver.call(self.number, code, parcel, deadline)
    }

    /// A one-way transaction: returns when the target has it or will have it. Those of one process
    /// to one object are served one after the other.
    pub fn one_way(&self, code: u32, parcel: &Parcel) -> Result<(), CallError> {
        self.driver.one_way(self.number, code, parcel)
    }

    /// Does what the calling thread's first call by this handle would do: it opens a channel, takes
    /// a lane and, for a thread of a real-time policy, waits until the server has a looper for that
    /// lane, at most `longest`. A first call waits for it too, but shorter. If the thread's
    /// priority has changed, that is seen here.
    ///
    /// True if the server has a looper that waits for this thread alone; `baton ps` tells whether
    /// that has the thread's priority. False for an ordinary thread, for a server that does not
    /// serve yet, and for one that has no such loopers. Errors are those of [`Handle::call`].
    pub fn prepare(&self, longest: Duration) -> Result<bool, CallError> {
        self.check_open()?;
        let prepared = self.driver.engine.prepare_lane(tid(), self.number, longest);
        prepared
            .map_err(|refusal| CallError::of_reply(refusal.command, refusal.errno.raw_os_error()))
    }

    /// Ready to be called by: the manager's number has to lead to one.
    pub(crate) fn check_open(&self) -> Result<(), CallError> {
        self.driver.check_open()?;
        if self.number == 0 { self.driver.find_manager() } else { Ok(()) }
    }
}

impl Driver {
    /// A two-way transaction. With a deadline it is given up then.
    #[inline(always)]
    pub fn call(
        self: &Arc<Self>,
        handle: u32,
        code: u32,
        parcel: &Parcel,
        deadline: Option<Instant>,
    ) -> Result<Received<'_>, CallError> {
        // The one variable that is returned: it is filled where it stays.
        let mut answer = Ok(Received::awaited(self));
        let payload = Payload::Bytes(&parcel.data);
        if parcel.objects.is_some() {
            self.call_with_objects(handle, code, parcel, deadline, &mut answer);
        } else if !self.call_fast(handle, code, payload, Nothing, deadline, &mut answer) {
            answer = self.call_by_state(handle, code, parcel, deadline);
        }
        answer
    }

    #[inline(never)]
    fn call_with_objects<'a>(
        self: &'a Arc<Self>,
        handle: u32,
        code: u32,
        parcel: &Parcel,
        deadline: Option<Instant>,
        answer: &mut Result<Received<'a>, CallError>,
    ) {
        let (payload, offsets) = (Payload::Bytes(&parcel.data), parcel.offsets());
        let is_answered = self.few_objects(parcel).is_some_and(|objects| {
            let references = References { offsets, objects: &objects };
            self.call_fast(handle, code, payload, references, deadline, answer)
        });
        if !is_answered {
            *answer = self.call_by_state(handle, code, parcel, deadline);
        }
    }

    /// The objects of a parcel that may take the fast path.
    pub fn few_objects(self: &Arc<Self>, parcel: &Parcel) -> Option<FewObjects> {
        let is_short = parcel.data.len() <= INLINE_BYTES && parcel.is_of(self);
        let objects = || baton_state::parcel::few_objects(&parcel.data, parcel.offsets());
        is_short.then(objects)?
    }

    #[inline(never)]
    fn call_by_state(
        self: &Arc<Self>,
        handle: u32,
        code: u32,
        parcel: &Parcel,
        deadline: Option<Instant>,
    ) -> Result<Received<'_>, CallError> {
        self.check(parcel)?;
        self.send(tid(), Target::Handle(handle), code, TF_ACCEPT_FDS, Ok(parcel));
        self.await_reply(tid(), handle, deadline)
    }

    /// Puts the answer in the place of one that is awaited. False if the call is not one for the
    /// fast path.
    #[inline(always)]
    pub fn call_fast<'a>(
        self: &'a Arc<Self>,
        handle: u32,
        code: u32,
        payload: Payload<'_>,
        carries: impl Carries,
        deadline: Option<Instant>,
        answer: &mut Result<Received<'a>, CallError>,
    ) -> bool {
        let Ok(awaited) = answer else { return false };
        let named = (code, TF_ACCEPT_FDS);
        let here = awaited.here();
        match self.engine.call_fast(handle, named, payload, carries, deadline, here) {
            Outcome::Answered => true,
            Outcome::Adopted(_) => {
                *answer = self.await_reply(tid(), handle, deadline);
                true
            }
            Outcome::No => false,
        }
    }

    pub fn await_reply(
        self: &Arc<Self>,
        tid: Tid,
        handle: u32,
        deadline: Option<Instant>,
    ) -> Result<Received<'_>, CallError> {
        let engine = &self.engine;
        let mut until = deadline.map_or(Until::News, Until::Deadline);
        let mut state = engine.lock();
        state.thread(tid).return_once = false;
        let via = state.thread(tid).calls_on().map(|calling| calling.via);
        loop {
            state = match engine.await_work(state, tid, false, until, None) {
                Ok(state) => state,
                Err(Errno::INTR) => engine.lock(),
                Err(Errno::TIMEDOUT) => {
                    let mut state = engine.lock();
                    if state.abandon_call(tid) {
                        engine.unlock(state);
                        return Err(CallError::TimedOut);
                    }
                    // It is answered by now, or cannot be taken back.
                    until = Until::News;
                    state
                }
                Err(_) => return Err(CallError::Closed),
            };
            while let Some(item) = state.next_return(tid, false) {
                match item {
                    Return::Reply(incoming) => {
                        if let Some(via) = via {
                            engine.remember_route(&mut state, tid, handle, via);
                        }
                        engine.unlock(state);
                        return Ok(Received::in_buffer(self, incoming));
                    }
                    Return::Bare(command @ (BR_FAILED_REPLY | BR_DEAD_REPLY | BR_FROZEN_REPLY)) => {
                        let errno = -state.thread(tid).error.param;
                        engine.unlock(state);
                        return Err(CallError::of_reply(command, errno));
                    }
                    item => state = self.handle_return(state, item),
                }
            }
        }
    }

    /// A one-way transaction: returns when the target has it or will have it.
    pub fn one_way(
        self: &Arc<Self>,
        handle: u32,
        code: u32,
        parcel: &Parcel,
    ) -> Result<(), CallError> {
        self.check(parcel)?;
        let tid = tid();
        self.send(tid, Target::Handle(handle), code, TF_ONE_WAY, Ok(parcel));
        let mut state = self.engine.lock();
        let mut result = Ok(());
        while let Some(item) = state.next_return(tid, false) {
            match item {
                Return::Bare(command @ (BR_FAILED_REPLY | BR_DEAD_REPLY)) => {
                    let errno = -state.thread(tid).error.param;
                    result = Err(CallError::of_reply(command, errno));
                }
                item => state = self.handle_return(state, item),
            }
        }
        self.engine.unlock(state);
        result
    }

    fn check(self: &Arc<Self>, parcel: &Parcel) -> Result<(), CallError> {
        self.check_open()?;
        if !parcel.is_of(self) {
            return Err(CallError::ForeignHandle);
        }
        if parcel.data.len() > MAX_PAYLOAD_BYTES { Err(CallError::TooLarge) } else { Ok(()) }
    }

    /// The calling thread is about to use the engine.
    pub fn check_open(&self) -> Result<(), CallError> {
        if self.engine.is_closed() {
            return Err(CallError::Closed);
        }
        typed::remember(&self.engine);
        Ok(())
    }

    /// Has the engine know the context's manager.
    pub fn find_manager(&self) -> Result<(), CallError> {
        self.engine.find_manager().map_err(|errno| match errno {
            Errno::SRCH => CallError::NoManager,
            Errno::CONNREFUSED => CallError::BrokerGone,
            errno => CallError::Refused(errno),
        })
    }

    pub fn send(
        self: &Arc<Self>,
        tid: Tid,
        target: Target,
        code: u32,
        flags: u32,
        parcel: Result<&Parcel, Errno>,
    ) {
        let mut copy = Vec::new();
        let outgoing = parcel.and_then(|parcel| {
            if !parcel.is_of(self) {
                return Err(Errno::INVAL);
            }
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
        self.engine.send(tid, target, flags, sizes, outgoing);
    }
}
