//! Android's core services on Baton.
//!
//! - [`intent`]: intents, and the filters and manifests that they are matched with.
//! - [`process`]: the process manager. [`zygote`]: a warm parent of its own, for any program.
//! - [`broadcast`]: the broadcast service.
//! - [`dump`]: what a service tells of itself.
//! - [`looper`]: a thread that runs messages by priority. [`local`]: broadcasts within a process.
#![deny(unsafe_code)]

pub mod broadcast;
#[cfg(not(loom))]
pub mod dump;
#[cfg(not(loom))]
pub mod intent;
#[cfg(not(loom))]
pub mod local;
#[cfg(not(loom))]
pub mod looper;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
pub mod zygote;
