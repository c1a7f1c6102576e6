//! Threads of this kernel whose partner belongs to another kernel. They block like any other
//! thread. The state of their wait is in their envelope (`cluster::envelope`), where both kernels
//! change it.
//!
//! A message to a thread that waits for exactly this sender is delivered at once, without its
//! kernel. Any other message is offered: the receiver's kernel looks at it when it reads its inbox.
//! An offer with a timeout of zero is refused if its receiver does not wait at that time.
//!
//! **Invariant**: an envelope is `Idle` exactly while its thread waits for no remote thread.
//! Between the end of a wait in the envelope and this kernel's look at it, the TCB still says that
//! the thread waits.

use super::State;
use super::cluster_link::{Cancelled, RemoteSend};
use crate::cluster::envelope::{SendFlags, Stage};
use crate::cluster::inbox::Topic;
use crate::list::Slot;
use crate::message::{Cause, IpcError, Phase, Tag, Timeout};
use crate::tcb::Status;
use crate::thread_id::{Sender, ThreadId};
use crate::variant::Variant;

impl<K: Variant> State<K> {
    /// The kernels that have got changes since the last call, by bits. The caller wakes them.
    pub fn take_wakeups(&mut self) -> u64 {
        self.link.as_mut().map_or(0, |link| std::mem::take(&mut link.wakeups))
    }

