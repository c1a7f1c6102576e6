//! How a call ends: by a reply, by an error, by its peer's death.

use super::arrive::{Arrival, Room, Verdict};
use super::refusal::Refusal;
use crate::buffer::Use;
use crate::effect::Effect;
use crate::message::{LaneId, Received};
use crate::peer::take_sender_user;
use crate::process::State;
use crate::thread::{Calling, Frame, FrameKind, Thread, Waiting};
use crate::work::{Completion, Queue, Tid, Work};
use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::lane::Kind;
use rustix::io::Errno;

impl State {
    /// Takes room for a reply to this thread's innermost call.
    pub fn admit_reply(&mut self, arrival: &Arrival<'_>) -> Result<Room, Verdict> {
        self.check_objects(arrival)?;
        self.take_room(arrival.message, None, Use::Call, arrival.via.channel)
    }

    /// Ends the thread's innermost call with a reply that lies complete in its buffer.
    pub fn answered(&mut self, tid: Tid, mut arrival: Arrival<'_>, room: Room, contents: Received) {
        let (message, user) = (arrival.message, take_sender_user(&mut arrival.chain));
        self.fill(room, message, contents, None);
        let peer = self.thread(tid).calls_on().map_or(ProcessId::BROKER, |calling| calling.peer);
        self.pop_call(tid);
        self.unread_replies += 1;
        let mut reply = self.incoming(peer, user, message, room);
        reply.sender.0 = 0;
        self.push(Queue::Thread(tid), Work::Reply(reply));
    }

    /// Ends the thread's innermost call, which its server says was refused before it was taken in:
    /// its completion is withdrawn. If the program has read that already, the call ends as any that
    /// has failed: another completion in the list is that of another transaction.
    pub fn never_sent(&mut self, tid: Tid, kind: Kind, errno: i32) {
        if !self.withdraw_completion(tid) {
            return self.answered_with(tid, kind, errno);
        }
        self.pop_call(tid);
        self.refused(tid, Refusal::of(kind, Errno::from_raw_os_error(-errno)));
        self.wake(tid);
    }

    /// Takes the completion of the thread's innermost call out of its list. False if the program
    /// has read it.
    pub(super) fn withdraw_completion(&mut self, tid: Tid) -> bool {
        let thread = self.thread(tid);
        let token = thread.calls_on().map(|calling| calling.token);
        let is_its = |work: &Work| match work {
            Work::Complete(Completion::CallTaken(of)) => Some(*of) == token,
            _ => false,
        };
        thread.todo.take_if(is_its).is_some()
    }

    /// Ends the thread's innermost call, which has failed at the other end. `errno` is 0 if the
    /// server has left or died: the extended error does not report that.
    pub fn answered_with(&mut self, tid: Tid, kind: Kind, errno: i32) {
        self.pop_call(tid);
        let command = Refusal::of(kind, Errno::INVAL).command;
        let error = &mut self.thread(tid).error;
        // A failure since the call stays in the extended error.
        if error.command == 0 && errno != 0 {
            (error.command, error.param) = (command, errno);
        }
        // As in the kernel, at most one error is queued.
        if !self.thread(tid).todo.any(|work| matches!(work, Work::Error(_))) {
            self.push(Queue::Thread(tid), Work::Error(command));
        }
    }

    /// The calls under way by a handle: each with its thread, its level of the stack, and its lane
    /// if it may not have been taken in yet. A call that is not innermost was taken in.
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

    /// Notes that a call was taken in: it needs its handle no longer.
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
            self.effect(Effect::Leave(calling.via, vec![FrameKind::Calling]));
        }
        true
    }

    /// Threads outside of the driver that have not been answered.
    pub fn callers(&self) -> Vec<Tid> {
        let calls = |thread: &Thread| thread.calls_on().is_some() && thread.waiting == Waiting::No;
        self.threads.matching(calls)
    }

    /// Threads that a process has not answered.
    pub fn callers_of(&self, peer: ProcessId) -> Vec<Tid> {
        self.threads.matching(|thread| thread.calls_on().is_some_and(|on| on.peer == peer))
    }

    pub(super) fn pop_call(&mut self, tid: Tid) {
        if let Some(Frame::Calling(calling)) = self.thread(tid).stack.pop() {
            self.tokens.remove(&calling.token);
            self.end_sending(calling.handle);
        }
    }

    /// Calls on a channel that has ended fail.
    pub fn fail_channel(&mut self, channel: ChannelId) {
        self.fail_calls_if(|calling| calling.via.channel == channel);
    }

    /// Calls on a channel that its server never took up fail, and the server lives: the next call
    /// may find room there.
    pub fn refuse_channel(&mut self, channel: ChannelId) {
        let calls = |thread: &Thread| thread.calls_on().is_some_and(|on| on.via.channel == channel);
        for tid in self.threads.matching(calls) {
            self.answered_with(tid, Kind::Failed, -Errno::MFILE.raw_os_error());
        }
    }

    /// Calls whose answer cannot come fail; one that is not innermost fails when it becomes so.
    pub(crate) fn fail_calls_if(&mut self, lost: impl Fn(&Calling) -> bool) {
        for tid in self.threads.matching(|_| true) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Return;
    use baton_abi::uapi::{BR_DEAD_REPLY, BR_TRANSACTION_COMPLETE};

    const TID: Tid = 1;

    fn read(state: &mut State) -> Option<u32> {
        match state.next_return(TID, false) {
            Some(Return::Bare(command)) => Some(command),
            other => {
                assert!(other.is_none(), "{other:?}");
                None
            }
        }
    }

    /// The thread has sent a reply, too, and has not read of it.
    #[test]
    fn a_refusal_withdraws_the_completion_of_its_call_and_no_other() {
        for has_read in [false, true] {
            let mut state = State::new(ProcessId(1));
            let via = LaneId { channel: ChannelId(1), lane: 0 };
            let (peer, handle) = (ProcessId(2), None);
            let calling = Calling { via, peer, handle, token: 7, owns_lane: true, dead: false };
            state.adopt_call(TID, calling);
            if has_read {
                assert_eq!(read(&mut state), Some(BR_TRANSACTION_COMPLETE));
            }
            state.thread(TID).todo.push(Work::Complete(Completion::Taken));
            state.never_sent(TID, Kind::Dead, -1);
            assert!(state.thread(TID).stack.is_empty());
            assert_eq!(state.thread(TID).failed, !has_read);
            let returns = std::iter::from_fn(|| read(&mut state));
            assert!(returns.eq([BR_TRANSACTION_COMPLETE, BR_DEAD_REPLY]), "has read: {has_read}");
        }
    }
}
