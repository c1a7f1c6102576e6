//! The same decisions as by the interface, made where they arise: direct process switch and lazy
//! queueing in the form that L4 had before (Greenaway 2007, figure 3.1). What the interface costs
//! is the difference between these and `scheduler`.

use super::State;
use crate::list::Slot;
use crate::statistics::Event;
use crate::variant::{Queueing, Variant};

impl<K: Variant> State<K> {
    /// A message was sent or received, and both parties can run.
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

    /// The current thread has sent, and blocks to receive. `is_call`: from the same thread.
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

    /// The current thread blocks, and has sent to nobody.
    pub(super) fn open_block(&mut self, receives: bool) {
        self.count(Event::Blocked);
        if K::QUEUEING == Queueing::HalfLazy && receives {
            self.dequeue(self.decision.current);
        }
        self.schedule();
    }
}
