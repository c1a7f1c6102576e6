//! Priority inheritance through calls: a server runs at the highest priority of itself and its
//! callers. So do the servers that it calls in turn.
//!
//! ```text
//!  A (9) --calls--> B (3) --calls--> C (5)        B and C run at 9
//! ```
//!
//! A thread lends its priority from when it blocks in a call until the call is answered or fails.
//! Lenders are in a bitmap queue of their server, so the highest is found in constant time. A
//! change goes along the chain of calls as far as it makes a difference.
//!
//! Threads that call each other in a circle never run. They keep the priorities that were lent to
//! them until one of the calls fails.
//!
//! The assembly path does not use that queue: it writes its one caller's id into the server's
//! `caller`, and the server's priority beside it. Every function here first calls `adopt_caller`,
//! which puts that caller into the queue.

use super::State;
use crate::list::Slot;
use crate::tcb::{Lending, Status};
use crate::thread_id::ThreadId;
use crate::variant::{Inheritance, Variant};

impl<K: Variant> State<K> {
    /// Lends the priority of a thread that blocks in a call.
    pub(super) fn lend(&mut self, caller: Slot, server: Slot) {
        if K::INHERITANCE == Inheritance::None {
            return;
        }
        self.adopt_caller(server);
        self.tcbs[caller].lending = Lending::Priority;
        let priority = self.tcbs[caller].priority;
        self.lenders.insert(server, caller, priority);
        self.update_priority(server);
    }

    /// Lends a thread's priority, if `server` is a thread of this kernel.
    pub(super) fn lend_locally(&mut self, caller: Slot, server: u32) {
        if let Some(server) = ThreadId::from_raw(server).and_then(|id| self.find(id)) {
            self.lend(caller, server);
        }
    }

    /// Ends a thread's lending. It comes before the thread's partner is cleared.
    pub(super) fn stop_lending(&mut self, caller: Slot) {
        if K::INHERITANCE == Inheritance::None {
            return;
        }
        if let Some(server) = self.lending_to(caller) {
            self.adopt_caller(server);
            self.tcbs[caller].lending = Lending::Nothing;
            self.lenders.remove(server, caller);
            self.update_priority(server);
        }
    }

    /// Recomputes the priority of a thread and of the servers along its chain of calls.
    pub(super) fn update_priority(&mut self, first: Slot) {
        let mut server = first;
        loop {
            self.adopt_caller(server);
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
            self.adopt_caller(next);
            self.lenders.change_priority(next, server, floor);
            server = next;
        }
    }

    /// Sets the priority of a lender that belongs to another kernel.
    pub(super) fn set_lender_priority(&mut self, server: Slot, lender: Slot, priority: u8) {
        self.adopt_caller(server);
        self.lenders.change_priority(server, lender, priority);
        self.update_priority(server);
    }

    fn adopt_caller(&mut self, server: Slot) {
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

    /// Sets a thread's priority, and moves the thread in the queue in which it waits.
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
