//! Deadlines and timeslices. The clock is in `kernel`: functions take the time as an argument, and
//! return the next deadline.

use super::State;
use crate::list::Slot;
use crate::message::{Cause, IpcError, Phase, Timeout};
use crate::tcb::Status;
use crate::variant::{Inheritance, Variant};

impl<K: Variant> State<K> {
    /// The earliest deadline of all waits, in nanoseconds.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ns, _)| deadline_ns)
    }

    /// Ends the waits whose deadline has come, with `Timeout`.
    pub fn expire(&mut self, now_ns: u64) {
        let mut is_over = false;
        while let Some((deadline_ns, slot)) = self.deadlines.first()
            && deadline_ns <= now_ns
        {
            if self.waits_remotely(slot) {
                if self.expire_remote_wait(slot, now_ns) {
                    self.wake_later(slot);
                    is_over = true;
                }
                continue;
            }
            let sends = self.tcbs[slot].status == Status::Sending;
            let phase = if sends { Phase::Send } else { Phase::Receive };
            self.fail_wait(slot, IpcError { phase, cause: Cause::Timeout });
            // One of the following waits may end the lending that this thread's priority depends
            // on.
            self.wake_later(slot);
            is_over = true;
        }
        if is_over && K::INHERITANCE == Inheritance::ThroughCalls {
            self.schedule();
        }
    }

    /// Takes a tick off the current thread's timeslice and lets the highest thread run, even if a
    /// direct switch chose another.
    pub fn tick(&mut self) {
        let current = self.decision.current;
        if current == Slot::NONE {
            return;
        }
        let left = &mut self.tcbs[current].slice_left_ticks;
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.rotate();
        } else {
            self.schedule();
        }
    }

    #[inline]
    pub(super) fn set_deadline(&mut self, slot: Slot, timeout: Timeout) {
        if let Timeout::At(deadline_ns) = timeout {
            self.tcbs[slot].timed = true;
            self.deadlines.insert(&mut self.deadline_positions, deadline_ns, slot);
        }
    }

    #[inline]
    pub(super) fn cancel_deadline(&mut self, slot: Slot) {
        if self.tcbs[slot].timed {
            self.tcbs[slot].timed = false;
            self.deadlines.remove(&mut self.deadline_positions, slot);
        }
    }
}
