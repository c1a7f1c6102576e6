//! Synchronous IPC: a send phase, then a receive phase, either of which may be missing.
//!
//! ```text
//!           partner receives              something is there
//!  send --------------------> receive ------------------------> done
//!    |                           |
//!    | not yet                   | not yet
//!    v                           v
//!  Sending --- is taken --->  Receiving --- is sent to -------> done
//!               \
//!                \ and others wait to send to it: Ready, `continues`
//! ```
//!
//! A thread that sends and then receives does both in one step, so that an answer at once finds it
//! `Receiving`. If other threads wait to send to it already, its receive phase is put off until it
//! is chosen to run. A chain of such threads is a chain of IPCs (section 4.4.2); between two of
//! them a kernel may look for interrupts.

use super::State;
use super::cluster_link::RemoteSend;
use super::notices::one_interrupt;
use super::scheduler::Hint;
use crate::cluster::envelope::SendFlags;
use crate::list::Slot;
use crate::message::{Cause, IpcError, N_REGISTER_WORDS, Phase, Tag, Timeout};
use crate::statistics::{Event, Statistics};
use crate::tcb::{INBOX_SIGNALS, Lending, Status, Tcb, Utcb};
use crate::thread_id::{ThreadId, raw};
use crate::variant::{Inheritance, Path, Variant};

/// The result of the send phase.
enum SendOutcome {
    To(Slot),
    /// The message went to a thread of another kernel.
    Remote,
    Blocked,
    Failed,
}

/// The result of the receive phase.
pub(super) enum ReceiveOutcome {
    /// A message of this thread, which can run now.
    Message(Slot),
    /// A message whose sender cannot run, because it waits for an answer; or an interrupt or
    /// notices.
    OnlyMessage,
    /// A message of a thread of another kernel, which may have lent its priority until now.
    FromRemote,
    NoPartner,
    Nothing,
}

fn send_timeout(utcb: &Utcb) -> Timeout {
    Timeout::of_send(utcb.peer, utcb.send_deadline_ns)
}

fn receive_timeout(utcb: &Utcb) -> Timeout {
    Timeout::of_receive(utcb.receive, utcb.receive_deadline_ns)
}

impl<K: Variant> State<K> {
    /// Makes the IPC of the current thread's UTCB. Another thread may be current then.
    pub fn ipc(&mut self) {
        let me = self.decision.current;
        let utcb = &self.utcbs[me.index()];
        let (to, from) = (utcb.peer as u32, utcb.receive as u32);
        let woken = if to == raw::NOBODY {
            Slot::NONE
        } else {
            match self.send_phase(me, to) {
                SendOutcome::To(target) => target,
                SendOutcome::Remote => return self.receive_after_remote_send(me, to),
                SendOutcome::Blocked | SendOutcome::Failed => return,
            }
        };
        if from == raw::NOBODY {
            self.utcbs[me.index()].peer = u64::from(raw::NOBODY);
            self.schedule_both(woken);
        } else {
            self.receive_phase(me, woken, Some(to));
        }
    }

    /// Makes the receive phase after a message to another kernel. Its receiver may have lent this
    /// thread a priority until now.
    #[cold]
    fn receive_after_remote_send(&mut self, me: Slot, to: u32) {
        if self.utcbs[me.index()].receive as u32 == raw::NOBODY {
            self.utcbs[me.index()].peer = u64::from(raw::NOBODY);
        } else {
            self.receive_later(me, Some(to));
        }
        self.keep_current();
    }

    /// The current thread's TCB, unless the thread's receive phase is still to come or no thread is
    /// current.
    #[inline(always)]
    pub(crate) fn current_if_settled(&self) -> Option<&Tcb> {
        let current = self.decision.current;
        let tcb = self.tcbs.0.get(current.index())?;
        (!tcb.continues).then_some(tcb)
    }

