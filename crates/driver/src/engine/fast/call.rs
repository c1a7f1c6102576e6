//! A call by the fast path.

use super::cell::Cell;
use super::local::{self, Route};
use super::{INLINE_BYTES, Inline, is_plain};
use crate::channel::{Channel, Lane, Progress};
use crate::clock::now_ns;
use crate::engine::Engine;
use crate::state::State;
use crate::state::transaction::Via;
use crate::state::work::Tid;
use baton_abi::lane::{ChainEntry, Kind, Message, front};
use baton_shm::mailbox::Seen;
use bytemuck::bytes_of;
use std::sync::Arc;

/// What became of a call.
pub(crate) enum Outcome {
    /// It has been answered.
    Answered(Inline),
    /// It is the state's: wait for its answer there.
    Adopted,
    /// It was not made.
    No,
}

/// A call that may be made: all that it needs has been looked up.
struct Start {
    cell: Arc<Cell>,
    channel: Arc<Channel>,
    via: Via,
    node: u64,
    process: u64,
    token: u64,
    epoch: u64,
}

impl Engine {
    /// Calls by the way that the thread's last call by this handle went, and waits for the answer.
    pub(crate) fn call_fast(
        &self,
        tid: Tid,
        handle: u32,
        code: u32,
        flags: u32,
        data: &[u8],
    ) -> Outcome {
        if data.len() > INLINE_BYTES || self.has_events() {
            return Outcome::No;
        }
        let Some(start) = self.find_route(handle) else { return Outcome::No };
        let Start { cell, channel, via, .. } = &start;
        let Ok(lane) = channel.lane(via.lane as usize) else {
            channel.give_lane(via.lane);
            return Outcome::No;
        };
        channel.set_progress(via.lane as usize, Progress::Departed);
        let passed = cell.begin_call(
            (&self.fast.gate, start.epoch),
            (*via, channel.peer),
            handle,
            start.token,
        );
        if !passed {
            return self.turn_back(tid, &start);
        }
        // The point of no return.
        self.count_outstanding(1);
        post(&start, lane, code, flags, data);
        let seen = self.await_answer(channel, via.lane, lane);
        if seen == Ok(Seen::Message)
            && let Some(answer) = self.take_answer(&start, lane)
        {
            return Outcome::Answered(answer);
        }
        self.hand_over(tid, cell);
        Outcome::Adopted
    }

    fn find_route(&self, handle: u32) -> Option<Start> {
        local::with(self, |local| {
            let route = local.route.as_ref().filter(|route| route.handle == handle)?;
            if local.is_serving() || route.epoch != self.fast.gate.epoch() {
                return None;
            }
            let channel = route.channel.upgrade()?;
            if channel.front_word(front::FROZEN) != 0 {
                return None;
            }
            let (node, epoch, lane) = (route.node.0, route.epoch, route.lane);
            let process = self.identity.process.0;
            let (cell, token) = (local.cell.clone()?, local.tokens.next()?);
            let via = channel.via(lane as usize);
            channel.take_this_lane(lane).then_some(Start {
                cell,
                channel,
                via,
                node,
                process,
                token,
                epoch,
            })
        })
    }

    /// The gate was shut just now.
    fn turn_back(&self, tid: Tid, start: &Start) -> Outcome {
        if !start.cell.leave() {
            let mut state = self.lock();
            if !state.disown_call(tid, start.via) {
                self.unlock(state);
                return Outcome::Adopted;
            }
            self.unlock(state);
        }
        start.channel.give_lane(start.via.lane);
        Outcome::No
    }

    /// The answer, if it is as plain as the call, and nothing was to be heard before it.
    fn take_answer(&self, start: &Start, lane: Lane<'_>) -> Option<Inline> {
        let message = lane.header();
        let plain = is_plain(&message, Kind::Reply, 0);
        if !plain || self.has_events() || !start.cell.leave() {
            return None;
        }
        self.count_outstanding(-1);
        let parts = message.parts()?;
        let answer = Inline::copy(&message, lane.map, lane.inbox + parts.data_at, (0, 0));
        lane.inbox().clear();
        start.channel.give_lane(start.via.lane);
        Some(answer)
    }

    /// What comes next is not for the fast path: the state takes over.
    fn hand_over(&self, tid: Tid, cell: &Cell) {
        let mut state = self.lock();
        self.seize(&mut state, cell);
        cell.leave();
        self.is_back(&mut state, tid);
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
        let epoch = self.fast.gate.epoch();
        let (node, lane, channel) = (reference.node, via.lane, Arc::downgrade(&channel));
        if self.cell().is_none() {
            return;
        }
        let route = Route { handle, node, channel, lane, epoch };
        let _ = local::with(self, |local| {
            local.route = Some(route);
            Some(())
        });
    }
}

fn post(start: &Start, lane: Lane<'_>, code: u32, flags: u32, data: &[u8]) {
    let message = Message {
        kind: Kind::Request as u32,
        node: start.node,
        code,
        flags,
        data_bytes: data.len() as u32,
        chain: 1,
        stamp_ns: now_ns(),
        ..Message::default()
    };
    let caller = ChainEntry { process: start.process, token: start.token };
    lane.post(&message, |map, at| {
        map.write(at + size_of::<Message>(), bytes_of(&caller));
        map.write(at + size_of::<Message>() + size_of::<ChainEntry>(), data);
    });
    let (channel, number) = (&start.channel, start.via.lane as usize);
    channel.set_ready(number);
    let woken = channel.announce(false);
    channel.set_progress(number, if woken { Progress::Expected } else { Progress::Posted });
}
