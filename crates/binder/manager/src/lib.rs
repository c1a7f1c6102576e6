//! Android's service manager: services by their names.
//!
//! ```text
//!   request of a client --> protocol --> registry --> effects: calls of clients' callbacks
//!                           (bytes)      (pure)       (one-way)
//! ```
//!
//! - [`server`]: the context manager's object, and the threads that serve it.
//! - [`protocol`]: the methods by release of Android, decoded from requests.
//! - [`registry`]: who has registered what, and who is told of it.
//!
//! **Invariant**: the manager makes no two-way call to a client, and makes one-way calls without
//! its lock. So no client can hold the manager up.
#![forbid(unsafe_code)]

pub mod protocol;
pub mod registry;
pub mod server;

pub use protocol::Release;
pub use registry::Policy;
pub use server::Manager;
