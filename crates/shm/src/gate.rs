//! A gate that threads pass without a lock, and that its keeper shuts on them.
//!
//! Whoever passes does so by what the keeper's state was at some epoch, and marks on a word of its
//! own what it is about. The keeper, before it changes that state or looks at it as a whole, shuts
//! the gate and then seizes what is under way; from then on that is the state's, and its thread
//! finds so when it leaves.
//!
//! On a passer's [`Way`] stand two gates: everybody's, and one that is shut for what concerns this
//! way alone. The keeper then need seize those only who have noted such an errand.
//!
//! ```text
//!   passer                              keeper, one at a time
//!   word = errand              (a)      epoch += 1                         (c)
//!   epoch as known?            (b)      word = errand ? errand | SEIZED    (d)
//!     no: leave, go the long way
//!   ... the errand ...
//!   word = INSIDE: was it SEIZED?
//!   ... what it leads to ...
//!   word = 0                                   word != 0: has the passer come out?
//! ```
//!
//! (a)(b) and (c)(d) are separated by SeqCst fences: either the passer sees the new epoch in (b),
//! or the keeper sees the errand in (d), or both (Dekker). Both is for the passer to undo.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_after_update};

const SEIZED: u32 = 1 << 31;
/// No errand any more, but the passer has not come out.
const INSIDE: u32 = 1 << 30;

/// One for all passers.
#[derive(Debug)]
pub struct Gate {
    epoch: AtomicU64,
}

/// The gates that a passer meets: everybody's, and its way's own.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a>(pub &'a Gate, pub &'a Gate);

/// One passer's word.
#[derive(Debug)]
pub struct Pass {
    word: AtomicU32,
}

impl Default for Gate {
    fn default() -> Self {
        Gate { epoch: AtomicU64::new(0) }
    }
}

impl Default for Pass {
    fn default() -> Self {
        Pass { word: AtomicU32::new(0) }
    }
}

impl Gate {
    /// What to pass by. The keeper asks, or somebody whom the keeper keeps out meanwhile.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Keeper: nobody enters by an earlier epoch any more. Those inside are for [`Pass::seize`].
    pub fn shut(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        fence_after_update();
    }
}

impl Way<'_> {
    /// What to pass by: see [`Gate::epoch`].
    #[inline(always)]
    pub fn epoch(self) -> u64 {
        // Both only grow: the sum stands as long as both do.
        self.0.epoch().wrapping_add(self.1.epoch())
    }
}

impl Pass {
    /// Passer: enters on an errand, not 0 and less than 2^30. False if a gate of the way has been
    /// shut since
    /// `epoch`: leave at once, and undo what a keeper has made of it if that says so.
    #[inline(always)]
    pub fn enter(&self, way: Way<'_>, epoch: u64, errand: u32) -> bool {
        // Releases what the passer has written about its errand to the acquire in `seize`.
        self.word.swap(errand, Ordering::SeqCst);
        fence_after_update();
        way.epoch() == epoch
    }

    /// Passer: the errand is over, and it comes out. False if it was seized.
    pub fn leave(&self) -> bool {
        self.word.swap(0, Ordering::AcqRel) & SEIZED == 0
    }

    /// Passer: the errand is over, and it comes out later. False if it was seized.
    #[inline]
    pub fn end(&self) -> bool {
        self.word.swap(INSIDE, Ordering::AcqRel) & SEIZED == 0
    }

    /// Passer, whose errand is over or was seized.
    #[inline]
    pub fn come_out(&self) {
        // Release pairs with the acquire in `is_inside`: what it did in there is done.
        self.word.store(0, Ordering::Release);
    }

    /// Keeper: whether one who may have entered before the gate was shut has not come out. What it
    /// has noted of its errand is read after this: it may be of one that has begun meanwhile, and
    /// then this one is over.
    pub fn is_inside(&self) -> bool {
        // Pairs with the release in `enter`, too.
        self.word.load(Ordering::Acquire) != 0
    }

    /// Keeper: the errand that is under way, if it was not seized before.
    pub fn seize(&self) -> Option<u32> {
        let seize = |word| (word != 0 && word & (SEIZED | INSIDE) == 0).then_some(word | SEIZED);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, seize).ok()
    }
}
