//! A call by the fast path.

use super::cell::Cell;
use super::local::{self, Route};
use super::{INLINE_BYTES, Inline, is_plain};
use crate::channel::{Channel, Lane, Progress};
use crate::clock::now_ns;
use crate::engine::Engine;
use crate::engine::loan::LoanedLane;
use crate::state::State;
use crate::state::buffer::allocation_bytes;
use crate::state::thread::Waiting;
use crate::state::transaction::Via;
use crate::state::work::Tid;
use crate::token;
use baton_abi::lane::{ChainEntry, Kind, Message, front};
use baton_shm::mailbox::Seen;
use bytemuck::bytes_of;

/// What became of a call.
pub(crate) enum Outcome {
    /// It has been answered.
    Answered(Inline),
    /// It is the state's: wait for its answer there.
    Adopted,
    /// It was not made.
    No,
}

/// What a call carries.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// Bytes to copy into the lane.
    Bytes(&'a [u8]),
    /// Bytes that are in a lane of their own.
    Loan(&'a LoanedLane),
}

impl Body<'_> {
    fn bytes(self) -> usize {
        match self {
            Body::Bytes(data) => data.len(),
            Body::Loan(loan) => loan.bytes(),
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

/// A call that may be made: all that it needs has been looked up.
struct Start<'a> {
    cell: &'a Cell,
    channel: &'a Channel,
    lane: Lane<'a>,
    via: Via,
    token: u64,
    body: Body<'a>,
}

impl Engine {
    /// Calls by the way that the thread's last call by this handle went, and waits for the answer.
    #[inline]
    pub(crate) fn call_fast(&self, handle: u32, code: u32, flags: u32, body: Body<'_>) -> Outcome {
        if body.bytes() > INLINE_BYTES || local::is_serving() || self.has_events() {
            return Outcome::No;
        }
        let outcome = local::with(self, |local| {
            let (cell, route) = local.way(handle, self.fast.gate.epoch())?;
            let channel = &*route.lane.channel.upgrade()?;
            let number = match body {
                Body::Bytes(_) => route.lane.number as usize,
                Body::Loan(loan) => loan.plain_lane(channel)?,
            };
            let via = channel.via(number);
            let lane = channel.lane(number).ok()?;
            if channel.front_word(front::FROZEN) != 0 || !has_room(channel, body.bytes()) {
                return None;
            }
            let start = Start { cell, channel, lane, via, token: token::next().ok()?, body };
            let outcome = self.call_by(&start, route, code, flags);
            if let Outcome::Adopted = outcome {
                match body {
                    Body::Bytes(_) => local.leave_lane(handle),
                    Body::Loan(loan) => loan.leave(),
                }
            }
            Some(outcome)
        });
        outcome.unwrap_or(Outcome::No)
    }

    #[inline]
    fn call_by(&self, start: &Start<'_>, route: &Route, code: u32, flags: u32) -> Outcome {
        let Start { cell, channel, via, lane, .. } = start;
        channel.set_progress(via.lane as usize, Progress::Departed);
        let by = (&self.fast.gate, route.epoch);
        // Before anyone can seize it, who takes it off again.
        self.set_open(cell, true);
        if !cell.begin_call(by, (*via, channel.peer), route.handle, start.token) {
            return self.turn_back(start);
        }
        // The point of no return.
        let (node, data_bytes) = (route.node.0, start.body.bytes() as u32);
        let (kind, stamp_ns) = (Kind::Request as u32, now_ns());
        let chain = 1;
        let request =
            Message { kind, node, code, flags, data_bytes, chain, stamp_ns, ..Message::default() };
        self.post(start, &request);
        let seen = self.await_answer(channel, via.lane, *lane);
        if seen == Ok(Seen::Message)
            && let Some(answer) = self.take_answer(start)
        {
            return Outcome::Answered(answer);
        }
        self.hand_over(cell);
        Outcome::Adopted
    }

    #[inline]
    fn post(&self, start: &Start<'_>, request: &Message) {
        let caller = ChainEntry { process: self.identity.process.0, token: start.token };
        let reader = start.lane.post(request, |area| {
            area.write(size_of::<Message>(), bytes_of(&caller));
            if let Body::Bytes(data) = start.body {
                area.write(size_of::<Message>() + size_of::<ChainEntry>(), data);
            }
        });
        start.channel.tell_of_request(start.via.lane as usize, reader, false);
    }

    /// The gate was shut just now.
    #[cold]
    fn turn_back(&self, start: &Start<'_>) -> Outcome {
        if start.cell.leave() {
            self.set_open(start.cell, false);
        } else {
            let mut state = self.lock();
            let under_way = state.disown_call(start.cell.tid, start.via);
            self.unlock(state);
            if !under_way {
                return Outcome::Adopted;
            }
        }
        Outcome::No
    }

    /// The answer, if it is as plain as the call, and nothing was to be heard before it.
    #[inline]
    fn take_answer(&self, start: &Start<'_>) -> Option<Inline> {
        let lane = start.lane;
        let message = lane.header();
        let plain = is_plain(&message, Kind::Reply, 0);
        if !plain || self.has_events() || !start.cell.leave() {
            return None;
        }
        self.set_open(start.cell, false);
        let answer = Inline::copy(&message, lane.incoming, size_of::<Message>(), (0, 0));
        lane.inbox().clear();
        Some(answer)
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
        if self.cell().is_none() {
            return;
        }
        let _ = local::with(self, |local| {
            local.learn((handle, node), &channel, via.lane, epoch);
            Some(())
        });
    }
}
