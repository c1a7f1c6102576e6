//! Android's core services on Baton.
#![deny(unsafe_code)]

pub mod broadcast;
pub mod intent;
pub mod local;
pub mod looper;
