//! The atomics of the queues: std's, or loom's under the model checker.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
