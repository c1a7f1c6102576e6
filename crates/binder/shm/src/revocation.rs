//! Operations that threads begin without a lock and that the keeper, a thread that holds the lock,
//! can take over.
//!
//! A thread enters on the basis of the keeper's state at some epoch, and publishes its operation in
//! a word of its own. The keeper revokes entries before it changes that state or examines it as a
//! whole. Then it takes over the operations in progress. An operation that was taken over belongs
//! to the keeper's state, and its thread learns so when it leaves.
//!
//! A thread enters under two [`Revocations`]: one for all threads, and one for its own route. A
//! keeper that revokes a single route takes over only the threads that have noted an operation on
//! it.
//!
//! ```text
//!   thread                           keeper, one at a time
//!   word = operation           (a)   epoch += 1                                     (c)
//!   epoch as known?            (b)   word = operation ? operation | TAKEN_OVER : 0  (d)
//!     no: leave, take the slow path
//!   ... the operation ...
//!   word = INSIDE: was it TAKEN_OVER?
//!   ... consequences of the operation ...
//!   word = 0                         word != 0: has the thread come out?
//! ```
//!
//! SeqCst fences separate (a) from (b) and (c) from (d): either the thread sees the new epoch in
//! (b), or the keeper sees the operation in (d), or both (Dekker). If both happen, the thread
//! undoes its part.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_after_update};

const TAKEN_OVER: u32 = 1 << 31;
/// The operation is over, but its thread has not come out.
const INSIDE: u32 = 1 << 30;

/// The epoch of the entries of all threads, or of those on one route.
#[derive(Debug)]
pub struct Revocation {
    epoch: AtomicU64,
}

/// The two revocations under which a thread enters: that of all threads and that of its route.
#[derive(Clone, Copy, Debug)]
pub struct Revocations<'a>(pub &'a Revocation, pub &'a Revocation);

/// The word of one thread.
#[derive(Debug)]
pub struct Entry {
    word: AtomicU32,
}

impl Default for Revocation {
    fn default() -> Self {
        Revocation { epoch: AtomicU64::new(0) }
    }
}

impl Default for Entry {
    fn default() -> Self {
        Entry { word: AtomicU32::new(0) }
    }
}

impl Revocation {
    /// The current epoch, as a basis for [`Entry::enter`]. Called by the keeper, or by a thread
    /// that keeps the keeper out meanwhile.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Prevents entries by an earlier epoch. The keeper takes over threads that have entered by
    /// [`Entry::take_over`].
    pub fn revoke(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        fence_after_update();
    }
}

impl Revocations<'_> {
    /// The current epoch of both: see [`Revocation::epoch`].
    #[inline(always)]
    pub fn epoch(self) -> u64 {
        // Both epochs only grow, so the sum is unchanged only if both are.
        self.0.epoch().wrapping_add(self.1.epoch())
    }
}

impl Entry {
    /// Enters with an operation, which is not 0 and less than 2^30. Returns false if entries were
    /// revoked since `epoch`. The thread then leaves at once, and undoes the operation if the
    /// keeper took it over.
    #[inline(always)]
    pub fn enter(&self, revocations: Revocations<'_>, epoch: u64, operation: u32) -> bool {
        // Releases the thread's notes about its operation to the acquire in `take_over`.
        self.word.swap(operation, Ordering::SeqCst);
        fence_after_update();
        revocations.epoch() == epoch
    }

    /// Ends the operation and comes out. Returns false if the keeper took the operation over.
    pub fn leave(&self) -> bool {
        self.word.swap(0, Ordering::AcqRel) & TAKEN_OVER == 0
    }

    /// Ends the operation without coming out yet. Returns false if the keeper took the operation
    /// over.
    #[inline]
    pub fn end(&self) -> bool {
        self.word.swap(INSIDE, Ordering::AcqRel) & TAKEN_OVER == 0
    }

    /// Comes out after an operation that is over or was taken over.
    #[inline]
    pub fn come_out(&self) {
        // Release pairs with the acquire in `is_inside`: the thread's work inside is complete.
        self.word.store(0, Ordering::Release);
    }

    /// Whether a thread that may have entered before the revocation has not come out. Called by the
    /// keeper, which reads the thread's notes afterwards. If they concern a later operation, the
    /// earlier one is over.
    pub fn is_inside(&self) -> bool {
        // Also pairs with the release in `enter`.
        self.word.load(Ordering::Acquire) != 0
    }

    /// Takes over the operation in progress, if there is one that was not taken over before. Called
    /// by the keeper.
    pub fn take_over(&self) -> Option<u32> {
        let take_over =
            |word| (word != 0 && word & (TAKEN_OVER | INSIDE) == 0).then_some(word | TAKEN_OVER);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, take_over).ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The largest operation, and the smallest.
    const OPERATIONS: [u32; 2] = [INSIDE - 1, 1];

    #[test]
    fn a_thread_enters_by_the_epoch_of_both_revocations() {
        let (all, route) = (Revocation::default(), Revocation::default());
        let (both, entry) = (Revocations(&all, &route), Entry::default());
        for operation in OPERATIONS {
            for revoked in [&all, &route] {
                let epoch = both.epoch();
                assert!(entry.enter(both, epoch, operation));
                assert!(entry.leave());
                revoked.revoke();
                assert_ne!(both.epoch(), epoch);
                assert!(!entry.enter(both, epoch, operation), "by an epoch that has ended");
                assert!(entry.leave(), "and nobody has taken it over");
                assert!(entry.enter(both, both.epoch(), operation));
                assert!(entry.leave());
            }
        }
        assert_eq!((all.epoch(), route.epoch(), both.epoch()), (2, 2, 4));
    }

    /// An operation is taken over at most once, before its thread ends or leaves it.
    #[test]
    fn an_operation_is_its_threads_or_its_keepers() {
        for operation in OPERATIONS {
            type End = fn(&Entry) -> bool;
            for (end, stays_inside) in [(Entry::leave as End, false), (Entry::end, true)] {
                let (revocation, entry) = (Revocation::default(), Entry::default());
                let both = Revocations(&revocation, &revocation);
                let enter = || assert!(entry.enter(both, 0, operation));
                assert_eq!((entry.take_over(), entry.is_inside()), (None, false));
                enter();
                assert!(entry.is_inside());
                assert!(end(&entry), "nobody has taken it over");
                assert_eq!((entry.take_over(), entry.is_inside()), (None, stays_inside));
                entry.come_out();
                assert!(!entry.is_inside());
                enter();
                assert_eq!(entry.take_over(), Some(operation));
                assert_eq!((entry.take_over(), entry.is_inside()), (None, true), "once");
                assert!(!end(&entry), "it is the keeper's");
                assert_eq!((entry.take_over(), entry.is_inside()), (None, stays_inside));
            }
        }
    }
}
