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
//! Who has sent and then receives does so in one step: its partner may answer at once, and will
//! find it `Receiving`. Only if others wait to send to it already is that step put off until it is
//! chosen; a chain of such threads is a chain of IPCs (section 4.4.2), between which a kernel may
//! look for interrupts.

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

/// How the send phase ended.
enum SendOutcome {
    To(Slot),
    /// To a thread of another kernel.
    Remote,
    Blocked,
    Failed,
}

/// What the receive phase found.
pub(super) enum ReceiveOutcome {
    /// A thread's message; that thread can run.
    Message(Slot),
    /// A message, and nobody who can run for that: its sender waits for an answer.
    OnlyMessage,
    /// The message of a thread of another kernel, which may have lent a priority until now.
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
    /// The current thread makes the IPC that its UTCB says. It may not be the current one then.
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

    /// The rest of an IPC whose first half another kernel has. The priority that its partner has
    /// lent is gone.
    #[cold]
    fn receive_after_remote_send(&mut self, me: Slot, to: u32) {
        if self.utcbs[me.index()].receive as u32 == raw::NOBODY {
            self.utcbs[me.index()].peer = u64::from(raw::NOBODY);
        } else {
            self.receive_later(me, Some(to));
        }
        self.keep_current();
    }

    /// The current thread, if it has nothing to look for any more.
    #[inline(always)]
    pub(crate) fn current_if_settled(&self) -> Option<&Tcb> {
        let current = self.decision.current;
        let tcb = self.tcbs.0.get(current.index())?;
        (!tcb.continues).then_some(tcb)
    }

    /// If the current thread has yet to look for what it is to receive, it does. Says whether it
    /// had to: then somebody else may be current, with the same to do.
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

    /// To whom is not of this kernel.
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

    /// The receive phase of a thread that has woken nobody in the same step.
    #[inline(never)]
    fn receive_later(&mut self, me: Slot, to: Option<u32>) {
        self.receive_phase(me, Slot::NONE, to);
    }

    /// `to`: to whom the thread has sent in the same step, if it has.
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

    /// Keeps a thread's gate true.
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

    /// Whose message a thread would take, or `NONE`. `None`: there is nobody of that name.
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

    /// A message that was withdrawn is passed over: there may be another one.
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

    /// A thread whose message was taken goes on to its receive phase, if it has one.
    pub(super) fn has_sent(&mut self, sender: Slot) -> ReceiveOutcome {
        let utcb = &mut self.utcbs[sender.index()];
        let from = utcb.receive as u32;
        if from == raw::NOBODY {
            utcb.peer = u64::from(raw::NOBODY);
            self.unblock(sender);
            return ReceiveOutcome::Message(sender);
        }
        let timeout = receive_timeout(utcb);
        // A caller's partner runs, so it has not sent to the caller; what that has lent stays lent.
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

    /// Whether nothing is there that a thread could receive.
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
        // As in the fast paths, those that are in registers go over whatever the length.
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

    /// The current thread and perhaps another one, which was blocked, can run.
    pub(super) fn schedule_both(&mut self, woken: Slot) {
        if woken == Slot::NONE {
            return;
        }
        match K::PATH {
            Path::Open => self.open_send(woken),
            Path::Interface => self.enqueue_schedule(woken, Hint::CurrentOrNew),
        }
    }

    /// So can the thread whose message was taken. Of two that were blocked, L4 takes the higher.
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

    /// The current thread cannot go on; perhaps another one can for that.
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
