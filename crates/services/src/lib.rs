//! Android's core services on Baton.
#![deny(unsafe_code)]

pub mod broadcast;
#[cfg(not(loom))]
pub mod intent;
#[cfg(not(loom))]
pub mod local;
#[cfg(not(loom))]
pub mod looper;
