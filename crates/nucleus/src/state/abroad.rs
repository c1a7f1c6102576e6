//! Threads of this kernel whose partner is another kernel's: they block as any other, and how their
//! wait stands is in their envelope (`cluster::envelope`), where the partner's kernel changes it.
//!
//! A message to a thread that waits for just this one is handed over at once, whatever the other
//! kernel does. Any other is offered, and the other kernel looks when it gets the letter: to it a
//! timeout of zero means that the message is refused if its receiver does not wait then.
//!
//! **Invariant**: an envelope is `Idle` exactly while its thread does not wait abroad, and between
//! a wait's end there and this kernel's look at it the thread's TCB says what it said.

use super::State;
use crate::cluster::Cluster;
use crate::cluster::Seat;
use crate::cluster::envelope::{Envelope, Mark, Stage, Terms};
use crate::cluster::inbox::{Cursor, Letter, Topic};
use crate::list::Slot;
use crate::message::{Cause, IpcError, Phase, Tag, Timeout};
use crate::tcb::Status;
use crate::thread_id::{Sender, ThreadId};
use crate::variant::Variant;
use std::sync::Arc;

/// A kernel's place among others.
#[derive(Clone, Debug)]
pub(super) struct Abroad {
    pub(super) cluster: Arc<Cluster>,
    pub(super) kernel: u8,
    pub(super) cursor: Cursor,
    /// Which offer of its thread each proxy stands for.
    pub(super) marks: Box<[Mark]>,
    /// Kernels that have got letters and have not been rung for.
    rings: u64,
}

/// How a send to another kernel has begun.
pub(super) enum Posted {
    /// It is done.
    Answered,
    /// It waits.
    Offered,
    NoPartner,
}

/// How a wait abroad ends that this kernel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The thread can run.
    Now(Phase),
    /// It can when its partner, which copies from or to its memory, is done: a letter comes then.
    Later,
    /// It has ended otherwise, or is about to.
    Otherwise,
}

impl Abroad {
    /// A thread of another kernel has what it waits for.
    pub(super) fn tell_waiting(&mut self, id: ThreadId) {
        self.post(id.kernel(), Topic::Receiver, id.slot().index());
    }

    pub(super) fn new(seat: &Seat) -> Abroad {
        let cluster = Arc::clone(seat.cluster());
        let n_proxies = (cluster.n_kernels() - 1) * cluster.n_threads();
        let marks = vec![Mark::default(); n_proxies].into();
        Abroad { cluster, kernel: seat.kernel(), cursor: Cursor::default(), marks, rings: 0 }
    }

    pub(super) fn own(&self, slot: Slot) -> &Envelope {
        self.cluster.envelope(self.kernel, slot.index())
    }

    pub(super) fn post(&mut self, to: u8, topic: Topic, number: usize) {
        let letter = Letter { from: self.kernel, topic, number: number as u16 };
        if self.cluster.post(to, letter) {
            self.rings |= 1 << to;
        }
    }

    /// A thread has another name now, which all kernels have to know.
    fn announce(&mut self, slot: Slot, name: Option<ThreadId>) {
        self.own(slot).set_name(name);
        let own = self.kernel;
        for kernel in (0..self.cluster.n_kernels() as u8).filter(|&kernel| kernel != own) {
            self.post(kernel, Topic::Name, slot.index());
        }
    }
}

impl<K: Variant> State<K> {
    /// The kernels that have got letters since this was last asked, by bits: who drives the kernel
    /// rings for them.
    pub fn take_rings(&mut self) -> u64 {
        self.abroad.as_mut().map_or(0, |abroad| std::mem::take(&mut abroad.rings))
    }

    pub(crate) fn has_rings(&self) -> bool {
        self.abroad.as_ref().is_some_and(|abroad| abroad.rings != 0)
    }

    /// A thread's name is its own from now on.
    pub(super) fn publish(&mut self, id: ThreadId) {
        if let Some(abroad) = &self.abroad {
            abroad.own(id.slot()).set_name(Some(id));
        }
    }

    /// A thread has ended.
    pub(super) fn withdraw_name(&mut self, slot: Slot) {
        if let Some(abroad) = &mut self.abroad {
            abroad.announce(slot, None);
        }
    }

    /// The kernel leaves its cluster: its threads end for all others.
    pub(crate) fn leave(&mut self) {
        for index in 0..self.utcbs.len() as u16 {
            let slot = Slot::new(index);
            if self.is_abroad(slot) {
                self.give_up(slot);
                self.tell_proxy(slot);
            }
            if self.tcbs[slot].status != Status::Free {
                self.withdraw_name(slot);
            }
        }
    }

    /// Whether a thread's partner is another kernel's.
    pub(super) fn is_abroad(&self, slot: Slot) -> bool {
        let tcb = &self.tcbs[slot];
        matches!(tcb.status, Status::Sending | Status::Receiving)
            && ThreadId::from_raw(tcb.partner).is_some_and(|id| self.is_foreign(id))
            && !self.is_proxy(slot)
    }

