//! The atomics and locks of the structures that kernels share: the standard library's, or loom's.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};

/// Yields the processor to the OS thread that this one waits for.
pub(crate) fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}