    /// Makes the current thread's receive phase, if that is still to come. Says whether it was;
    /// then another thread may be current whose receive phase is still to come.
    pub fn continue_current(&mut self) -> bool {
        let me = self.decision.current;
        if me == Slot::NONE || !self.tcbs[me].continues {
            return false;
        }
        self.tcbs[me].continues = false;
        self.receive_later(me, None);
        true
    }

    fn send_phase(&mut self, me: Slot, to: u32) -> SendOutcome {
        let target = ThreadId::from_raw(to).and_then(|id| self.find(id)).filter(|&it| it != me);
        let failed = |cause| Err(IpcError { phase: Phase::Send, cause });
        let Some(target) = target else { return self.send_elsewhere(me, to) };
        if self.accepts(target, self.tcbs[me].id.raw()) {
            self.transfer(me, target);
            self.unblock(target);
            return SendOutcome::To(target);
        }
        match send_timeout(&self.utcbs[me.index()]) {
            Timeout::Zero => {
                self.finish(me, failed(Cause::Timeout));
                SendOutcome::Failed
            }
            timeout => {
                self.block_sending(me, target, timeout);
                SendOutcome::Blocked
            }
        }
    }

    /// Sends to a destination that is no thread of this kernel.
    #[cold]
    fn send_elsewhere(&mut self, me: Slot, to: u32) -> SendOutcome {
        let to = ThreadId::from_raw(to).filter(|&id| self.is_foreign(id));
        match to.map_or(RemoteSend::NoPartner, |id| self.send_remotely(me, id)) {
            RemoteSend::Delivered => SendOutcome::Remote,
            RemoteSend::Offered => {
                self.set_deadline(me, send_timeout(&self.utcbs[me.index()]));
                self.block(me, Slot::NONE, false);
                SendOutcome::Blocked
            }
            RemoteSend::NoPartner => {
                let error = IpcError { phase: Phase::Send, cause: Cause::NoPartner };
                self.finish(me, Err(error));
                SendOutcome::Failed
            }
        }
    }

    pub(super) fn join_send_queue(&mut self, sender: Slot, target: Slot) {
        self.count(Event::Queued);
        let priority = self.tcbs[sender].priority;
        self.send_queues.insert(target, sender, priority);
        self.tcbs[target].inbox += 1;
        self.statistics.see_senders(self.tcbs[target].inbox & !INBOX_SIGNALS);
    }

    fn block_sending(&mut self, me: Slot, target: Slot, timeout: Timeout) {
        let to = self.tcbs[target].id.raw();
        let tcb = &mut self.tcbs[me];
        tcb.status = Status::Sending;
        tcb.partner = to;
        self.join_send_queue(me, target);
        self.set_deadline(me, timeout);
        if self.utcbs[me.index()].receive as u32 == to {
            self.lend(me, target);
        }
        self.block(me, Slot::NONE, false);
    }

    /// The receive phase of a thread that has woken no other thread in the same step.
    #[inline(never)]
    fn receive_later(&mut self, me: Slot, to: Option<u32>) {
        self.receive_phase(me, Slot::NONE, to);
    }

    /// `to`: the destination of the send phase in the same step, if there was one.
    #[inline(always)]
    fn receive_phase(&mut self, me: Slot, woken: Slot, to: Option<u32>) {
        let from = self.utcbs[me.index()].receive as u32;
        let cause = match self.take_message(me, from) {
            ReceiveOutcome::Message(sender) => return self.schedule_three(woken, sender),
            ReceiveOutcome::OnlyMessage => return self.schedule_both(woken),
            ReceiveOutcome::FromRemote => {
                self.schedule_both(woken);
                return self.keep_current();
            }
            ReceiveOutcome::NoPartner => Cause::NoPartner,
            ReceiveOutcome::Nothing => match receive_timeout(&self.utcbs[me.index()]) {
                Timeout::Zero => Cause::Timeout,
                timeout => {
                    let is_call = to == Some(from);
                    let flags = SendFlags::SEND.and(SendFlags::CALL, is_call);
                    self.become_receiver(me, from, timeout, flags);
                    if is_call && K::INHERITANCE == Inheritance::ThroughCalls {
                        self.lend_locally(me, from);
                    }
                    return self.block(me, woken, is_call);
                }
            },
        };
        self.finish(me, Err(IpcError { phase: Phase::Receive, cause }));
        self.schedule_both(woken);
    }

