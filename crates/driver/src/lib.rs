//! Binder's driver of one process.
mod channel;
mod control;
pub mod device;
pub mod engine;
mod maps;
pub mod parcel;
pub mod process;
mod send;
pub mod state;
mod thread;
mod user;
