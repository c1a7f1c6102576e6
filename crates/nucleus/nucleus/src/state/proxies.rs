//! Proxies of threads of other kernels that send to a thread of this kernel, or wait for its
//! answer. A proxy is a TCB that is in send queues and lends its priority as a thread does. It
//! never runs. It may be out of date: its thread may have cancelled its wait.
//!
//! **Invariant**: a proxy that is not `Free` stands for the offer or wait in `offers`. Whether that
//! still exists is decided by the exchange that takes it.

use super::State;
use super::cluster_link::Cancelled;
use crate::cluster::envelope::{Envelope, SendFlags, Stage, StageVersion};
use crate::cluster::inbox::{Change, Topic};
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

    /// The slot of the proxy of a thread of another kernel.
    fn proxy(&self, kernel: u8, number: usize) -> Option<Slot> {
        let link = self.link.as_ref()?;
        let n_kernels = link.cluster.n_kernels();
        let distance = (usize::from(kernel) + n_kernels - usize::from(link.kernel)) % n_kernels;
        let is_one = distance != 0 && number < self.utcbs.len();
        is_one.then(|| Slot::new((distance * self.utcbs.len() + number) as u16))
    }

    /// The proxy of an existing thread of another kernel.
    #[cold]
    pub(super) fn find_proxy(&self, id: ThreadId) -> Option<Slot> {
        let link = self.link.as_ref()?;
        let is_there = link.cluster.envelope_of(id)?.name() == Some(id);
        self.proxy(id.kernel(), id.slot().index()).filter(|_| is_there)
    }

    /// The slot of a thread of this kernel, or of the proxy of another kernel's thread.
    pub(super) fn find_anywhere(&self, id: ThreadId) -> Option<Slot> {
        self.find(id).or_else(|| self.find_proxy(id))
    }

    /// Applies all changes that other kernels have posted.
    pub fn read_inbox(&mut self) {
        let Some(link) = &mut self.link else { return };
        let (kernel, cluster) = (link.kernel, &link.cluster);
        cluster.inbox(kernel).open(&mut link.cursor);
        let mut has_come = false;
        while let Some(change) = self.next_change() {
            self.apply(change);
            has_come = true;
        }
        if has_come && K::INHERITANCE == Inheritance::ThroughCalls {
            self.schedule();
        }
    }

    fn next_change(&mut self) -> Option<Change> {
        let link = self.link.as_mut()?;
        link.cluster.inbox(link.kernel).take(&mut link.cursor)
    }

    fn apply(&mut self, change: Change) {
        let own = Slot::new(change.number);
        match change.topic {
            Topic::Sender => self.update_proxy(change.from, change.number),
            Topic::Receiver => {
                self.fetch_notices(own);
                if self.waits_remotely(own) && self.collect_remote_result(own) {
                    self.wake_later(own);
                }
            }
            Topic::Name => {
                self.update_proxy(change.from, change.number);
                self.fail_waits_for_renamed(change.from, change.number);
            }
        }
    }

    /// Makes a thread ready. With inheritance, `read_inbox` and `expire` call the scheduler at
    /// their end, as priorities may change until then.
    pub(super) fn wake_later(&mut self, slot: Slot) {
        match K::INHERITANCE {
            Inheritance::None => self.wake(slot),
            Inheritance::ThroughCalls => self.enqueue(slot),
        }
    }

    fn update_proxy(&mut self, kernel: u8, number: u16) {
        let Some(proxy) = self.proxy(kernel, number.into()) else { return };
        let Some(link) = &mut self.link else { return };
        let envelope = link.cluster.envelope(kernel, number.into());
        let version = envelope.version();
        let place = &mut link.offers[proxy.index() - self.utcbs.len()];
        let is_same = place.continues(version) && version.stage() != Stage::Idle;
        if self.tcbs[proxy].status != Status::Free && is_same {
            let priority = envelope.priority();
            return self.set_proxy_priority(proxy, priority);
        }
        let (name, to, priority) = (envelope.name(), envelope.partner(), envelope.priority());
        let lends = version.stage() == Stage::Waiting && envelope.flags().has(SendFlags::CALL);
        *place = version;
        self.free_proxy(proxy);
        let to = ThreadId::from_raw(to).and_then(|to| self.find(to));
        let (Some(name), Some(to)) = (name, to) else { return };
        let partner = self.tcbs[to].id.raw();
        let tcb = &mut self.tcbs[proxy];
        (tcb.id, tcb.priority, tcb.partner) = (name, priority, partner);
        match version.stage() {
            Stage::Offered => self.deliver_or_queue(proxy, to),
            // The thread's message was delivered, and the thread waits for the answer.
            Stage::Waiting if lends => self.record_caller(proxy, to),
            _ => {}
        }
    }

    fn set_proxy_priority(&mut self, proxy: Slot, priority: u8) {
        if self.tcbs[proxy].priority == priority {
            return;
        }
        self.change_priority(proxy, priority);
        if let Some(server) = self.lending_to(proxy) {
            self.set_lender_priority(server, proxy, priority);
        }
    }

    /// Delivers an offered message to a thread that waits for it. Otherwise the proxy queues up.
    fn deliver_or_queue(&mut self, proxy: Slot, to: Slot) {
        if self.accepts(to, self.tcbs[proxy].id.raw()) {
            let was_remote = self.waits_remotely(to);
            if !was_remote || matches!(self.cancel_remote_wait(to), Cancelled::Now(_)) {
                return self.deliver(proxy, to, was_remote);
            }
        }
        if self.flags(proxy).has(SendFlags::AT_ONCE) {
            self.refuse(proxy);
        } else {
            self.queue_proxy(proxy, to);
        }
    }

    /// Delivers an offered message to a waiting thread, unless the offer was withdrawn.
    fn deliver(&mut self, proxy: Slot, to: Slot, was_remote: bool) {
        let Some(flags) = self.take_offer(proxy, to) else {
            if was_remote {
                self.wait_remotely(to, SendFlags::SEND);
            }
            return;
        };
        self.unblock(to);
        self.finish(to, Ok(Sender::Thread(self.tcbs[proxy].id)));
        if flags.has(SendFlags::CALL) {
            self.record_caller(proxy, to);
        }
        self.wake_later(to);
    }

    fn record_caller(&mut self, proxy: Slot, server: Slot) {
        let partner = self.tcbs[server].id.raw();
        let tcb = &mut self.tcbs[proxy];
        (tcb.status, tcb.partner) = (Status::Receiving, partner);
        self.lend(proxy, server);
    }

    fn queue_proxy(&mut self, proxy: Slot, to: Slot) {
        let flags = self.flags(proxy);
        let lends = flags.has(SendFlags::CALL) || flags.has(SendFlags::POLL);
        self.tcbs[proxy].status = Status::Sending;
        self.join_send_queue(proxy, to);
        if lends {
            self.lend(proxy, to);
        }
    }

    fn flags(&self, proxy: Slot) -> SendFlags {
        self.envelope(proxy).flags()
    }

    fn envelope(&self, proxy: Slot) -> &Envelope {
        let link = self.link.as_ref().expect("a kernel with proxies has a cluster");
        let (n_kernels, n_threads) = (link.cluster.n_kernels(), self.utcbs.len());
        let kernel = (usize::from(link.kernel) + proxy.index() / n_threads) % n_kernels;
        link.cluster.envelope(kernel as u8, proxy.index() % n_threads)
    }

    fn version(&self, proxy: Slot) -> StageVersion {
        let link = self.link.as_ref().expect("a kernel with proxies has a cluster");
        link.offers[proxy.index() - self.utcbs.len()]
    }

    /// Copies the offered message of a proxy and takes the offer. `None`: it was withdrawn.
    fn take_offer(&mut self, proxy: Slot, to: Slot) -> Option<SendFlags> {
        let link = self.link.as_ref().expect("a kernel with proxies has a cluster");
        let version = self.version(proxy);
        let id = self.tcbs[proxy].id;
        let envelope = link.cluster.envelope(id.kernel(), id.slot().index());
        let flags = envelope.flags();
        let utcb = &mut self.utcbs[to.index()];
        utcb.tag = envelope.read(&mut utcb.words);
        let next = if flags.has(SendFlags::CALL) { Stage::Waiting } else { Stage::Taken };
        if !envelope.exchange(version, next) {
            return None;
        }
        // A caller without a receive deadline need not know when its wait for the answer begins.
        if !flags.has(SendFlags::CALL) || flags.has(SendFlags::TIMED) {
            self.post_to_sender(proxy);
        }
        self.count(Event::Transferred);
        Some(flags)
    }

    /// Takes the message of a proxy in the current thread's send queue. `false`: it was withdrawn.
    pub(super) fn take_from_proxy(&mut self, proxy: Slot, me: Slot) -> bool {
        let Some(flags) = self.take_offer(proxy, me) else {
            self.free_proxy(proxy);
            return false;
        };
        self.finish(me, Ok(Sender::Thread(self.tcbs[proxy].id)));
        if flags.has(SendFlags::CALL) {
            self.leave_send_queue(proxy);
            self.tcbs[proxy].status = Status::Receiving;
        } else {
            self.free_proxy(proxy);
        }
        true
    }

    /// Refuses an offer whose timeout is zero.
    fn refuse(&mut self, proxy: Slot) {
        if self.envelope(proxy).exchange(self.version(proxy), Stage::Refused) {
            self.post_to_sender(proxy);
        }
    }

    fn post_to_sender(&mut self, proxy: Slot) {
        let id = self.tcbs[proxy].id;
        if let Some(link) = &mut self.link {
            link.post(id.kernel(), Topic::Receiver, id.slot().index());
        }
    }

    /// Frees a proxy, whose thread neither sends nor waits any more.
    pub(super) fn free_proxy(&mut self, proxy: Slot) {
        if self.tcbs[proxy].status != Status::Free {
            self.leave_send_queue(proxy);
            self.unblock(proxy);
            self.tcbs[proxy].status = Status::Free;
        }
    }
}