    pub(super) fn is_foreign(&self, id: ThreadId) -> bool {
        self.abroad.as_ref().is_some_and(|abroad| abroad.kernel != id.kernel())
    }

    /// The current thread's message for a thread of another kernel.
    #[cold]
    pub(super) fn send_abroad(&mut self, me: Slot, to: ThreadId) -> Posted {
        let Some(partner) = self.find_proxy(to) else { return Posted::NoPartner };
        let abroad = self.abroad.as_mut().expect("whoever has proxies has a cluster");
        let utcb = &self.utcbs[me.index()];
        let tag = Tag::from_raw(utcb.tag);
        let words = &utcb.words[..usize::from(tag.length())];
        let envelope = abroad.cluster.envelope(to.kernel(), to.slot().index());
        if envelope.answer(self.tcbs[me].id.raw(), tag, words) {
            abroad.post(to.kernel(), Topic::Receiver, to.slot().index());
            self.dismiss(partner);
            return Posted::Answered;
        }
        let answer_timeout = Timeout::of_receive(utcb.receive, 0);
        let wants_answer = utcb.receive as u32 == to.raw();
        let is_call = wants_answer && answer_timeout != Timeout::Zero;
        let terms = Terms::SEND
            .and(Terms::CALL, is_call)
            .and(Terms::POLL, wants_answer && !is_call)
            .and(Terms::TIMED, is_call && answer_timeout != Timeout::Never)
            .and(Terms::AT_ONCE, Timeout::of_send(utcb.peer, 0) == Timeout::Zero);
        let own = abroad.own(me);
        own.set_priority(self.tcbs[me].priority);
        own.set_grant(utcb.grant());
        own.offer(to.raw(), terms, tag, words);
        abroad.post(to.kernel(), Topic::Sender, me.index());
        let tcb = &mut self.tcbs[me];
        tcb.status = Status::Sending;
        tcb.partner = to.raw();
        Posted::Offered
    }

    /// If a thread that is to receive waits for one of another kernel, its envelope says so from
    /// here on.
    #[cold]
    pub(super) fn wait_abroad(&mut self, me: Slot, terms: Terms) {
        let from = ThreadId::from_raw(self.tcbs[me].partner).filter(|&id| self.is_foreign(id));
        let (Some(abroad), Some(from)) = (&mut self.abroad, from) else { return };
        let own = abroad.own(me);
        own.set_priority(self.tcbs[me].priority);
        own.set_grant(self.utcbs[me.index()].grant());
        own.wait(from.raw(), terms);
        if terms.has(Terms::CALL) {
            // The partner has the message already, but not yet this thread's priority.
            abroad.post(from.kernel(), Topic::Sender, me.index());
        }
    }

    /// The priority of a thread that waits abroad has changed.
    pub(super) fn tell_priority(&mut self, slot: Slot) {
        if let Some(abroad) = &mut self.abroad {
            abroad.own(slot).set_priority(self.tcbs[slot].priority);
            self.tell_proxy(slot);
        }
    }

    /// Whether the message of a call was taken, which this kernel need not look at.
    pub(super) fn waits_for_answer(&self, slot: Slot) -> bool {
        let Some(abroad) = self.abroad.as_ref().filter(|_| self.is_abroad(slot)) else {
            return false;
        };
        let stage = abroad.own(slot).mark().stage();
        matches!(stage, Stage::Waiting | Stage::Answering | Stage::Copying | Stage::Revoking)
    }

    /// Brings the TCB of a thread that waits abroad up to date. Says whether its wait is over; what
    /// is to be done then is the caller's: it can run.
    pub(super) fn catch_up(&mut self, slot: Slot) -> bool {
        let Some(abroad) = &self.abroad else { return false };
        let envelope = abroad.own(slot);
        match envelope.mark().stage() {
            Stage::Idle | Stage::Offered => return false,
            Stage::Waiting | Stage::Answering | Stage::Copying | Stage::Revoking => {
                self.call_was_taken(slot);
                return false;
            }
            Stage::Answered => {
                let utcb = &mut self.utcbs[slot.index()];
                utcb.tag = envelope.read(&mut utcb.words);
                let sender = ThreadId::from_raw(envelope.partner()).expect("a thread has answered");
                envelope.settle();
                self.unblock(slot);
                self.finish(slot, Ok(Sender::Thread(sender)));
            }
            Stage::Taken => {
                envelope.settle();
                self.has_sent(slot);
                return self.tcbs[slot].status == Status::Ready;
            }
            Stage::Refused => {
                envelope.settle();
                self.unblock(slot);
                self.finish(slot, Err(IpcError { phase: Phase::Send, cause: Cause::Timeout }));
            }
            // Why is written down already.
            Stage::Revoked => {
                envelope.settle();
                self.unblock(slot);
            }
        }
        true
    }

