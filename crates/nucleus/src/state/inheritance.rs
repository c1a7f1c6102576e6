//! Priority inheritance through calls: a server runs at the highest priority of its own and its
//! callers', and so does whom it calls in turn.
//!
//! ```text
//!  A (9) --calls--> B (3) --calls--> C (5)        B and C run at 9
//! ```
//!
//! A thread lends from when it blocks in a call until it is answered, or gives up. Lenders stand in
//! a bitmap queue at their server, so the highest is found in constant time; a change goes down the
//! chain of calls as far as it makes a difference.
//!
//! Threads that call each other in a circle never run, and keep what they were lent until one of
//! them gives up.
//!
//! The assembly path writes its one caller's name into the server's `caller` instead, and the
//! server's priority beside it. `settle` gives that caller its place among the others: everything
//! here does so first.

use super::State;
use crate::list::Slot;
use crate::tcb::{Lending, Status};
use crate::thread_id::ThreadId;
use crate::variant::{Inheritance, Variant};

impl<K: Variant> State<K> {
    /// A thread that blocks in a call lends its priority.
    pub(super) fn lend(&mut self, caller: Slot, server: Slot) {
        if K::INHERITANCE == Inheritance::None {
            return;
        }
        self.settle(server);
        self.tcbs[caller].lending = Lending::Priority;
        let priority = self.tcbs[caller].priority;
        self.lenders.insert(server, caller, priority);
        self.update(server);
    }

    /// The same, if the server is not another kernel's.
    pub(super) fn lend_locally(&mut self, caller: Slot, server: u32) {
        if let Some(server) = ThreadId::from_raw(server).and_then(|id| self.find(id)) {
            self.lend(caller, server);
        }
    }

    /// A thread that lends its priority takes it back, before its partner is forgotten.
    pub(super) fn take_back(&mut self, caller: Slot) {
        if K::INHERITANCE == Inheritance::None {
            return;
        }
        if let Some(server) = self.lending_to(caller) {
            self.settle(server);
            self.tcbs[caller].lending = Lending::Nothing;
            self.lenders.remove(server, caller);
            self.update(server);
        }
    }

    /// A thread's own priority, or that of one of its lenders, has changed.
    pub(super) fn update(&mut self, first: Slot) {
        let mut server = first;
        loop {
            self.settle(server);
            let lent = match K::INHERITANCE {
                Inheritance::None => -1,
                Inheritance::ThroughCalls => self.lenders.highest(server),
            };
            let tcb = &mut self.tcbs[server];
            let floor = tcb.base_priority.max(lent.max(0) as u8);
            tcb.floor = floor;
            if tcb.priority == floor {
                return;
            }
            self.change_priority(server, floor);
            let Some(next) = self.lending_to(server) else { return };
            self.settle(next);
            self.lenders.change_priority(next, server, floor);
            server = next;
        }
    }

    /// The priority of one who lends it has changed elsewhere.
    pub(super) fn set_lender_priority(&mut self, server: Slot, lender: Slot, priority: u8) {
        self.settle(server);
        self.lenders.change_priority(server, lender, priority);
        self.update(server);
    }

    fn settle(&mut self, server: Slot) {
        if K::INHERITANCE == Inheritance::None {
            return;
        }
        let caller = std::mem::take(&mut self.tcbs[server].caller);
        if let Some(caller) = ThreadId::from_raw(caller) {
            let priority = self.tcbs[caller.slot()].priority;
            self.lenders.insert(server, caller.slot(), priority);
            let tcb = &mut self.tcbs[server];
            tcb.floor = tcb.floor.max(priority);
        }
    }

    /// Moves a thread to where its new priority belongs, wherever it waits.
    pub(super) fn change_priority(&mut self, slot: Slot, priority: u8) {
        let queued = self.tcbs[slot].queued;
        self.dequeue(slot);
        self.tcbs[slot].priority = priority;
        if queued && self.tcbs[slot].is_runnable() {
            self.push_back(slot);
        }
        if self.waits_remotely(slot) {
            return self.publish_priority(slot);
        }
        let Status::Sending = self.tcbs[slot].status else { return };
        if let Some(receiver) = ThreadId::from_raw(self.tcbs[slot].partner) {
            self.send_queues.change_priority(receiver.slot(), slot, priority);
        }
    }
}
