//! Entries that threads make without a lock, and that their keeper revokes.
//!
//! Whoever passes does so by what the keeper's state was at some epoch, and marks on a word of its
//! own what it is about. The keeper, before it changes that state or looks at it as a whole,
//! revokes entries and then takes over what is under way; from then on that is the state's, and its
//! thread finds so when it leaves.
//!
//! A passer's [`Revocations`] are two: everybody's, and one that is revoked for what
//! concerns this way alone. The keeper then need take over those only who have noted such an
//! operation.
//!
//! ```text
//!   passer                           keeper, one at a time
//!   word = operation           (a)   epoch += 1                                     (c)
//!   epoch as known?            (b)   word = operation ? operation | TAKEN_OVER : 0  (d)
//!     no: leave, go the long way
//!   ... the operation ...
//!   word = INSIDE: was it TAKEN_OVER?
//!   ... what it leads to ...
//!   word = 0                         word != 0: has the passer come out?
//! ```
//!
//! (a)(b) and (c)(d) are separated by SeqCst fences: either the passer sees the new epoch in (b),
//! or the keeper sees the operation in (d), or both (Dekker). Both is for the passer to undo.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_after_update};

const TAKEN_OVER: u32 = 1 << 31;
/// No operation any more, but the passer has not come out.
const INSIDE: u32 = 1 << 30;

/// One for all passers.
#[derive(Debug)]
pub struct Revocation {
    epoch: AtomicU64,
}

/// The revocations that a passer meets: everybody's, and its way's own.
#[derive(Clone, Copy, Debug)]
pub struct Revocations<'a>(pub &'a Revocation, pub &'a Revocation);

/// One passer's word.
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
    /// What to pass by. The keeper asks, or somebody whom the keeper keeps out meanwhile.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Keeper: nobody enters by an earlier epoch any more. Those inside are for
    /// [`Entry::take_over`].
    pub fn revoke(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        fence_after_update();
    }
}

impl Revocations<'_> {
    /// What to pass by: see [`Revocation::epoch`].
    #[inline(always)]
    pub fn epoch(self) -> u64 {
        // Both only grow: the sum stands as long as both do.
        self.0.epoch().wrapping_add(self.1.epoch())
    }
}

impl Entry {
    /// Passer: enters on an operation, not 0 and less than 2^30. False if a revocation of the way
    /// has been shut since `epoch`: leave at once, and undo what a keeper has made of it if that
    /// says so.
    #[inline(always)]
    pub fn enter(&self, way: Revocations<'_>, epoch: u64, operation: u32) -> bool {
        // Releases what the passer has written about its operation to the acquire in `take_over`.
        self.word.swap(operation, Ordering::SeqCst);
        fence_after_update();
        way.epoch() == epoch
    }

    /// Passer: the operation is over, and it comes out. False if it was taken_over.
    pub fn leave(&self) -> bool {
        self.word.swap(0, Ordering::AcqRel) & TAKEN_OVER == 0
    }

    /// Passer: the operation is over, and it comes out later. False if it was taken_over.
    #[inline]
    pub fn end(&self) -> bool {
        self.word.swap(INSIDE, Ordering::AcqRel) & TAKEN_OVER == 0
    }

    /// Passer, whose operation is over or was taken_over.
    #[inline]
    pub fn come_out(&self) {
        // Release pairs with the acquire in `is_inside`: what it did in there is done.
        self.word.store(0, Ordering::Release);
    }

    /// Keeper: whether one who may have entered before entries were revoked has not come out.
    /// What it has noted of its operation is read after this: it may be of one that has begun
    /// meanwhile, and then this one is over.
    pub fn is_inside(&self) -> bool {
        // Pairs with the release in `enter`, too.
        self.word.load(Ordering::Acquire) != 0
    }

    /// Keeper: the operation that is under way, if it was not taken_over before.
    pub fn take_over(&self) -> Option<u32> {
        let take_over =
            |word| (word != 0 && word & (TAKEN_OVER | INSIDE) == 0).then_some(word | TAKEN_OVER);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, take_over).ok()
    }
}
