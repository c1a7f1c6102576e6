//! The atomics and the parking of the barrier and of stages: the standard library's, or loom's
//! under the model checker. So are the words of the heap: memory below 4 GiB, or the model's.

#[cfg(not(loom))]
pub use {
    crate::memory::{load32, zeroed},
    std::sync::Mutex,
    std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    std::thread::{Thread, current, park},
};
#[cfg(loom)]
pub use {
    crate::model_memory::{load32, zeroed},
    loom::sync::Mutex,
    loom::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
    loom::thread::{Thread, current, park},
};
