//! Threads of other kernels that send to one of this, or call it and wait for its answer: each has
//! a proxy among the TCBs, which stands in send queues and lends its priority as a thread does. It
//! never runs, and it may be late: its thread may have given up.
//!
//! **Invariant**: a proxy that is not `Free` stands for the offer whose mark it has; whether there
//! still is such an offer is decided by the exchange that takes it.

use super::State;
use super::abroad::End;
use crate::cluster::envelope::{Envelope, Mark, Stage, Terms};
use crate::cluster::inbox::{Letter, Topic};
use crate::list::Slot;
use crate::statistics::Event;
use crate::tcb::Status;
use crate::thread_id::{Sender, ThreadId};
use crate::variant::{Inheritance, Variant};

impl<K: Variant> State<K> {
    #[inline]
    pub(super) fn is_proxy(&self, slot: Slot) -> bool {
        slot.index() >= self.utcbs.len()
    }

    /// The place of a thread of another kernel among the TCBs.
    fn proxy(&self, kernel: u8, number: usize) -> Option<Slot> {
        let abroad = self.abroad.as_ref()?;
        let n_kernels = abroad.cluster.n_kernels();
        let distance = (usize::from(kernel) + n_kernels - usize::from(abroad.kernel)) % n_kernels;
        let is_one = distance != 0 && number < self.utcbs.len();
        is_one.then(|| Slot::new((distance * self.utcbs.len() + number) as u16))
    }

    /// A thread of another kernel that is there.
    #[cold]
    pub(super) fn find_proxy(&self, id: ThreadId) -> Option<Slot> {
        let abroad = self.abroad.as_ref()?;
        let is_there = abroad.cluster.envelope_of(id)?.name() == Some(id);
        self.proxy(id.kernel(), id.slot().index()).filter(|_| is_there)
    }

    /// A thread of this kernel, or another one's.
    pub(super) fn find_anywhere(&self, id: ThreadId) -> Option<Slot> {
        self.find(id).or_else(|| self.find_proxy(id))
    }

    /// Looks at all that other kernels have written of.
    pub fn look(&mut self) {
        let Some(abroad) = &mut self.abroad else { return };
        let (kernel, cluster) = (abroad.kernel, &abroad.cluster);
        cluster.inbox(kernel).open(&mut abroad.cursor);
        let mut has_come = false;
        while let Some(letter) = self.next_letter() {
            self.look_at(letter);
            has_come = true;
        }
        if has_come && K::INHERITANCE == Inheritance::ThroughCalls {
            self.schedule();
        }
    }

    fn next_letter(&mut self) -> Option<Letter> {
        let abroad = self.abroad.as_mut()?;
        abroad.cluster.inbox(abroad.kernel).take(&mut abroad.cursor)
    }

    fn look_at(&mut self, letter: Letter) {
        let own = Slot::new(letter.number);
        match letter.topic {
            Topic::Sender => self.look_at_sender(letter.from, letter.number),
            Topic::Receiver => {
                self.fetch_notices(own);
                if self.is_abroad(own) && self.catch_up(own) {
                    self.wake_later(own);
                }
            }
            Topic::Name => {
                self.look_at_sender(letter.from, letter.number);
                self.tell_of_names(letter.from, letter.number);
            }
        }
    }

    /// A thread can run. The priorities that others have lent may still change before this look is
    /// over.
    pub(super) fn wake_later(&mut self, slot: Slot) {
        match K::INHERITANCE {
            Inheritance::None => self.wake(slot),
            Inheritance::ThroughCalls => self.enqueue(slot),
        }
    }

    fn look_at_sender(&mut self, kernel: u8, number: u16) {
        let Some(proxy) = self.proxy(kernel, number.into()) else { return };
        let Some(abroad) = &mut self.abroad else { return };
        let envelope = abroad.cluster.envelope(kernel, number.into());
        let mark = envelope.mark();
        let place = &mut abroad.marks[proxy.index() - self.utcbs.len()];
        let is_same = place.continues(mark) && mark.stage() != Stage::Idle;
        if self.tcbs[proxy].status != Status::Free && is_same {
            let priority = envelope.priority();
            return self.proxy_has_priority(proxy, priority);
        }
        let (name, to, priority) = (envelope.name(), envelope.partner(), envelope.priority());
        let lends = mark.stage() == Stage::Waiting && envelope.terms().has(Terms::CALL);
        *place = mark;
        self.dismiss(proxy);
        let to = ThreadId::from_raw(to).and_then(|to| self.find(to));
        let (Some(name), Some(to)) = (name, to) else { return };
        let partner = self.tcbs[to].id.raw();
        let tcb = &mut self.tcbs[proxy];
        (tcb.id, tcb.priority, tcb.partner) = (name, priority, partner);
        match mark.stage() {
            Stage::Offered => self.present(proxy, to),
            // Its message was handed over, and it waits for the answer.
            Stage::Waiting if lends => self.becomes_caller(proxy, to),
            _ => {}
        }
    }

