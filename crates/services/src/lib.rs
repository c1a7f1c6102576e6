//! Android's core services on Baton.
//!
//! - [`intent`]: intents, and the filters and manifests that they are matched with.
//! - [`process`]: the process manager.
//! - [`broadcast`]: the broadcast service.
//! - [`looper`]: a thread that runs messages by priority. [`local`]: broadcasts within a process.
#![deny(unsafe_code)]

#[cfg(not(loom))]
pub mod broadcast;
#[cfg(not(loom))]
pub mod intent;
#[cfg(not(loom))]
pub mod local;
#[cfg(not(loom))]
pub mod looper;
#[cfg(not(loom))]
pub mod process;

// The model checker sees the queues of broadcasts alone.
#[cfg(loom)]
#[allow(unsafe_code)]
#[path = "broadcast/queue.rs"]
mod queue;
#[cfg(loom)]
#[path = "broadcast/sync.rs"]
mod sync;
