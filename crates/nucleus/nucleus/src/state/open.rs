//! Scheduling decisions at the places where they arise, without the interface of `scheduler`:
//! direct process switch and lazy queueing as L4 had them before (Greenaway 2007, figure 3.1). The
//! difference to `scheduler` is the cost of the interface.

use super::State;
use crate::list::Slot;
use crate::statistics::Event;
use crate::variant::{Queueing, Variant};

impl<K: Variant> State<K> {
    /// Schedules after a transfer whose two parties can both run.
    pub(super) fn open_send(&mut self, other: Slot) {
        let current = self.decision.current;
        if !self.tcbs[other].is_runnable() {
            return;
        }
        if self.tcbs[other].priority > self.tcbs[current].priority {
            if !self.tcbs[current].queued {
                self.count(Event::EnqueuedLate);
                self.push_front(current);
            }
            self.count(Event::Switched);
            self.decision.current = other;
        } else if !self.tcbs[other].queued {
            self.push_back(other);
        }
    }

    /// Schedules after the current thread has sent to `other` and blocked to receive. `is_call`: it
    /// receives from `other`.
    pub(super) fn open_call(&mut self, other: Slot, is_call: bool) {
        self.count(Event::Blocked);
        let current = self.decision.current;
        if K::QUEUEING == Queueing::HalfLazy && !is_call {
            self.dequeue(current);
        }
        if !self.tcbs[other].is_runnable() {
            return self.schedule();
        }
        self.count(Event::Switched);
        self.decision.current = other;
    }

    /// Schedules after the current thread has blocked without having sent.
    pub(super) fn open_block(&mut self, receives: bool) {
        self.count(Event::Blocked);
        if K::QUEUEING == Queueing::HalfLazy && receives {
            self.dequeue(self.decision.current);
        }
        self.schedule();
    }
}
