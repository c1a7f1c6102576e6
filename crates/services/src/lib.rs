//! Android's core services on Baton.
//!
//! - [`process`]: the process manager.
#![deny(unsafe_code)]

pub mod process;
