//! A word by which one process lets another use something without asking: the *keeper* offers the
//! thing and keeps it, the *user* counts its uses.
//!
//! ```text
//!            offer(uses)                   withdraw(uses), all of them have come
//!   withdrawn ----------> offered, n uses ---------------------------------------> withdrawn
//!                          |         ^
//!                          +---------+  try_use: n + 1,  undo_use: n - 1
//! ```
//!
//! Each use reaches the keeper as a message, or is undone. The keeper counts them in private
//! memory, and can withdraw the offer only if no use is on its way. A new offer goes on with
//! another number than the last one ended with, so a user that read the old offer's description
//! cannot count itself into the new one.
//!
//! Neither trusts the other: a user that changes the word makes the keeper keep the thing, and a
//! keeper that changes it gets uses of what it does not keep.

use crate::sync::{AtomicU32, Ordering};

/// In the word: the thing is offered. Below it the uses, modulo 2^31.
const OFFERED: u32 = 1 << 31;

/// The word, in memory that both processes write.
#[derive(Clone, Copy, Debug)]
pub struct UseCount<'a> {
    word: &'a AtomicU32,
}

impl<'a> UseCount<'a> {
    /// The word of a thing. It begins as 0: withdrawn, with no use.
    pub fn new(word: &'a AtomicU32) -> UseCount<'a> {
        UseCount { word }
    }

    /// The keeper offers the thing, whose description it has written. `uses` is one more than at
    /// the end of the last offer.
    pub fn offer(self, uses: u32) {
        self.word.store(OFFERED | uses, Ordering::Release);
    }

    /// The keeper withdraws the offer if so many uses have been counted. False if others are on
    /// their way.
    pub fn withdraw(self, uses: u32) -> bool {
        self.change(OFFERED | uses, uses)
    }

    /// Whether no other uses than these have been counted: the keeper sees none on its way.
    pub fn has_come(self, uses: u32) -> bool {
        // Acquire: after everything by which the user has let the keeper know of a use.
        self.word.load(Ordering::Acquire) == OFFERED | uses
    }

    /// The user counts one use, if the thing is offered and `is_it` finds that its description is
    /// the right one. The caller's uses come one after the other.
    pub fn try_use(self, is_it: impl FnOnce() -> bool) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & OFFERED != 0 && is_it() && self.change(word, after(word))
    }

    /// The user's message will not come.
    pub fn undo_use(self) {
        let word = self.word.load(Ordering::Acquire);
        // A keeper that has withdrawn the offer all the same has harmed itself alone.
        let _ = self.change(word, word & OFFERED | word.wrapping_sub(1) & !OFFERED);
    }

    /// One attempt: of the two, only the other end may have changed the word meanwhile.
    fn change(self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The number of uses after one more, for the keeper, or the word with it.
pub fn after(uses: u32) -> u32 {
    uses & OFFERED | uses.wrapping_add(1) & !OFFERED
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_offer_ends_when_every_use_has_come() {
        let word = AtomicU32::new(0);
        let count = UseCount::new(&word);
        assert!(!count.try_use(|| true) && !count.withdraw(0), "nothing is offered");
        count.offer(1);
        assert!(!count.try_use(|| false) && count.try_use(|| true), "only of the right thing");
        assert!(!count.withdraw(1) && !count.has_come(1), "one is on its way");
        assert!(count.has_come(2));
        assert!(count.withdraw(2) && !count.try_use(|| true));
        count.offer(3);
        assert!(count.try_use(|| true));
        count.undo_use();
        assert!(count.withdraw(3));
    }

    #[test]
    fn uses_begin_again_after_the_largest_number() {
        let last = !OFFERED;
        assert_eq!((after(last), after(OFFERED | last)), (0, OFFERED));
        let word = AtomicU32::new(0);
        let count = UseCount::new(&word);
        count.offer(last);
        assert!(count.try_use(|| true) && count.withdraw(0));
        count.offer(0);
        count.undo_use();
        assert!(count.withdraw(last));
    }
}
