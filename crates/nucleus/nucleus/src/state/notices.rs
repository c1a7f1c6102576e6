//! Messages that no thread sends: interrupts, and notices, which are bits that other threads set
//! (OKL4's asynchronous notification). They never block a sender.
//!
//! **Invariant**: an interrupt or a notice is in exactly one place: in its thread's TCB, or in the
//! message that the thread has received.

use super::State;
use crate::list::Slot;
use crate::message::Tag;
use crate::tcb::Status;
use crate::thread_id::{Sender, ThreadId, raw};
use crate::variant::Variant;

impl<K: Variant> State<K> {
    /// Records an interrupt in its handler's TCB until the handler receives it. An interrupt
    /// without a handler is dropped.
    pub fn interrupt(&mut self, number: u8) {
        let handler = self.handlers[usize::from(number)].and_then(|id| self.find(id));
        let Some(handler) = handler else { return };
        self.tcbs[handler].interrupts |= 1 << number;
        self.offer_signals(handler);
    }

    /// Sets the handler of an interrupt. `None`: it has none.
    pub fn attach(&mut self, number: u8, handler: Option<ThreadId>) {
        self.handlers[usize::from(number)] = handler;
    }

    pub(super) fn notify(&mut self, target: Slot, bits: u64) {
        self.tcbs[target].notices |= bits;
        self.offer_signals(target);
    }

    pub(super) fn accept_notices(&mut self, slot: Slot, bits: u64) {
        self.tcbs[slot].accepted_notices = bits;
        self.update_inbox(slot);
    }

    fn offer_signals(&mut self, slot: Slot) {
        self.update_inbox(slot);
        let tcb = &self.tcbs[slot];
        if tcb.status == Status::Receiving && self.take_signal(slot, tcb.partner) {
            self.unblock(slot);
            self.wake(slot);
        }
    }

    /// Receives an interrupt or the notices, if the source `from` includes them and there are some.
    pub(super) fn take_signal(&mut self, me: Slot, from: u32) -> bool {
        let tcb = &mut self.tcbs[me];
        let wanted = match from {
            raw::ANY => tcb.interrupts,
            _ => tcb.interrupts & one_interrupt(from),
        };
        let (sender, word) = if wanted != 0 {
            let number = wanted.trailing_zeros() as u8;
            tcb.interrupts &= !(1 << number);
            (Sender::Interrupt(number), None)
        } else if from == raw::ANY && tcb.notices & tcb.accepted_notices != 0 {
            let bits = tcb.notices & tcb.accepted_notices;
            tcb.notices &= !bits;
            (Sender::Notices, Some(bits))
        } else {
            return false;
        };
        self.update_inbox(me);
        let utcb = &mut self.utcbs[me.index()];
        utcb.tag = Tag::of_length(word.is_some().into()).raw();
        utcb.words[0] = word.unwrap_or(0);
        self.finish(me, Ok(sender));
        true
    }
}

/// The bit of the interrupt that a source names, or 0 if it names none.
pub(super) fn one_interrupt(from: u32) -> u64 {
    match from.wrapping_sub(raw::INTERRUPT) {
        number @ 0..64 => 1 << number,
        _ => 0,
    }
}
