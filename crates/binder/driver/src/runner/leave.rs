//! Threads that leave with something open on a lane: an answer that they owe or wait for, or, where
//! the lane has turned round, several of both.
//!
//! ```text
//!   who leaves, innermost first     told at once              what comes later
//!   owes                            Dead                      nothing
//!   waits                           nobody                    the answer: its sender finds
//!                                                             the inbox closed, and its own
//!                                                             call further out on this lane
//!                                                             is dead with it
//!   waits, the answer was here      as without this half
//!   waits, a call was here          Dead, to that call        the answer
//! ```
//!
//! A lane that its client's thread has left comes back to the client once the server's thread has
//! nothing open on it either: it says so when its last answer finds the inbox closed.

use crate::channel::Channel;
use crate::channel::returns::objects_in;
use crate::engine::Engine;
use baton_abi::control::{End, TicketId};
use baton_abi::lane::{Kind, Message};
use baton_shm::mapping::View;
use baton_state::State;
use baton_state::thread::FrameKind;
use baton_state::transaction::LaneId;
use baton_state::work::Tid;

impl Engine {
    /// Closes the calls and services that a thread has left open on a lane, innermost first.
    pub(crate) fn leave_lane(&self, state: &mut State, via: LaneId, open: &[FrameKind]) {
        let Some(channel) = self.channel(via.channel) else { return };
        let Ok(lane) = channel.lane(via.lane as usize) else { return };
        let mut open = open;
        let mut owes = open[0] == FrameKind::Serving;
        if open.contains(&FrameKind::Calling) && lane.inbox().close() {
            let message = lane.header();
            self.drop_message(state, &channel, &message, lane.incoming());
            lane.inbox().clear();
            if message.kind == Kind::Request as u32 {
                owes = true;
            } else {
                open = &open[1..];
                owes = !open.is_empty();
            }
        }
        let waits = open.contains(&FrameKind::Calling);
        if !waits {
            // The lane's next caller finds an empty mailbox.
            lane.inbox().reset();
        }
        let left_too = owes && !self.answer(via, false, Kind::Dead, None, 0);
        match channel.end {
            End::Server => {
                channel.end_serving(via.lane);
                if left_too {
                    lane.outbox().give_back();
                }
            }
            End::Client if left_too || !waits => channel.renew_lane(via.lane),
            End::Client => channel.client_lanes.abandon(via.lane),
        }
    }

    /// Drops a message that no thread will take, with its references and descriptors.
    pub(crate) fn drop_message(
        &self,
        state: &mut State,
        channel: &Channel,
        message: &Message,
        area: View<'_>,
    ) {
        state.drop_ticket(channel.peer, TicketId(message.ticket));
        state.drop_carried(channel.sender(), &objects_in(message, area, 0));
        channel.drop_fds(message);
    }

    /// The caller had left when this thread posted its answer.
    pub(crate) fn caller_has_left(&self, state: &mut State, tid: Tid, via: LaneId) {
        let Some(channel) = self.channel(via.channel) else { return };
        let calling = state.thread(tid).calls_on().filter(|calling| calling.via == via).copied();
        if let Some(calling) = calling {
            state.answered_with(tid, Kind::Dead, 0);
            if calling.owns_lane {
                channel.renew_lane(via.lane);
            }
        } else if let Ok(lane) = channel.lane(via.lane as usize) {
            lane.outbox().give_back();
        }
    }
}
