//! The interface to the scheduler (Greenaway 2007, section 3.2), and its implementations: direct or
//! strict, with each kind of queue.
//!
//! A caller first changes the TCBs, and then calls one of these functions:
//!
//! | change | without a decision | with a decision who runs |
//! |---|---|---|
//! | a thread became ready | `enqueue` | `enqueue_schedule` |
//! | a thread blocked | `dequeue` | `dequeue_schedule` |
//! | one became ready and one blocked | `swap` | `swap_schedule` |
//! | none | | `schedule` |
//!
//! **The ceiling** (section 3.3.3) is an upper bound of the priorities of the threads on the queue
//! that could run. It rises when a thread is enqueued, and falls when the queue is searched. A
//! thread that is not below it has the highest priority, without a search.

use super::State;
use crate::list::Slot;
use crate::statistics::Event;
use crate::variant::{Inheritance, Queueing, Switching, Variant};

/// The thread that would run if the decision were made at the place of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// The highest thread.
    HighestPriority,
    /// The thread that was just enqueued.
    New,
    /// The higher of the new thread and the current one.
    CurrentOrNew,
}

impl<K: Variant> State<K> {
    pub(super) fn enqueue(&mut self, new: Slot) {
        let is_wanted = K::QUEUEING == Queueing::Eager || new != self.decision.current;
        if is_wanted && self.tcbs[new].is_runnable() && !self.tcbs[new].queued {
            self.push_back(new);
        }
    }

    pub(super) fn dequeue(&mut self, old: Slot) {
        if self.tcbs[old].queued {
            self.take_off(old);
        }
    }

    pub(super) fn swap(&mut self, new: Slot, old: Slot) {
        if K::QUEUEING == Queueing::Eager {
            self.dequeue(old);
        }
        self.enqueue(new);
    }

    /// Lets the highest thread run. The current one stays if no thread is higher.
    pub(super) fn schedule(&mut self) {
        let best = self.look_up();
        let ceiling = self.priority_of(best);
        let current = self.decision.current;
        let stays = current != Slot::NONE
            && self.tcbs[current].is_runnable()
            && self.priority_of(current) >= ceiling;
        if K::QUEUEING != Queueing::Exact {
            self.decision.ceiling = ceiling;
        }
        if !stays {
            self.run(best);
        }
    }

    pub(super) fn enqueue_schedule(&mut self, new: Slot, hint: Hint) {
        if !self.tcbs[new].is_runnable() {
            return self.keep_current();
        }
        let current = self.priority_of(self.decision.current);
        let priority = self.priority_of(new);
        match (K::SWITCHING, hint) {
            (_, Hint::HighestPriority) => {
                self.enqueue(new);
                self.schedule();
            }
            (Switching::Direct, Hint::New) => self.run_new(new),
            (Switching::Strict, _) if current.max(priority) < self.decision.ceiling => {
                self.enqueue(new);
                self.schedule();
            }
            _ if priority > current => self.run_new(new),
            _ => self.enqueue(new),
        }
    }

    /// Schedules after the current thread has blocked.
    pub(super) fn dequeue_schedule(&mut self, old: Slot, hint: Hint) {
        debug_assert_eq!((old, hint), (self.decision.current, Hint::HighestPriority));
        self.count(Event::Blocked);
        if K::QUEUEING == Queueing::Eager {
            self.dequeue(old);
        }
        self.schedule();
    }

    /// Schedules after the current thread has blocked and another one has become ready.
    pub(super) fn swap_schedule(&mut self, new: Slot, old: Slot, hint: Hint) {
        debug_assert_eq!((old, hint), (self.decision.current, Hint::New));
        self.count(Event::Blocked);
        let is_highest = match K::SWITCHING {
            Switching::Direct => true,
            Switching::Strict => self.priority_of(new) >= self.decision.ceiling,
        };
        if is_highest && self.tcbs[new].is_runnable() {
            // `old` blocks and `new` was blocked, so `run` would find neither of them on the queue.
            if K::QUEUEING == Queueing::Eager {
                self.swap(new, old);
            }
            self.count(Event::Switched);
            self.decision.current = new;
        } else {
            self.swap(new, old);
            self.schedule();
        }
    }

    /// Moves the current thread behind the others of its priority, with a new timeslice.
    pub(super) fn rotate(&mut self) {
        let old = self.decision.current;
        self.tcbs[old].slice_left_ticks = self.tcbs[old].slice_ticks;
        self.dequeue(old);
        self.push_back(old);
        self.decision.current = Slot::NONE;
        self.schedule();
        if self.decision.current != old {
            self.count(Event::Switched);
        }
    }

    /// Makes `next` the current thread. The former one is enqueued at the front of its list, if it
    /// could go on and is not enqueued.
    pub(super) fn run(&mut self, next: Slot) {
        let old = std::mem::replace(&mut self.decision.current, next);
        if next == old {
            return;
        }
        if next != Slot::NONE && K::QUEUEING == Queueing::Exact {
            self.dequeue(next);
        }
        if old == Slot::NONE {
            return;
        }
        self.count(Event::Switched);
        if self.tcbs[old].is_runnable() && !self.tcbs[old].queued {
            self.count(Event::EnqueuedLate);
            self.push_front(old);
        }
    }

    fn run_new(&mut self, new: Slot) {
        if K::QUEUEING == Queueing::Eager {
            self.enqueue(new);
        }
        self.run(new);
    }

    /// Schedules after a step in which no thread became ready. The current thread may have blocked,
    /// or have lost a priority that was lent to it.
    pub(super) fn keep_current(&mut self) {
        let current = self.decision.current;
        let is_gone = current != Slot::NONE && !self.tcbs[current].is_runnable();
        if is_gone || K::INHERITANCE == Inheritance::ThroughCalls {
            self.schedule();
        }
    }

    /// The first thread on the queue that can run, or `NONE`. Threads before it are dequeued.
    fn look_up(&mut self) -> Slot {
        self.count(Event::LookedUp);
        loop {
            let first = self.ready.first();
            if first == Slot::NONE || self.tcbs[first].is_runnable() {
                return first;
            }
            self.count(Event::DequeuedLate);
            self.take_off(first);
        }
    }

    pub(super) fn priority_of(&self, slot: Slot) -> i32 {
        if slot == Slot::NONE { -1 } else { i32::from(self.tcbs[slot].priority) }
    }

    pub(super) fn push_back(&mut self, slot: Slot) {
        let priority = self.put_on(slot);
        self.ready.push_back(slot, priority);
    }

    pub(super) fn push_front(&mut self, slot: Slot) {
        let priority = self.put_on(slot);
        self.ready.push_front(slot, priority);
    }

    fn put_on(&mut self, slot: Slot) -> u8 {
        self.count(Event::Enqueued);
        let tcb = &mut self.tcbs[slot];
        tcb.queued = true;
        self.decision.ceiling = self.decision.ceiling.max(i32::from(tcb.priority));
        tcb.priority
    }

    fn take_off(&mut self, slot: Slot) {
        self.count(Event::Dequeued);
        let tcb = &mut self.tcbs[slot];
        tcb.queued = false;
        self.ready.remove(slot, tcb.priority);
        if K::QUEUEING == Queueing::Exact {
            self.decision.ceiling = self.ready.highest();
        }
    }
}
