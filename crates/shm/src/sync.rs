//! The atomics: the processor's, or loom's.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// An exchange with which a Dekker begins: SeqCst, as the look that follows has to be. x86 has 2 ns
/// for it and 16 for a store and a fence.
#[inline]
pub fn exchange_then_look(word: &AtomicU32, value: u32) -> u32 {
    let before = word.swap(value, Ordering::SeqCst);
    // The model checker takes SeqCst accesses for acquire and release only.
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    before
}