    fn proxy_has_priority(&mut self, proxy: Slot, priority: u8) {
        if self.tcbs[proxy].priority == priority {
            return;
        }
        self.change_priority(proxy, priority);
        if let Some(server) = self.lending_to(proxy) {
            self.lender_has_priority(server, proxy, priority);
        }
    }

    /// A message is offered to a thread, which takes it now or later.
    fn present(&mut self, proxy: Slot, to: Slot) {
        if self.accepts(to, self.tcbs[proxy].id.raw()) {
            let was_abroad = self.is_abroad(to);
            if !was_abroad || matches!(self.give_up(to), End::Now(_)) {
                return self.hand_over(proxy, to, was_abroad);
            }
        }
        if self.terms(proxy).has(Terms::AT_ONCE) {
            self.refuse(proxy);
        } else {
            self.queue_proxy(proxy, to);
        }
    }

    /// A thread that waits for it gets the message, unless that was withdrawn.
    fn hand_over(&mut self, proxy: Slot, to: Slot, was_abroad: bool) {
        let Some(terms) = self.take_offer(proxy, to) else {
            if was_abroad {
                self.wait_abroad(to, Terms::SEND);
            }
            return;
        };
        self.unblock(to);
        self.finish(to, Ok(Sender::Thread(self.tcbs[proxy].id)));
        if terms.has(Terms::CALL) {
            self.becomes_caller(proxy, to);
        }
        self.wake_later(to);
    }

    fn becomes_caller(&mut self, proxy: Slot, server: Slot) {
        let partner = self.tcbs[server].id.raw();
        let tcb = &mut self.tcbs[proxy];
        (tcb.status, tcb.partner) = (Status::Receiving, partner);
        self.lend(proxy, server);
    }

    fn queue_proxy(&mut self, proxy: Slot, to: Slot) {
        let terms = self.terms(proxy);
        let lends = terms.has(Terms::CALL) || terms.has(Terms::POLL);
        self.tcbs[proxy].status = Status::Sending;
        self.join_send_queue(proxy, to);
        if lends {
            self.lend(proxy, to);
        }
    }

    fn terms(&self, proxy: Slot) -> Terms {
        self.envelope(proxy).terms()
    }

    fn envelope(&self, proxy: Slot) -> &Envelope {
        let abroad = self.abroad.as_ref().expect("whoever has proxies has a cluster");
        let (n_kernels, n_threads) = (abroad.cluster.n_kernels(), self.utcbs.len());
        let kernel = (usize::from(abroad.kernel) + proxy.index() / n_threads) % n_kernels;
        abroad.cluster.envelope(kernel as u8, proxy.index() % n_threads)
    }

    fn mark(&self, proxy: Slot) -> Mark {
        let abroad = self.abroad.as_ref().expect("whoever has proxies has a cluster");
        abroad.marks[proxy.index() - self.utcbs.len()]
    }

    /// Copies the message that a proxy stands for, and takes it. `None`: it was withdrawn.
    fn take_offer(&mut self, proxy: Slot, to: Slot) -> Option<Terms> {
        let abroad = self.abroad.as_ref().expect("whoever has proxies has a cluster");
        let mark = self.mark(proxy);
        let id = self.tcbs[proxy].id;
        let envelope = abroad.cluster.envelope(id.kernel(), id.slot().index());
        let terms = envelope.terms();
        let utcb = &mut self.utcbs[to.index()];
        utcb.tag = envelope.read(&mut utcb.words);
        let next = if terms.has(Terms::CALL) { Stage::Waiting } else { Stage::Taken };
        if !envelope.exchange(mark, next) {
            return None;
        }
        // One who waits for the answer, however long it takes, need not know that this has begun.
        if !terms.has(Terms::CALL) || terms.has(Terms::TIMED) {
            self.tell_sender(proxy);
        }
        self.count(Event::Transferred);
        Some(terms)
    }

    /// The current thread takes the message of a proxy that waits in its send queue. Says whether
    /// it was still there.
    pub(super) fn take_from_proxy(&mut self, proxy: Slot, me: Slot) -> bool {
        let Some(terms) = self.take_offer(proxy, me) else {
            self.dismiss(proxy);
            return false;
        };
        self.finish(me, Ok(Sender::Thread(self.tcbs[proxy].id)));
        if terms.has(Terms::CALL) {
            self.leave_send_queue(proxy);
            self.tcbs[proxy].status = Status::Receiving;
        } else {
            self.dismiss(proxy);
        }
        true
    }

    /// The message cannot be taken now, and will not be waited for.
    fn refuse(&mut self, proxy: Slot) {
        if self.envelope(proxy).exchange(self.mark(proxy), Stage::Refused) {
            self.tell_sender(proxy);
        }
    }

    fn tell_sender(&mut self, proxy: Slot) {
        let id = self.tcbs[proxy].id;
        if let Some(abroad) = &mut self.abroad {
            abroad.post(id.kernel(), Topic::Receiver, id.slot().index());
        }
    }

    /// A proxy stands for nothing any more.
    pub(super) fn dismiss(&mut self, proxy: Slot) {
        if self.tcbs[proxy].status != Status::Free {
            self.leave_send_queue(proxy);
            self.unblock(proxy);
            self.tcbs[proxy].status = Status::Free;
        }
    }
}
