//! Android's core services on Baton.
#![forbid(unsafe_code)]

pub mod intent;
