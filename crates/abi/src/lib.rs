//! The bytes that Baton's parties agree on.
//!
//! - [`uapi`]: Binder's command stream and objects, as Linux 6.12's header
//!   `linux/android/binder.h` lays them out (64-bit, protocol version 8).
//! - [`control`]: messages between an engine and the broker. [`claim`]: what an engine tells the
//!   broker that comes after its own has died.
//! - [`lane`]: the memory that two engines share.
//! - [`place`]: where the broker listens.
//! - [`quota`]: how users share what there is, in the broker and in an engine.
//! - [`sched_priority`]: a scheduling policy and priority.
//!
//! Nothing here does I/O. Every type that foreign bytes become is valid for any bit pattern; what
//! a value may be is checked by its reader.
#![forbid(unsafe_code)]

pub mod claim;
pub mod control;
pub mod id;
pub mod lane;
pub mod place;
pub mod quota;
pub mod sched_priority;
pub mod uapi;