    /// A call was taken: from now on its other timeout counts.
    fn call_was_taken(&mut self, slot: Slot) {
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

    /// Ends a wait abroad from this host_state.
    pub(super) fn give_up(&mut self, slot: Slot) -> End {
        let Some(abroad) = &self.abroad else { return End::Otherwise };
        let envelope = abroad.own(slot);
        loop {
            let mark = envelope.mark();
            let (next, end) = match mark.stage() {
                Stage::Offered => (Stage::Idle, End::Now(Phase::Send)),
                Stage::Waiting => (Stage::Idle, End::Now(Phase::Receive)),
                Stage::Copying => (Stage::Revoking, End::Later),
                _ => return End::Otherwise,
            };
            if envelope.exchange(mark, next) {
                return end;
            }
        }
    }

    /// The proxy of a thread that has given up is in a queue there, or lends a priority.
    fn tell_proxy(&mut self, slot: Slot) {
        let to = ThreadId::from_raw(self.tcbs[slot].partner);
        if let (Some(abroad), Some(to)) = (&mut self.abroad, to) {
            abroad.post(to.kernel(), Topic::Sender, slot.index());
        }
    }

    /// Ends a thread's wait abroad for this cause.
    pub(super) fn end_wait_abroad(&mut self, slot: Slot, cause: Cause) -> End {
        let end = self.give_up(slot);
        let phase = match end {
            End::Now(phase) => phase,
            End::Later => Phase::Receive,
            End::Otherwise => return end,
        };
        self.tell_proxy(slot);
        self.cancel_deadline(slot);
        if end != End::Later {
            self.unblock(slot);
        }
        self.finish(slot, Err(IpcError { phase, cause }));
        end
    }

    /// The deadline of a thread that waits abroad has come. Says whether the thread can run.
    pub(super) fn expire_abroad(&mut self, slot: Slot, now_ns: u64) -> bool {
        if self.catch_up(slot) {
            return true;
        }
        let is_due = |state: &Self| {
            let first = state.deadlines.first();
            first.is_some_and(|(deadline_ns, it)| it == slot && deadline_ns <= now_ns)
        };
        if !self.is_abroad(slot) || !is_due(self) {
            return false;
        }
        match self.end_wait_abroad(slot, Cause::Timeout) {
            End::Now(_) => return true,
            End::Later => return false,
            End::Otherwise => {}
        }
        if self.abroad.as_ref().is_some_and(|it| it.own(slot).mark().stage() == Stage::Answering) {
            // In time, though only just.
            self.cancel_deadline(slot);
        }
        false
    }

    /// Those that wait for a thread that this number's envelope had before, but has not any more.
    pub(super) fn tell_of_names(&mut self, kernel: u8, number: u16) {
        let Some(abroad) = &self.abroad else { return };
        let name = abroad.cluster.envelope(kernel, number.into()).name().map_or(0, ThreadId::raw);
        for index in 0..self.utcbs.len() as u16 {
            let slot = Slot::new(index);
            let partner = self.tcbs[slot].partner;
            let waited_for = ThreadId::from_raw(partner).filter(|_| self.is_abroad(slot));
            let is_it = |id: ThreadId| (id.kernel(), id.slot().index()) == (kernel, number.into());
            if partner != name && waited_for.is_some_and(is_it) && self.lose_partner(slot) {
                self.wake_later(slot);
            }
        }
    }

    /// A thread's partner abroad has ended. Says whether the thread can run.
    fn lose_partner(&mut self, slot: Slot) -> bool {
        let partner = self.tcbs[slot].partner;
        if self.catch_up(slot) {
            return true;
        }
        let still_waits = self.is_abroad(slot) && self.tcbs[slot].partner == partner;
        still_waits && matches!(self.end_wait_abroad(slot, Cause::Ended), End::Now(_))
    }

    /// The notices that other kernels have left for a thread.
    pub(super) fn fetch_notices(&mut self, slot: Slot) {
        let Some(abroad) = &self.abroad else { return };
        let id = self.tcbs[slot].id;
        let bits = abroad.own(slot).take_notices(id);
        if bits != 0 && self.tcbs[slot].status != Status::Free {
            self.notify(slot, bits);
        }
    }

    /// Leaves notices for a thread of another kernel. Says whether it is there.
    pub(super) fn notify_abroad(&mut self, to: ThreadId, bits: u64) -> bool {
        let Some(abroad) = self.abroad.as_mut().filter(|abroad| abroad.kernel != to.kernel())
        else {
            return false;
        };
        let envelope = abroad.cluster.envelope_of(to);
        let is_there = envelope.is_some_and(|envelope| envelope.leave_notices(to, bits));
        if is_there {
            abroad.post(to.kernel(), Topic::Receiver, to.slot().index());
        }
        is_there
    }
}
