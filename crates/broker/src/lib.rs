//! The broker: the one that everybody trusts.
//!
//! It admits processes, knows which of them holds how many references to which node, opens
//! channels between two that have a reason to talk, translates the references that travel in a
//! transaction, and tells of deaths. It is on no plain call's path.
//!
//! - [`state`]: what it knows and decides. Pure.
//! - [`run`](run()): sockets, descriptors and memory around it. One thread; [`Running`] has one.
//!
//! **Invariant**: the broker never imports the driver. They meet only in [`baton_abi`]'s bytes.
#![deny(unsafe_code)]

pub mod limits;
pub mod state;

mod client_thread;
mod clock;
mod close;
mod connection;
mod deliver;
mod front;
mod ledger;
mod listener;
mod memory;
mod outbox;
mod pace;
mod packet;
mod peer;
mod policy;
mod poll;
mod real_time;
mod requests;
mod restart_state;
mod run;
mod running;
mod shortage;
mod throttle;
mod turns;

pub use policy::{Policy, PolicyError};
pub use run::{Config, GRACE, RunError, run};
pub use running::Running;
