//! A looper on the fast path: it serves calls of clients that it knows.

use super::references::{Counted, References};
use crate::channel::payload::Payload;
use crate::channel::{Channel, Lane};
use crate::engine::Engine;
use crate::engine::in_flight::{InFlight, SERVING};
use crate::sys::thread::tid;
use baton_abi::lane::{ChainEntry, Kind, Message};
use baton_abi::uapi::TF_ACCEPT_FDS;
use baton_shm::mailbox::Reader;
use baton_shm::mapping::View;
use baton_state::transaction::LaneId;

/// A request that lies in its lane.
pub struct Posted<'a> {
    /// The transaction that the request becomes when a looper takes it.
    pub(super) taken: Taken<'a>,
    pub(super) epoch: u64,
    pub(super) sender: &'a (u32, u32),
    pub(super) caller: u64,
    pub(super) message: Message,
    /// The looper is pinned to the lane, and its operation says so already.
    pub(super) is_pinned: bool,
}

/// Offset of a plain request's data in its area.
pub(super) const DATA_AT: usize = size_of::<Message>() + size_of::<ChainEntry>();

/// A transaction that has been taken in without the state.
#[derive(Clone, Copy)]
pub struct Taken<'a> {
    pub(super) in_flight: &'a InFlight,
    pub(super) channel: &'a Channel,
    pub(super) lane: Lane<'a>,
    pub(super) via: LaneId,
}

/// Whether an answer has been posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It has been posted, or its caller has left.
    Yes,
    /// The state has taken the transaction over: it is answered there.
    No,
}

impl Posted<'_> {
    /// Makes the transaction this thread's. False if the epoch has ended: then
    /// [`Posted::turn_back`].
    #[inline(always)]
    pub fn begin(&self, engine: &Engine) -> bool {
        let accepts_fds = self.message.flags & TF_ACCEPT_FDS != 0;
        let Taken { in_flight, channel, via, .. } = self.taken;
        // The mark is set first: another thread that takes the operation over clears it.
        engine.page.set_open(&in_flight.slot, true);
        if !self.is_pinned {
            in_flight.set_lane(via, channel.peer);
        }
        let revocations = (engine.operations.revocations_of(channel), self.epoch);
        let begun = in_flight.begin(SERVING, revocations, u32::from(accepts_fds), self.caller);
        if begun {
            engine.page.count_received(&in_flight.slot);
        }
        begun
    }

    /// Leaves the request on its lane.
    #[inline(always)]
    pub fn turn_back(&self, engine: &Engine) {
        // Passes the operation alone: a reference to `self` would force it into memory.
        engine.turn_back_service(self.taken.in_flight);
    }
}

impl Engine {
    #[cold]
    fn has_lost_caller(&self, channel: &Channel, via: LaneId) {
        channel.repay(channel.owed(via.lane));
        self.with_state(|state| self.caller_has_left(state, tid(), via));
    }

    #[cold]
    fn turn_back_service(&self, in_flight: &InFlight) {
        if in_flight.leave() {
            self.page.set_open(&in_flight.slot, false);
        } else {
            self.with_state(|state| state.disown_service(tid()));
        }
    }
}

impl Taken<'_> {
    /// Answers with bytes.
    #[inline(always)]
    pub fn answer(&self, engine: &Engine, data: &[u8]) -> Answered {
        if !self.leave(engine) {
            return Answered::No;
        }
        self.post(engine, data.len(), (0, 0), |area, at| area.write(at, data));
        Answered::Yes
    }

    /// Ends the operation before the answer is posted. False if the state has taken the transaction
    /// over: then nothing is posted here.
    #[inline(always)]
    pub fn leave(&self, engine: &Engine) -> bool {
        let is_ours = self.in_flight.leave();
        if is_ours {
            engine.page.set_open(&self.in_flight.slot, false);
        }
        is_ours
    }

    /// Whether the caller has left.
    pub fn has_left(&self) -> bool {
        self.lane.outbox().is_closed()
    }

    /// Posts the answer, after [`Taken::leave`].
    #[inline(always)]
    pub fn post(
        &self,
        engine: &Engine,
        bytes: usize,
        named: (u32, u32),
        body: impl FnOnce(View<'_>, usize),
    ) {
        self.channel.end_serving(self.via.lane);
        self.post_on(engine, bytes, named, body);
    }

    /// Like [`Taken::post`], by a pinned looper, which goes on serving the lane.
    #[inline(always)]
    pub(super) fn post_on(
        &self,
        engine: &Engine,
        bytes: usize,
        (code, flags): (u32, u32),
        body: impl FnOnce(View<'_>, usize),
    ) {
        let message = reply(bytes, (code, flags));
        let owed = self.channel.owed(self.via.lane);
        let reader = self.lane.post(&message, |area| body(area, size_of::<Message>()));
        match reader {
            Reader::Polling => self.channel.socket.ring(),
            Reader::Closed => return engine.has_lost_caller(self.channel, self.via),
            Reader::Woken | Reader::Watching | Reader::Dedicated | Reader::Elsewhere => {}
        }
        self.channel.repay(owed);
    }

    /// Posts an answer with references, after [`Taken::leave`].
    pub(super) fn post_counted(
        &self,
        engine: &Engine,
        named: (u32, u32),
        payload: Payload<'_>,
        counted: Counted<'_>,
    ) {
        self.channel.end_serving(self.via.lane);
        let message = reply(payload.bytes(), named);
        let owed = self.channel.owed(self.via.lane);
        let (reader, ahead) = counted.post(self.lane, &message, payload, &[]);
        match reader {
            Reader::Polling => self.channel.socket.ring(),
            Reader::Closed => {
                ahead.take_back(engine, engine.lock(), self.channel);
                return engine.has_lost_caller(self.channel, self.via);
            }
            Reader::Woken | Reader::Watching | Reader::Dedicated | Reader::Elsewhere => {}
        }
        self.channel.repay(owed);
    }

    /// Answers with few references among the bytes.
    pub fn answer_with_references(
        &self,
        engine: &Engine,
        data: &[u8],
        references: References<'_>,
    ) -> Answered {
        let to = (self.in_flight, self.channel);
        let Some(counted) = Counted::of_answer(engine, engine.lock(), to, references) else {
            return self.give_up(engine);
        };
        if !self.leave(engine) {
            counted.take_back(engine, self.channel);
            return Answered::No;
        }
        self.post_counted(engine, (0, 0), Payload::Bytes(data), counted);
        Answered::Yes
    }

    /// Gives the transaction to the state, because its answer is not for the fast path.
    #[cold]
    pub fn give_up(&self, engine: &Engine) -> Answered {
        engine.give_up(self.in_flight);
        Answered::No
    }
}

/// The head of a reply of so many bytes.
#[inline(always)]
fn reply(bytes: usize, (code, flags): (u32, u32)) -> Message {
    let (kind, data_bytes) = (Kind::Reply as u32, bytes as u32);
    Message { kind, code, flags, data_bytes, ..Message::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_requests_data_is_where_every_message_with_one_caller_has_it() {
        let message = Message { chain: 1, data_bytes: 8, ..Message::default() };
        let parts = message.parts().unwrap();
        assert_eq!((parts.chain_at, parts.data_at), (size_of::<Message>(), DATA_AT));
    }
}
