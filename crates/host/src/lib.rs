//! Many small Binder services in one process, each a thread of one nucleus.
//!
//! ```text
//!   clients ---- driver ----> loopers of a service's process, at their callers' priorities
//!                                |  slot                          (OS threads)
//!                  --------------+------------------------------------------------
//!                                v                                (the kernel's OS thread)
//!                  reception -> porter == call ==> service == call ==> service
//! ```
//!
//! A looper of a service that stays runs the kernel itself, if nobody else does.
//!
//! - [`host`]: services by name, and the process that they run in. [`service`]: what one is.
//!   [`call`]: what it is called with, and how it calls others.
//! - `directory`: who is hosted, and the way in. `desk`, `slot`: where OS threads hand calls over.
//! - `threads`: the kernel's threads. `words`: messages between them. `priority`: of what is how
//!   high.
//! - [`builtin`]: services that come with it; [`plugin`]: from shared objects.
//! - [`manager`]: Android's service manager.
//!
//! **Invariant**: nobody who has a real-time caller waits for a lock of std's or for memory: what
//! such a call meets here is one slot, and the kernel's OS thread at that caller's priority.

pub mod builtin;
pub mod call;
mod desk;
mod directory;
pub mod host;
pub mod manager;
pub mod plugin;
mod priority;
pub mod service;
mod slot;
mod threads;
mod words;

pub use call::{Answer, Call, Target};
pub use host::{Closer, Host, HostError, Running};
pub use service::{Service, Stays, add_object};
