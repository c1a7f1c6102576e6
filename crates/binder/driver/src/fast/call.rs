//! A call by the fast path.

use super::local::{self, Local, Route};
use super::own_lane::Inside;
use super::receiver::{Plain, Receiver, is_plain};
use super::serve::DATA_AT;
use crate::channel::payload::Payload;
use crate::channel::{Channel, INLINE_BYTES, Lane, Progress};
use crate::engine::Engine;
use crate::engine::in_flight::InFlight;
use crate::sys::clock::stamp;
use crate::sys::token;
use baton_abi::lane::{ChainEntry, Kind, Message, status};
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use baton_state::State;
use baton_state::buffer::allocation_bytes;
use baton_state::thread::Waiting;
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use bytemuck::bytes_of;
use std::time::Instant;

/// How a call on the fast path ended.
pub enum Outcome {
    /// It has been answered.
    Answered,
    /// The call is the state's: the thread waits for the answer there. With the result of its last
    /// wait.
    Adopted(Result<Seen, Wait>),
    /// The call was not made.
    No,
}

/// How a call by a thread that has entered ended.
enum Made {
    Answered,
    /// It has been posted, and has no plain answer. With the result of the last wait.
    Unanswered(Result<Seen, Wait>),
    NotAtAll,
}

/// The longest payload that is sent without a look at the target's room. The fast path does not use
/// that room, but a payload that is too large for a process is too large for its threads.
const UNCOUNTED_BYTES: usize = 128;

fn has_room(channel: &Channel, bytes: usize) -> bool {
    let free = || channel.status_word(status::LARGEST_FREE) as usize;
    bytes <= UNCOUNTED_BYTES || allocation_bytes(bytes, 0, 0, 0) <= free()
}

/// The state has taken the call over, and the lane with it.
#[cold]
fn leave(local: &mut Local, handle: u32, payload: Payload<'_>) {
    match payload {
        Payload::Bytes(_) | Payload::Program(_) => local.leave_lane(handle),
        Payload::Loan(loan) => loan.leave(),
    }
}

impl Engine {
    /// Calls along the route that the thread remembers for this handle, and waits for the answer. A
    /// plain answer goes to `receiver`. Past the deadline the call is the state's, which can give
    /// it up.
    #[inline(always)]
    pub fn call_fast(
        &self,
        handle: u32,
        named: (u32, u32),
        payload: Payload<'_>,
        deadline: Option<Instant>,
        receiver: &mut impl Receiver,
    ) -> Outcome {
        if payload.bytes() > INLINE_BYTES || local::is_serving() {
            return Outcome::No;
        }
        let call = |local: &mut Local| {
            Some(self.call_by(local, handle, named, payload, deadline, receiver))
        };
        local::with(self, call).unwrap_or(Outcome::No)
    }

    #[inline(always)]
    fn call_by(
        &self,
        local: &mut Local,
        handle: u32,
        named: (u32, u32),
        payload: Payload<'_>,
        deadline: Option<Instant>,
        receiver: &mut impl Receiver,
    ) -> Outcome {
        // A child of fork has no events page, and no route either.
        let way = local.way(handle).filter(|_| !self.broker.has_events());
        let outcome = way.map(|way| self.call_on(way, named, payload, deadline, receiver));
        match outcome {
            Some(Outcome::Answered) => {}
            Some(Outcome::Adopted(_)) => leave(local, handle, payload),
            Some(Outcome::No) | None => local.forget_stale(self),
        }
        outcome.unwrap_or(Outcome::No)
    }

