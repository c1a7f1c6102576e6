//! Binder's driver of one process.
pub mod device;
