//! A call by the fast path.

use super::cell::Cell;
use super::local::{self, Local};
use super::{INLINE_BYTES, Receiver, is_plain};
use crate::channel::{Channel, Lane, Progress};
use crate::clock::stamp;
use crate::engine::Engine;
use crate::engine::loan::LoanedLane;
use crate::state::State;
use crate::state::buffer::allocation_bytes;
use crate::state::thread::Waiting;
use crate::state::transaction::Via;
use crate::state::work::Tid;
use crate::token;
use crate::user::Source;
use baton_abi::lane::{ChainEntry, Kind, Message, front};
use baton_shm::futex::Wait;
use baton_shm::mailbox::Seen;
use baton_shm::mapping::View;
use bytemuck::bytes_of;

/// What became of a call.
pub(crate) enum Outcome {
    /// It has been answered.
    Answered,
    /// It is the state's: wait for its answer there. With it how the wait for that has ended so far.
    Adopted(Result<Seen, Wait>),
    /// It was not made.
    No,
}

/// What a call carries.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// Bytes to copy into the lane.
    Bytes(&'a [u8]),
    /// Bytes of the program's memory.
    Program(Source),
    /// Bytes that are in a lane of their own.
    Loan(&'a LoanedLane),
}

/// An answer of the one shape.
pub(crate) struct Plain<'a> {
    cell: &'a Cell,
    pub message: &'a Message,
    /// Where it lies, its data behind the header.
    pub area: View<'a>,
}

impl Plain<'_> {
    /// The call is over, unless this is false: then it is the state's.
    #[inline(always)]
    pub fn leave(&self) -> bool {
        self.cell.leave()
    }
}

impl Body<'_> {
    fn bytes(self) -> usize {
        match self {
            Body::Bytes(data) => data.len(),
            Body::Program(source) => source.bytes(),
            Body::Loan(loan) => loan.bytes(),
        }
    }

    /// Behind the header.
    #[inline(always)]
    fn write(self, area: View<'_>, caller: &ChainEntry) {
        area.write(size_of::<Message>(), bytes_of(caller));
        let at = size_of::<Message>() + size_of::<ChainEntry>();
        match self {
            Body::Bytes(data) => area.write(at, data),
            Body::Program(source) => source.copy_to(area, at),
            Body::Loan(_) => {}
        }
    }
}

/// Longest payload of which nobody asks whether its target has room: that is not where it goes to lie,
/// but what is too large for a process to receive is too large for its threads.
const UNCOUNTED_BYTES: usize = 128;

fn has_room(channel: &Channel, bytes: usize) -> bool {
    let free = || channel.front_word(front::LARGEST_FREE) as usize;
    bytes <= UNCOUNTED_BYTES || allocation_bytes(bytes, 0, 0, 0) <= free()
}

/// The state has the call, and the lane with it.
#[cold]
fn leave(local: &mut Local, handle: u32, body: Body<'_>, seen: Result<Seen, Wait>) -> Outcome {
    match body {
        Body::Bytes(_) | Body::Program(_) => local.leave_lane(handle),
        Body::Loan(loan) => loan.leave(),
    }
    Outcome::Adopted(seen)
}

impl Engine {
    /// Calls by the way that the thread's last call by this handle went, and waits for the answer.
    /// An answer of the one shape goes to `receiver`.
    #[inline(always)]
    pub(crate) fn call_fast(
        &self,
        handle: u32,
        named: (u32, u32),
        body: Body<'_>,
        receiver: &mut impl Receiver,
    ) -> Outcome {
        if body.bytes() > INLINE_BYTES || local::is_serving() || self.has_events() {
            return Outcome::No;
        }
        let call = |local: &mut Local| self.call_by(local, handle, named, body, receiver);
        local::with(self, call).unwrap_or(Outcome::No)
    }

