//! Many small Binder services in one process, each a thread of one nucleus.
//!
//! ```text
//!   clients ---- driver ----> loopers of a service's process, at their callers' priorities
//!                                |  slot                          (OS threads)
//!                  --------------+------------------------------------------------
//!                                v                                (the kernel's OS thread)
//!                 dispatcher -> forwarder == call ==> service == call ==> service
//! ```
//!
//! A looper of a service that stays runs the kernel itself, if no other thread runs it.
//!
//! Modules, from the highest to the lowest:
//!
//! - [`host`]: the services of a host by name, and the process in which they run. `threads`: the
//!   threads of its kernel.
//! - [`service`]: the interface of a service. [`builtin`]: services that come with the host.
//!   [`plugin`]: services from shared objects.
//! - [`call`]: a call that a service answers, and the calls that it makes. `host_context`: the host
//!   as the service sees it. [`manager`]: a client of Android's service manager.
//! - `directory`: the services by number, and the way of calls into the kernel. `call_queue`,
//!   `slot`: where loopers hand calls to the kernel.
//! - `messages`: messages between threads of the kernel. `answer`, `incoming`: the data of calls.
//!   `priority`: the priorities of calls.
//!
//! **Invariant**: a looper with a real-time caller waits for no lock of the standard library and
//! for no memory. It waits only for its slot and for the kernel's OS thread, which inherits its
//! priority.

mod answer;
pub mod builtin;
pub mod call;
mod call_queue;
mod directory;
pub mod host;
mod host_context;
mod incoming;
pub mod manager;
mod messages;
pub mod plugin;
mod priority;
pub mod service;
mod slot;
mod threads;

pub use answer::Answer;
pub use call::{Call, Target};
pub use host::{Closer, Host, HostError, Running};
pub use service::{Service, Stays, add_object};