    #[inline(always)]
    fn become_receiver(&mut self, me: Slot, from: u32, timeout: Timeout, flags: SendFlags) {
        let tcb = &mut self.tcbs[me];
        tcb.status = Status::Receiving;
        tcb.partner = from;
        self.set_deadline(me, timeout);
        self.update_gate(me);
        if self.link.is_some() {
            self.wait_remotely(me, flags);
        }
    }

    /// Updates a thread's gate after a change of its status, deadline or suspension.
    pub(super) fn update_gate(&mut self, slot: Slot) {
        let tcb = &mut self.tcbs[slot];
        let is_open = tcb.status == Status::Receiving && !tcb.timed && !tcb.suspended;
        tcb.gate = if is_open { tcb.partner } else { raw::SHUT };
    }

    pub(super) fn accepts(&self, slot: Slot, from: u32) -> bool {
        let tcb = &self.tcbs[slot];
        tcb.status == Status::Receiving && (tcb.partner == raw::ANY || tcb.partner == from)
    }

    #[inline(always)]
    fn take_message(&mut self, me: Slot, from: u32) -> ReceiveOutcome {
        if self.tcbs[me].inbox & INBOX_SIGNALS != 0 && self.take_signal(me, from) {
            return ReceiveOutcome::OnlyMessage;
        }
        match self.next_sender(me, from) {
            None => ReceiveOutcome::NoPartner,
            Some(Slot::NONE) => ReceiveOutcome::Nothing,
            Some(sender) => self.take_from(sender, me, from),
        }
    }

    /// The sender whose message a thread would take, or `NONE`. The result is `None` if no thread
    /// has the id `from`.
    #[inline(always)]
    fn next_sender(&self, me: Slot, from: u32) -> Option<Slot> {
        match ThreadId::from_raw(from) {
            _ if from == raw::ANY => Some(self.send_queues.first(me)),
            Some(id) => {
                let sender = self.find_anywhere(id)?;
                Some(if self.sends_to(sender, me) { sender } else { Slot::NONE })
            }
            None => Some(Slot::NONE),
        }
    }

    fn take_from(&mut self, sender: Slot, me: Slot, from: u32) -> ReceiveOutcome {
        if self.is_proxy(sender) {
            return self.take_from_proxies(sender, me, from);
        }
        self.leave_send_queue(sender);
        self.transfer(sender, me);
        self.has_sent(sender)
    }

    /// Takes the message of a proxy. If it was withdrawn, the next sender's turn comes.
    #[cold]
    fn take_from_proxies(&mut self, mut sender: Slot, me: Slot, from: u32) -> ReceiveOutcome {
        while !self.take_from_proxy(sender, me) {
            sender = match self.next_sender(me, from) {
                None => return ReceiveOutcome::NoPartner,
                Some(Slot::NONE) => return ReceiveOutcome::Nothing,
                Some(next) if self.is_proxy(next) => next,
                Some(next) => return self.take_from(next, me, from),
            };
        }
        ReceiveOutcome::FromRemote
    }

    fn sends_to(&self, slot: Slot, receiver: Slot) -> bool {
        let tcb = &self.tcbs[slot];
        tcb.status == Status::Sending && tcb.partner == self.tcbs[receiver].id.raw()
    }

    /// Lets a thread whose message was taken go on to its receive phase, if it has one.
    pub(super) fn has_sent(&mut self, sender: Slot) -> ReceiveOutcome {
        let utcb = &mut self.utcbs[sender.index()];
        let from = utcb.receive as u32;
        if from == raw::NOBODY {
            utcb.peer = u64::from(raw::NOBODY);
            self.unblock(sender);
            return ReceiveOutcome::Message(sender);
        }
        let timeout = receive_timeout(utcb);
        // A caller's partner is running, so it is not sending to the caller. The priority stays
        // lent.
        let is_call = self.tcbs[sender].partner == from;
        let waits = timeout != Timeout::Zero && (is_call || self.would_wait(sender, from));
        if is_call && waits {
            self.cancel_deadline(sender);
        } else {
            self.unblock(sender);
        }
        if waits {
            self.become_receiver(sender, from, timeout, SendFlags::SEND);
            return ReceiveOutcome::OnlyMessage;
        }
        self.tcbs[sender].continues = true;
        ReceiveOutcome::Message(sender)
    }