    #[inline(always)]
    fn call_by(
        &self,
        local: &mut Local,
        handle: u32,
        (code, flags): (u32, u32),
        body: Body<'_>,
        receiver: &mut impl Receiver,
    ) -> Option<Outcome> {
        let (cell, route) = local.way(handle, self.fast.gate.epoch())?;
        let channel = &*route.lane.channel.upgrade()?;
        let number = match body {
            Body::Bytes(_) | Body::Program(_) => route.lane.number as usize,
            Body::Loan(loan) => loan.plain_lane(channel)?,
        };
        let (via, lane) = (channel.via(number), channel.lane(number).ok()?);
        if channel.front_word(front::FROZEN) != 0 || !has_room(channel, body.bytes()) {
            return None;
        }
        let token = token::next().ok()?;
        channel.set_progress(number, Progress::Departed);
        // Before anyone can seize it, who takes it off again.
        self.set_open(cell, true);
        if !cell.begin_call((&self.fast.gate, route.epoch), (via, channel.peer), handle, token) {
            return Some(match self.turn_back(cell, via) {
                true => Outcome::No,
                false => leave(local, handle, body, Ok(Seen::Nudge)),
            });
        }
        channel.begin_lending(via.lane);
        // The point of no return.
        let request = Message {
            kind: Kind::Request as u32,
            node: route.node.0,
            code,
            flags,
            data_bytes: body.bytes() as u32,
            chain: 1,
            param: route.nice,
            stamp: stamp(self.broker.stamps),
            ..Message::default()
        };
        channel.show_nice(number, route.nice);
        let caller = ChainEntry { process: self.identity.process.0, token };
        body.write(lane.outgoing, &caller);
        let reader = lane.post(&request, |_| {});
        channel.tell_of_request(number, reader, false);
        let seen = self.await_answer(channel, via.lane, lane);
        if seen == Ok(Seen::Message) && self.take_answer(cell, lane, receiver) {
            return Some(Outcome::Answered);
        }
        self.hand_over(cell);
        Some(leave(local, handle, body, seen))
    }

    /// The gate was shut just now. False if the call that was not made has failed meanwhile.
    #[cold]
    fn turn_back(&self, cell: &Cell, via: Via) -> bool {
        if cell.leave() {
            self.set_open(cell, false);
            return true;
        }
        let mut state = self.lock();
        let under_way = state.disown_call(cell.tid, via);
        self.unlock(state);
        under_way
    }

    /// Takes the answer, if it is as plain as the call, and nothing was to be heard before it.
    #[inline(always)]
    fn take_answer(&self, cell: &Cell, lane: Lane<'_>, receiver: &mut impl Receiver) -> bool {
        let message = lane.header();
        if !is_plain(&message, Kind::Reply, 0) || self.has_events() {
            return false;
        }
        let answer = Plain { cell, message: &message, area: lane.incoming };
        let taken = receiver.take_answer(self, &answer);
        if taken {
            self.set_open(cell, false);
            lane.inbox().clear();
        }
        taken
    }

    /// What comes next is not for the fast path: the state takes over.
    #[cold]
    fn hand_over(&self, cell: &Cell) {
        let mut state = self.lock();
        self.seize(&mut state, cell);
        cell.leave();
        state.set_waiting(cell.tid, Waiting::No);
        self.unlock(state);
    }

    /// Remembers the way of a call that has been answered. The state has not changed since.
    pub(crate) fn learn_route(&self, state: &mut State, tid: Tid, handle: u32, via: Via) {
        let outermost = state.thread(tid).stack.is_empty();
        let reference = state.references.get(handle).filter(|reference| !reference.dead);
        let (Some(reference), Some(channel)) = (reference, self.channel(via.channel)) else {
            return;
        };
        // Number 0 is whoever manages the context.
        let other = handle == 0 && state.manager != Some(0);
        if other || !outermost || self.is_polling() || channel.peer != reference.owner {
            return;
        }
        let (epoch, node) = (self.fast.gate.epoch(), reference.node);
        // A thread that has become a real-time one takes a lane of its own first.
        if !self.is_served_by_rank(&channel, via.lane) || self.cell().is_none() {
            return;
        }
        let _ = local::with(self, |local| {
            local.learn((handle, node), &channel, via.lane, epoch);
            Some(())
        });
    }
}