    pub(crate) fn has_wakeups(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.wakeups != 0)
    }

    /// Lets other kernels find a new thread.
    pub(super) fn publish_name(&mut self, id: ThreadId) {
        if let Some(link) = &self.link {
            link.own(id.slot()).set_name(Some(id));
        }
    }

    /// Tells other kernels that the thread of a slot has ended.
    pub(super) fn withdraw_name(&mut self, slot: Slot) {
        if let Some(link) = &mut self.link {
            link.announce_name(slot, None);
        }
    }

    /// Takes the kernel out of its cluster. To the other kernels all its threads have ended.
    pub(crate) fn leave(&mut self) {
        for index in 0..self.utcbs.len() as u16 {
            let slot = Slot::new(index);
            if self.waits_remotely(slot) {
                self.cancel_remote_wait(slot);
                self.post_to_partner(slot);
            }
            if self.tcbs[slot].status != Status::Free {
                self.withdraw_name(slot);
            }
        }
    }

    /// Whether a thread waits for a thread of another kernel.
    pub(super) fn waits_remotely(&self, slot: Slot) -> bool {
        let tcb = &self.tcbs[slot];
        matches!(tcb.status, Status::Sending | Status::Receiving)
            && ThreadId::from_raw(tcb.partner).is_some_and(|id| self.is_foreign(id))
            && !self.is_proxy(slot)
    }

    pub(super) fn is_foreign(&self, id: ThreadId) -> bool {
        self.link.as_ref().is_some_and(|link| link.kernel != id.kernel())
    }

    /// Sends the current thread's message to a thread of another kernel, or offers it.
    #[cold]
    pub(super) fn send_remotely(&mut self, me: Slot, to: ThreadId) -> RemoteSend {
        let Some(partner) = self.find_proxy(to) else { return RemoteSend::NoPartner };
        let link = self.link.as_mut().expect("a kernel with proxies has a cluster");
        let utcb = &self.utcbs[me.index()];
        let tag = Tag::from_raw(utcb.tag);
        let words = &utcb.words[..usize::from(tag.length())];
        let envelope = link.cluster.envelope(to.kernel(), to.slot().index());
        if envelope.answer(self.tcbs[me].id.raw(), tag, words) {
            link.post(to.kernel(), Topic::Receiver, to.slot().index());
            self.free_proxy(partner);
            return RemoteSend::Delivered;
        }
        let answer_timeout = Timeout::of_receive(utcb.receive, 0);
        let wants_answer = utcb.receive as u32 == to.raw();
        let is_call = wants_answer && answer_timeout != Timeout::Zero;
        let flags = SendFlags::SEND
            .and(SendFlags::CALL, is_call)
            .and(SendFlags::POLL, wants_answer && !is_call)
            .and(SendFlags::TIMED, is_call && answer_timeout != Timeout::Never)
            .and(SendFlags::AT_ONCE, Timeout::of_send(utcb.peer, 0) == Timeout::Zero);
        let own = link.own(me);
        own.set_priority(self.tcbs[me].priority);
        own.set_grant(utcb.grant);
        own.offer(to.raw(), flags, tag, words);
        link.post(to.kernel(), Topic::Sender, me.index());
        let tcb = &mut self.tcbs[me];
        tcb.status = Status::Sending;
        tcb.partner = to.raw();
        RemoteSend::Offered
    }

    /// Lets a receiver that waits for a thread of another kernel wait in its envelope.
    #[cold]
    pub(super) fn wait_remotely(&mut self, me: Slot, flags: SendFlags) {
        let from = ThreadId::from_raw(self.tcbs[me].partner).filter(|&id| self.is_foreign(id));
        let (Some(link), Some(from)) = (&mut self.link, from) else { return };
        let own = link.own(me);
        own.set_priority(self.tcbs[me].priority);
        own.set_grant(self.utcbs[me.index()].grant);
        own.wait(from.raw(), flags);
        if flags.has(SendFlags::CALL) {
            // The partner has got the message, but its kernel does not know this thread's priority.
            link.post(from.kernel(), Topic::Sender, me.index());
        }
    }

    /// Publishes the new priority of a thread that waits for a remote thread.
    pub(super) fn publish_priority(&mut self, slot: Slot) {
        if let Some(link) = &mut self.link {
            link.own(slot).set_priority(self.tcbs[slot].priority);
            self.post_to_partner(slot);
        }
    }

    /// Whether a remote partner has taken a call's message. The TCB may still say `Sending` then.
    pub(super) fn waits_for_answer(&self, slot: Slot) -> bool {
        let Some(link) = self.link.as_ref().filter(|_| self.waits_remotely(slot)) else {
            return false;
        };
        let stage = link.own(slot).version().stage();
        matches!(stage, Stage::Waiting | Stage::Answering | Stage::Copying | Stage::Revoking)
    }

    /// Takes over into the TCB what the partner's kernel has written into the envelope. Says
    /// whether the wait is over; the caller then lets the thread run.
    pub(super) fn collect_remote_result(&mut self, slot: Slot) -> bool {
        let Some(link) = &self.link else { return false };
        let envelope = link.own(slot);
        match envelope.version().stage() {
            Stage::Idle | Stage::Offered => return false,
            Stage::Waiting | Stage::Answering | Stage::Copying | Stage::Revoking => {
                self.begin_receive_of_call(slot);
                return false;
            }
            Stage::Answered => {
                let utcb = &mut self.utcbs[slot.index()];
                utcb.tag = envelope.read(&mut utcb.words);
                let sender = ThreadId::from_raw(envelope.partner()).expect("a thread has answered");
                envelope.reset();
                self.unblock(slot);
                self.finish(slot, Ok(Sender::Thread(sender)));
            }
            Stage::Taken => {
                envelope.reset();
                self.has_sent(slot);
                return self.tcbs[slot].status == Status::Ready;
            }
            Stage::Refused => {
                envelope.reset();
                self.unblock(slot);
                self.finish(slot, Err(IpcError { phase: Phase::Send, cause: Cause::Timeout }));
            }
            // `fail_remote_wait` has written the error already.
            Stage::Revoked => {
                envelope.reset();
                self.unblock(slot);
            }
        }
        true
    }

    /// Lets the receive timeout of a call count, once its message was taken.
    fn begin_receive_of_call(&mut self, slot: Slot) {
        if self.tcbs[slot].status != Status::Sending {
            return;
        }
        self.tcbs[slot].status = Status::Receiving;
        self.cancel_deadline(slot);
        let utcb = &self.utcbs[slot.index()];
        let timeout = Timeout::of_receive(utcb.receive, utcb.receive_deadline_ns);
        self.set_deadline(slot, timeout);
        self.update_gate(slot);
    }

    /// Cancels a thread's wait for a remote thread.
    pub(super) fn cancel_remote_wait(&mut self, slot: Slot) -> Cancelled {
        let Some(link) = &self.link else { return Cancelled::TooLate };
        let envelope = link.own(slot);
        loop {
            let version = envelope.version();
            let (next, end) = match version.stage() {
                Stage::Offered => (Stage::Idle, Cancelled::Now(Phase::Send)),
                Stage::Waiting => (Stage::Idle, Cancelled::Now(Phase::Receive)),
                Stage::Copying => (Stage::Revoking, Cancelled::Later),
                _ => return Cancelled::TooLate,
            };
            if envelope.exchange(version, next) {
                return end;
            }
        }
    }

    /// Lets the partner's kernel update the proxy of a thread: it may be in a send queue there, or
    /// lend its priority.
    fn post_to_partner(&mut self, slot: Slot) {
        let to = ThreadId::from_raw(self.tcbs[slot].partner);
        if let (Some(link), Some(to)) = (&mut self.link, to) {
            link.post(to.kernel(), Topic::Sender, slot.index());
        }
    }

    /// Cancels a thread's wait for a remote thread, with this error.
    pub(super) fn fail_remote_wait(&mut self, slot: Slot, cause: Cause) -> Cancelled {
        let end = self.cancel_remote_wait(slot);
        let phase = match end {
            Cancelled::Now(phase) => phase,
            Cancelled::Later => Phase::Receive,
            Cancelled::TooLate => return end,
        };
        self.post_to_partner(slot);
        self.cancel_deadline(slot);
        if end != Cancelled::Later {
            self.unblock(slot);
        }
        self.finish(slot, Err(IpcError { phase, cause }));
        end
    }

    /// Ends the wait of a thread for a remote thread at its deadline. Says whether the thread can
    /// run.
    pub(super) fn expire_remote_wait(&mut self, slot: Slot, now_ns: u64) -> bool {
        if self.collect_remote_result(slot) {
            return true;
        }
        let is_due = |state: &Self| {
            let first = state.deadlines.first();
            first.is_some_and(|(deadline_ns, it)| it == slot && deadline_ns <= now_ns)
        };
        if !self.waits_remotely(slot) || !is_due(self) {
            return false;
        }
        match self.fail_remote_wait(slot, Cause::Timeout) {
            Cancelled::Now(_) => return true,
            Cancelled::Later => return false,
            Cancelled::TooLate => {}
        }
        if self.link.as_ref().is_some_and(|it| it.own(slot).version().stage() == Stage::Answering) {
            // The answer came before the deadline, and is just being written.
            self.cancel_deadline(slot);
        }
        false
    }

    /// Ends the waits for threads that a slot of another kernel had before it got its present id.
    pub(super) fn fail_waits_for_renamed(&mut self, kernel: u8, number: u16) {
        let Some(link) = &self.link else { return };
        let name = link.cluster.envelope(kernel, number.into()).name().map_or(0, ThreadId::raw);
        for index in 0..self.utcbs.len() as u16 {
            let slot = Slot::new(index);
            let partner = self.tcbs[slot].partner;
            let waited_for = ThreadId::from_raw(partner).filter(|_| self.waits_remotely(slot));
            let is_it = |id: ThreadId| (id.kernel(), id.slot().index()) == (kernel, number.into());
            if partner != name && waited_for.is_some_and(is_it) && self.fail_wait_for_ended(slot) {
                self.wake_later(slot);
            }
        }
    }

    /// Ends a thread's wait for a remote thread that has ended. Says whether the thread can run.
    fn fail_wait_for_ended(&mut self, slot: Slot) -> bool {
        let partner = self.tcbs[slot].partner;
        if self.collect_remote_result(slot) {
            return true;
        }
        let still_waits = self.waits_remotely(slot) && self.tcbs[slot].partner == partner;
        still_waits && matches!(self.fail_remote_wait(slot, Cause::Ended), Cancelled::Now(_))
    }

    /// Delivers the notices that threads of other kernels have left for a thread.
    pub(super) fn fetch_notices(&mut self, slot: Slot) {
        let Some(link) = &self.link else { return };
        let id = self.tcbs[slot].id;
        let bits = link.own(slot).take_notices(id);
        if bits != 0 && self.tcbs[slot].status != Status::Free {
            self.notify(slot, bits);
        }
    }

    /// Leaves notices for a thread of another kernel. `false`: there is no such thread.
    pub(super) fn notify_remotely(&mut self, to: ThreadId, bits: u64) -> bool {
        let Some(link) = self.link.as_mut().filter(|link| link.kernel != to.kernel()) else {
            return false;
        };
        let envelope = link.cluster.envelope_of(to);
        let is_there = envelope.is_some_and(|envelope| envelope.leave_notices(to, bits));
        if is_there {
            link.post(to.kernel(), Topic::Receiver, to.slot().index());
        }
        is_there
    }
}
