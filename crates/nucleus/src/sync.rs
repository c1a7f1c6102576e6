//! What kernels of one cluster share: the processor's atomics and the system's locks, or loom's.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

/// Gives the processor to whoever is waited for.
pub(crate) fn give_way() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}