    /// Whether a thread would find nothing to receive from `from`.
    fn would_wait(&self, slot: Slot, from: u32) -> bool {
        match ThreadId::from_raw(from) {
            Some(id) => self.find_anywhere(id).is_some_and(|other| !self.sends_to(other, slot)),
            None if from == raw::ANY => self.tcbs[slot].inbox == 0,
            None => self.tcbs[slot].interrupts & one_interrupt(from) == 0,
        }
    }

    #[inline(always)]
    fn transfer(&mut self, from: Slot, to: Slot) {
        self.count(Event::Transferred);
        let source = &self.utcbs[from.index()];
        let tag = source.tag;
        // As in the fast paths, the register words are copied whatever the length is.
        let first: [u64; N_REGISTER_WORDS] = *source.words.first_chunk().expect("there are more");
        let target = &mut self.utcbs[to.index()];
        target.tag = tag;
        *target.words.first_chunk_mut().expect("there are more") = first;
        target.peer = u64::from(self.tcbs[from].id.raw());
        let length = usize::from(Tag::from_raw(tag).length());
        if length > N_REGISTER_WORDS {
            self.transfer_more(from, to, length);
        }
    }

    #[cold]
    fn transfer_more(&mut self, from: Slot, to: Slot, length: usize) {
        let [source, target] = self
            .utcbs
            .get_disjoint_mut([from.index(), to.index()])
            .expect("a message has two parties");
        target.words[..length].copy_from_slice(&source.words[..length]);
    }

    /// Schedules after a step in which the current thread can go on and a blocked one became ready.
    pub(super) fn schedule_both(&mut self, woken: Slot) {
        if woken == Slot::NONE {
            return;
        }
        match K::PATH {
            Path::Open => self.open_send(woken),
            Path::Interface => self.enqueue_schedule(woken, Hint::CurrentOrNew),
        }
    }

    /// Like `schedule_both`, with a second thread whose message was taken. L4 lets the higher of
    /// the two run that were blocked.
    fn schedule_three(&mut self, woken: Slot, sender: Slot) {
        if woken == Slot::NONE || !self.tcbs[woken].is_runnable() {
            return self.schedule_both(sender);
        }
        if !self.tcbs[sender].is_runnable() {
            return self.schedule_both(woken);
        }
        let woken_is_higher = self.tcbs[woken].priority > self.tcbs[sender].priority;
        let (higher, lower) = if woken_is_higher { (woken, sender) } else { (sender, woken) };
        self.enqueue(lower);
        self.enqueue_schedule(higher, Hint::New);
    }

    /// Schedules after a step in which the current thread blocked and another one may have become
    /// ready.
    fn block(&mut self, me: Slot, woken: Slot, is_call: bool) {
        match (K::PATH, woken) {
            (Path::Interface, Slot::NONE) => self.dequeue_schedule(me, Hint::HighestPriority),
            (Path::Interface, _) => self.swap_schedule(woken, me, Hint::New),
            (Path::Open, Slot::NONE) => {
                let receives = self.tcbs[me].status == Status::Receiving;
                self.open_block(receives);
            }
            (Path::Open, _) => self.open_call(woken, is_call),
        }
    }

    pub(super) fn lending_to(&self, slot: Slot) -> Option<Slot> {
        let tcb = &self.tcbs[slot];
        match tcb.lending {
            Lending::Nothing => None,
            Lending::Priority => ThreadId::from_raw(tcb.partner).map(ThreadId::slot),
        }
    }
}
