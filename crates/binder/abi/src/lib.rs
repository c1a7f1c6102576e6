//! The bytes that Baton's processes exchange.
//!
//! - [`uapi`]: Binder's command stream and objects, as Linux 6.12's header
//!   `linux/android/binder.h` lays them out (64-bit, protocol version 8).
//! - [`control`]: messages between an engine and the broker. [`claim`]: an engine's claims to the
//!   broker that succeeds a dead one.
//! - [`holder_list`]: which processes an owner has granted its nodes to.
//! - [`lane`]: the memory that two engines share.
//! - [`place`]: the path of the broker's socket.
//! - [`quota`]: how users share an amount, in the broker and in an engine.
//! - [`sched_priority`]: a scheduling policy and priority.
//!
//! This crate does no I/O. Every type that is read from foreign bytes is valid for any bit pattern;
//! the reader checks the value.
#![forbid(unsafe_code)]

pub mod claim;
pub mod control;
pub mod holder_list;
pub mod id;
pub mod lane;
pub mod place;
pub mod quota;
pub mod sched_priority;
pub mod ticket_ring;
pub mod uapi;
