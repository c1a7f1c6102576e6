//! How a call ends: by a reply, by an error, by its peer's death.

use super::{Arrival, Incoming, LaneId, Received, Refusal, Room, Verdict};
use crate::thread::{Calling, Frame, Half, Thread, Waiting};
use crate::work::{Queue, Tid, Turn, Work};
use crate::{Effect, State};
use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::lane::{Kind, Message};
use baton_abi::uapi::*;
use rustix::io::Errno;

impl State {
    /// Takes room for a reply to this thread's innermost call.
    pub fn admit_reply(&mut self, arrival: &Arrival<'_>) -> Result<Room, Verdict> {
        if !self.has_ticket(arrival) {
            return Err(self.missing(arrival));
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
            code: message.code,
            flags: message.flags,
            sizes: (message.data_bytes as usize, message.offsets_bytes as usize),
            sender: (0, self.user_of(peer)),
            label: None,
            min_priority: None,
            turn: Turn::default(),
            serving: None,
        };
        self.unread_replies += 1;
        self.push(Queue::Thread(tid), Work::Reply(incoming));
    }

    /// The call was refused before it was taken in: it never was complete.
    pub fn never_sent(&mut self, tid: Tid, kind: Kind, errno: i32) {
        self.thread(tid).todo.take_last_if(|work| matches!(work, Work::Complete(_)));
        self.pop_call(tid);
        let errno = Errno::from_raw_os_error(-errno);
        self.refused(tid, Refusal { command: refusal_command(kind), errno });
        self.wake(tid);
    }

    /// The call has failed at the other end. Of who has left or died there is no errno (0): that is
    /// no failure to be asked for.
    pub fn answered_with(&mut self, tid: Tid, kind: Kind, errno: i32) {
        self.pop_call(tid);
        let command = refusal_command(kind);
        let error = &mut self.thread(tid).error;
        // What has failed since the call stays to be asked for.
        if error.command == 0 && errno != 0 {
            (error.command, error.param) = (command, errno);
        }
        // As in the kernel, of one at a time.
        if !self.thread(tid).todo.any(|work| matches!(work, Work::Error(_))) {
            self.push(Queue::Thread(tid), Work::Error(command));
        }
    }

    /// The calls under way by a handle: whose, the level of its stack, and the lane of one that may
    /// not have been taken in yet. What a thread has called further out was, or it would not serve.
    pub fn callers_by(&self, handle: u32) -> Vec<(Tid, usize, Option<LaneId>)> {
        let calls = |(tid, thread): (Tid, &Thread)| {
            let innermost = thread.stack.len().saturating_sub(1);
            let of = move |(level, frame): (usize, &Frame)| match frame {
                Frame::Calling(calling) if calling.handle == Some(handle) => {
                    Some((tid, level, (level == innermost).then_some(calling.via)))
                }
                _ => None,
            };
            thread.stack.iter().enumerate().filter_map(of).collect::<Vec<_>>()
        };
        self.threads.iter().flat_map(calls).collect()
    }

    /// A call was taken in: the right to call is needed no longer.
    pub fn taken(&mut self, tid: Tid, level: usize) {
        if let Some(Frame::Calling(calling)) = self.thread(tid).stack.get_mut(level) {
            let handle = calling.handle.take();
            self.end_sending(handle);
        }
    }

    /// Gives up the thread's innermost call: nobody waits for its answer any more. False if it has
    /// been answered, or lies on a lane that has turned round, which the thread cannot leave alone.
    pub fn abandon_call(&mut self, tid: Tid) -> bool {
        let Some(&calling) = self.thread(tid).calls_on().filter(|calling| calling.owns_lane) else {
            return false;
        };
        self.pop_call(tid);
        if !calling.dead {
            self.effect(Effect::Leave(calling.via, vec![Half::Calling]));
        }
        true
    }

    /// Threads outside of the driver that have not been answered.
    pub fn callers(&self) -> Vec<Tid> {
        let calls = |(_, thread): &(Tid, &Thread)| {
            thread.calls_on().is_some() && thread.waiting == Waiting::No
        };
        self.threads.iter().filter(calls).map(|(tid, _)| tid).collect()
    }

    /// Threads that a process has not answered.
    pub fn callers_of(&self, peer: ProcessId) -> Vec<Tid> {
        let calls = |(_, thread): &(Tid, &Thread)| {
            thread.calls_on().is_some_and(|calling| calling.peer == peer)
        };
        self.threads.iter().filter(calls).map(|(tid, _)| tid).collect()
    }

    pub(super) fn pop_call(&mut self, tid: Tid) {
        if let Some(Frame::Calling(calling)) = self.thread(tid).stack.pop() {
            self.tokens.remove(&calling.token);
            self.end_sending(calling.handle);
        }
    }

    /// Calls to a process that is gone fail; one that is not innermost fails when it becomes so.
    pub(crate) fn fail_calls(&mut self, process: ProcessId) {
        self.fail_calls_if(|calling| calling.peer == process);
    }

    /// Calls on a channel that has ended fail.
    pub fn fail_channel(&mut self, channel: ChannelId) {
        self.fail_calls_if(|calling| calling.via.channel == channel);
    }

    /// Calls on a channel that its server never took up fail, and the server lives: the next call
    /// may find room there.
    pub fn refuse_channel(&mut self, channel: ChannelId) {
        let calls = |thread: &Thread| thread.calls_on().is_some_and(|on| on.via.channel == channel);
        let called = self.threads.iter().filter(|(_, thread)| calls(thread));
        let mut tids: Vec<Tid> = called.map(|(tid, _)| tid).collect();
        tids.sort_unstable();
        for tid in tids {
            self.answered_with(tid, Kind::Failed, -Errno::MFILE.raw_os_error());
        }
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

    pub(crate) fn settle(&mut self, tid: Tid) {
        if self.thread(tid).calls_on().is_some_and(|calling| calling.dead) {
            self.answered_with(tid, Kind::Dead, 0);
        }
    }
}

fn refusal_command(kind: Kind) -> u32 {
    match kind {
        Kind::Dead => BR_DEAD_REPLY,
        Kind::Frozen => BR_FROZEN_REPLY,
        _ => BR_FAILED_REPLY,
    }
}
