//! How a call ends: by a reply, by an error, by its peer's death.

use super::{Arrival, Incoming, Received, Room, Verdict};
use crate::state::State;
use crate::state::thread::{Calling, Frame};
use crate::state::work::{Queue, Tid, Work};
use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::lane::{Kind, Message};
use baton_abi::uapi::*;
use rustix::io::Errno;

impl State {
    /// Takes room for a reply to this thread's innermost call.
    pub fn admit_reply(&mut self, arrival: &Arrival<'_>) -> Result<Room, Verdict> {
        if !self.has_ticket(arrival) {
            return Err(self.missing(arrival.message));
        }
        self.take_room(arrival.message, None, None)
    }

    /// The reply lies in its buffer, complete.
    pub fn answered(&mut self, tid: Tid, message: &Message, room: Room, contents: Received) {
        self.fill(room, message, contents, None);
        let peer = self.thread(tid).calls_on().map_or(ProcessId::BROKER, |calling| calling.peer);
        self.pop_call(tid);
        let incoming = Incoming {
            buffer: room.buffer,
            peer,
            node: None,
            code: 0,
            flags: message.flags,
            sizes: (message.data_bytes as usize, message.offsets_bytes as usize),
            sender: (0, 0),
            label: None,
            serving: None,
        };
        self.push(Queue::Thread(tid), Work::Reply(incoming));
    }

    /// The call was refused before it was taken in: it never was complete.
    pub fn never_sent(&mut self, tid: Tid) {
        self.thread(tid).todo.take_if(|work| matches!(work, Work::Complete(_)));
    }

    /// The call has failed at the other end.
    pub fn answered_with(&mut self, tid: Tid, kind: Kind, errno: i32) {
        self.pop_call(tid);
        let command = match kind {
            Kind::Dead => BR_DEAD_REPLY,
            Kind::Frozen => BR_FROZEN_REPLY,
            _ => BR_FAILED_REPLY,
        };
        let thread = self.thread(tid);
        thread.error.command = command;
        thread.error.param = errno;
        self.push(Queue::Thread(tid), Work::Error(command));
    }

    fn pop_call(&mut self, tid: Tid) {
        if let Some(Frame::Calling(calling)) = self.thread(tid).stack.pop() {
            self.tokens.remove(&calling.token);
            self.end_sending(calling.handle);
        }
    }

    /// Calls to a process that is gone fail; one that is not innermost fails when it becomes so.
    pub(in crate::state) fn fail_calls(&mut self, process: ProcessId) {
        self.fail_calls_if(|calling| calling.peer == process);
    }

    /// Calls on a channel that has ended fail.
    pub fn fail_channel(&mut self, channel: ChannelId) {
        self.fail_calls_if(|calling| calling.via.channel == channel);
    }

    fn fail_calls_if(&mut self, lost: impl Fn(&Calling) -> bool) {
        let mut tids: Vec<Tid> = self.threads.iter().map(|(tid, _)| tid).collect();
        tids.sort_unstable();
        for tid in tids {
            for frame in &mut self.thread(tid).stack {
                if let Frame::Calling(calling) = frame
                    && lost(calling)
                {
                    calling.dead = true;
                }
            }
            self.settle(tid);
        }
    }

    pub(in crate::state) fn settle(&mut self, tid: Tid) {
        if self.thread(tid).calls_on().is_some_and(|calling| calling.dead) {
            self.answered_with(tid, Kind::Dead, -Errno::SRCH.raw_os_error());
        }
    }
}
