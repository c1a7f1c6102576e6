//! Android's core services on Baton.
//!
//! - [`intent`]: intents, and the filters and manifests that they are matched with.
//! - [`process`]: the process manager.
#![deny(unsafe_code)]

pub mod intent;
pub mod process;
