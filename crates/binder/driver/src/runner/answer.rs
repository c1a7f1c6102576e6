//! Answers: this process posts them to its callers, and takes the answers to its own calls.

use super::accept::Stop;
use super::take_in::chain_in;
use crate::channel::returns::objects_in;
use crate::channel::{Channel, Lane};
use crate::engine::Engine;
use baton_abi::control::{End, ProcessId};
use baton_abi::lane::{AT_THE_DOOR, Kind, Message};
use baton_shm::mailbox::{Reader, Seen};
use baton_shm::mapping::View;
use baton_state::State;
use baton_state::transaction::{Arrival, LaneId, Recipient};
use baton_state::work::Tid;
use rustix::io::Errno;

impl Engine {
    /// Posts an error in place of a reply. `is_nested` and result as of [`Engine::post_answer`].
    pub(crate) fn answer(
        &self,
        via: LaneId,
        is_nested: bool,
        kind: Kind,
        errno: Option<Errno>,
        code: u32,
    ) -> bool {
        let param = errno.map_or(0, |errno| -errno.raw_os_error());
        let message = Message { kind: kind as u32, code, param, ..Message::default() };
        self.post_answer(via, is_nested, &message, |_| {})
    }

    /// Posts a reply, or an error in its place, to the caller on a lane. `is_nested`: the thread
    /// goes on to serve the lane, where its own call waits further out. False if the caller has
    /// left.
    pub fn post_answer(
        &self,
        via: LaneId,
        is_nested: bool,
        message: &Message,
        body: impl FnOnce(View<'_>),
    ) -> bool {
        let Some(channel) = self.channel(via.channel) else { return false };
        let Ok(lane) = channel.lane(via.lane as usize) else { return false };
        if channel.end == End::Server && !is_nested {
            channel.end_serving(via.lane);
        }
        let owed = channel.owed(via.lane);
        let reader = lane.post(message, body);
        channel.repay(owed);
        match reader {
            Reader::Polling => channel.socket.ring(),
            Reader::Closed => return false,
            Reader::Woken | Reader::Watching | Reader::Dedicated | Reader::Elsewhere => {}
        }
        true
    }

    /// Whether the thread that called on this lane has left, so that no thread waits for the
    /// answer.
    pub fn has_left(&self, via: LaneId) -> bool {
        self.channel(via.channel).is_none_or(|channel| {
            channel.lane(via.lane as usize).is_ok_and(|lane| lane.outbox().is_closed())
        })
    }

    /// Takes the answers of polling threads, which do not take them themselves. A thread that
    /// sleeps on its lane takes its own answer: no other thread may use that mailbox meanwhile.
    pub(crate) fn accept_answers(&self, state: &mut State) {
        if self.is_polling() {
            for tid in state.callers() {
                self.accept_answer(state, tid);
            }
        }
    }

    /// Takes the answers that a peer posted before its death. Their lanes are not freed: a caller
    /// may be about to sleep on its lane, and the nudge has to reach that caller.
    pub(crate) fn accept_last_words(&self, state: &mut State, peer: ProcessId) {
        for tid in state.callers_of(peer) {
            self.accept_answer_on_lane(state, tid, false);
        }
    }

    /// Takes the answer to the thread's innermost call, if it has come. False if the answer has to
    /// wait for an event. The lane is free afterwards, so only the thread itself may call this, or
    /// another thread while that one does not wait on the lane.
    pub fn accept_answer(&self, state: &mut State, tid: Tid) -> bool {
        self.accept_answer_on_lane(state, tid, true)
    }

    fn accept_answer_on_lane(&self, state: &mut State, tid: Tid, gives_lane: bool) -> bool {
        let Some(&calling) = state.thread(tid).calls_on() else { return true };
        let Some(channel) = self.channel(calling.via.channel) else {
            // The channel ended while the thread was on its way here.
            state.fail_channel(calling.via.channel);
            return true;
        };
        let Ok(areas) = channel.lane(calling.via.lane as usize) else { return true };
        if areas.inbox().look() != Seen::Message {
            return true;
        }
        let message = areas.header();
        let outcome = match Kind::from_raw(message.kind) {
            Some(Kind::Reply) => self.accept_reply(state, tid, &channel, &message, areas),
            Some(kind @ (Kind::Failed | Kind::Dead | Kind::Frozen)) => {
                areas.inbox().clear();
                self.accept_failure(state, tid, kind, &message, areas.sent());
                Ok(true)
            }
            Some(Kind::Request) => {
                self.accept_nested(state, tid, &channel, &message, areas, calling.via)
            }
            _ => Err(Stop::Violation("an answer of no kind")),
        };
        match outcome {
            Ok(over) => {
                if over && calling.owns_lane && gives_lane {
                    channel.client_lanes.give(calling.via.lane);
                }
            }
            Err(Stop::Later) => return false,
            Err(Stop::Violation(why)) => self.end_channel(state, &channel, why),
            Err(Stop::NoRoom | Stop::Gone | Stop::Refused(_)) => unreachable!("not of an answer"),
        }
        true
    }

    fn accept_failure(
        &self,
        state: &mut State,
        tid: Tid,
        kind: Kind,
        message: &Message,
        sent: Message,
    ) {
        let errno = message.param.clamp(-4095, 0);
        if message.code == AT_THE_DOOR {
            state.never_sent(tid, kind, errno.min(-1));
            let sizes = (sent.data_bytes.into(), sent.offsets_bytes.into());
            self.log_failure(state.thread(tid).error, sizes);
        } else {
            state.answered_with(tid, kind, errno);
        }
    }

    fn accept_reply(
        &self,
        state: &mut State,
        tid: Tid,
        channel: &Channel,
        message: &Message,
        areas: Lane<'_>,
    ) -> Result<bool, Stop> {
        let parts = message.parts().ok_or(Stop::Violation("impossible sizes"))?;
        let via = channel.via(0);
        let chain = chain_in(message, areas.incoming(), parts.chain_at);
        let objects = objects_in(message, areas.incoming(), 0);
        let arrival =
            Arrival { via, peer: channel.peer, message, chain, objects, lane_sender: None };
        let verdict = state.admit_reply(&arrival);
        let from = (areas.incoming(), parts.data_at);
        let copied = self.copy_in(state, &arrival, channel, verdict, from)?;
        areas.inbox().clear();
        match copied {
            Ok((room, contents)) => state.answered(tid, arrival, room, contents),
            Err((kind, errno)) => state.answered_with(tid, kind, -errno.raw_os_error()),
        }
        Ok(true)
    }

    fn accept_nested(
        &self,
        state: &mut State,
        tid: Tid,
        channel: &Channel,
        message: &Message,
        areas: Lane<'_>,
        via: LaneId,
    ) -> Result<bool, Stop> {
        let taken = self.take_in(
            state,
            channel,
            message,
            areas.incoming(),
            0,
            via,
            Recipient::Waiting(tid),
            None,
        )?;
        areas.inbox().clear();
        if let Some((kind, errno)) = taken
            && !self.answer(via, true, kind, Some(errno), AT_THE_DOOR)
        {
            self.caller_has_left(state, tid, via);
        }
        Ok(false)
    }
}
