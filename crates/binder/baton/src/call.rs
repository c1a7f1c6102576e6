//! Calls: a handle's way to its object and the answer's way back.

use crate::driver::Driver;
use crate::received::Place;
use crate::{CallError, Parcel, Received};
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_abi::uapi::*;
use baton_driver::typed::{self, Outcome, Outgoing, Payload, Until, tid};
use baton_state::Return;
use baton_state::parcel::Sent;
use baton_state::transaction::Target;
use baton_state::work::Tid;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Instant;

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
        if parcel.objects.is_some() || !self.call_fast(handle, code, payload, deadline, &mut answer)
        {
            answer = self.call_by_state(handle, code, parcel, deadline);
        }
        answer
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
        deadline: Option<Instant>,
        answer: &mut Result<Received<'a>, CallError>,
    ) -> bool {
        let Ok(awaited) = answer else { return false };
        let named = (code, TF_ACCEPT_FDS);
        match self.engine.call_fast(handle, named, payload, deadline, awaited.here()) {
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
                            engine.learn_route(&mut state, tid, handle, via);
                        }
                        engine.unlock(state);
                        let place = Place::Buffer(Arc::new(incoming));
                        return Ok(Received { driver: self, place });
                    }
                    Return::Bare(command @ (BR_FAILED_REPLY | BR_DEAD_REPLY | BR_FROZEN_REPLY)) => {
                        let errno = -state.thread(tid).error.param;
                        engine.unlock(state);
                        return Err(CallError::of_reply(command, errno));
                    }
                    item => state = self.attend(state, item),
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
                item => state = self.attend(state, item),
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