    /// Calls along a route that may be stale. If the state takes the call over, it has the lane.
    #[inline(always)]
    fn call_on(
        &self,
        (in_flight, route): (&InFlight, &Route),
        named: (u32, u32),
        payload: Payload<'_>,
        deadline: Option<Instant>,
        receiver: &mut impl Receiver,
    ) -> Outcome {
        let own = route.lane.via();
        let via = match payload {
            Payload::Bytes(_) | Payload::Program(_) => Some(own),
            Payload::Loan(loan) => loan.plain_lane(own.channel),
        };
        let (Some(via), Ok(token)) = (via, token::next()) else { return Outcome::No };
        // Before another thread can take the operation over, and clears this.
        self.page.set_open(&in_flight.slot, true);
        let inside = route.lane.enter(&self.operations, in_flight, via.lane, (route.handle, token));
        let made = match &inside {
            Some(inside) => self.call_inside(
                inside,
                (in_flight, route),
                via.lane,
                token,
                named,
                payload,
                deadline,
                receiver,
            ),
            None => Made::NotAtAll,
        };
        let seen = match made {
            Made::Answered => return Outcome::Answered,
            Made::Unanswered(seen) => {
                self.hand_over(in_flight);
                seen
            }
            Made::NotAtAll if self.turn_back(in_flight, via) => return Outcome::No,
            Made::NotAtAll => Ok(Seen::Nudge),
        };
        // Only once the state has the call.
        drop(inside);
        Outcome::Adopted(seen)
    }

    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "inlined: what is put together is put into memory"
    )]
    fn call_inside(
        &self,
        inside: &Inside<'_>,
        (in_flight, route): (&InFlight, &Route),
        number: u32,
        token: u64,
        (code, flags): (u32, u32),
        payload: Payload<'_>,
        deadline: Option<Instant>,
        receiver: &mut impl Receiver,
    ) -> Made {
        let (channel, own) = inside.channel();
        let lane = match payload {
            Payload::Bytes(_) | Payload::Program(_) => own,
            Payload::Loan(loan) => loan.areas(),
        };
        if channel.status_word(status::FROZEN) != 0 || !has_room(channel, payload.bytes()) {
            return Made::NotAtAll;
        }
        channel.begin_lending(number);
        // The point of no return.
        let request = Message {
            kind: Kind::Request as u32,
            node: route.node.0,
            code,
            flags,
            data_bytes: payload.bytes() as u32,
            chain: 1,
            param: route.nice,
            stamp: stamp(self.broker.stamps),
            ..Message::default()
        };
        channel.show_nice(number as usize, route.nice);
        let policy = &route.lane.policy;
        policy.next(&self.pool.settings, channel, number);
        let caller = ChainEntry { process: self.identity.process.0, token };
        let area = lane.outgoing();
        area.write(size_of::<Message>(), bytes_of(&caller));
        if !matches!(payload, Payload::Loan(_)) {
            payload.copy_to(area, DATA_AT);
        }
        let reader = lane.post(&request, |_| {});
        channel.tell_of_request(number as usize, reader, false);
        let is_there = || (!lane.inbox().is_empty()).then_some(request.stamp);
        if !policy.lets_by(self.broker.stamps, channel, number, is_there) {
            let seen = policy.await_answer_by(&self.pool.settings, channel, number, lane, deadline);
            if seen != Ok(Seen::Message) {
                return Made::Unanswered(seen);
            }
        }
        if !self.take_answer((in_flight, inside), lane, receiver) {
            return Made::Unanswered(Ok(Seen::Message));
        }
        channel.set_progress(number as usize, Progress::Departed);
        Made::Answered
    }

    /// The epoch has ended just now. False if the state has failed the call meanwhile, which was
    /// not posted.
    #[cold]
    fn turn_back(&self, in_flight: &InFlight, via: LaneId) -> bool {
        if in_flight.leave() {
            self.page.set_open(&in_flight.slot, false);
            return true;
        }
        self.with_state(|state| state.disown_call(in_flight.tid, via))
    }

    /// Takes the answer, if it is plain and no event of the broker has to be applied before it.
    #[inline(always)]
    fn take_answer(
        &self,
        (in_flight, inside): (&InFlight, &Inside<'_>),
        lane: Lane<'_>,
        receiver: &mut impl Receiver,
    ) -> bool {
        let message = lane.header();
        if !receiver.fits(&message)
            || !is_plain(&message, Kind::Reply, 0)
            || self.broker.has_events()
        {
            return false;
        }
        let answer = Plain { inside, message: &message, area: lane.incoming() };
        let taken = receiver.take_answer(self, &answer);
        if taken {
            self.page.set_open(&in_flight.slot, false);
            lane.inbox().clear();
        }
        taken
    }

    /// The state takes the call over: its answer is not for the fast path.
    #[cold]
    fn hand_over(&self, in_flight: &InFlight) {
        self.with_state(|state| {
            self.take_over(state, in_flight);
            in_flight.leave();
            state.set_waiting(in_flight.tid, Waiting::No);
        });
    }

    /// Remembers the route of a call that has been answered. The state has not changed since.
    pub fn learn_route(&self, state: &mut State, tid: Tid, handle: u32, via: LaneId) {
        let outermost = state.thread(tid).stack.is_empty();
        let reference = state.references.get(handle).filter(|reference| !reference.dead);
        let (Some(reference), Some(channel)) = (reference, self.channel(via.channel)) else {
            return;
        };
        // Handle 0 stands for the manager of the moment.
        let other = handle == 0 && state.manager != Some(0);
        if other || !outermost || self.is_polling() || channel.peer != reference.owner {
            return;
        }
        let node = reference.node;
        // A thread that has become a real-time one reserves a lane first.
        if !self.is_served_at_priority(&channel, via.lane) || self.in_flight().is_none() {
            return;
        }
        let _ = local::with(self, |local| {
            local.learn(self, (handle, node), &channel, via.lane);
            Some(())
        });
    }
}
