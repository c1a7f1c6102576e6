//! The broker: the one daemon that every engine trusts.
//!
//! The broker admits processes, opens channels between two of them, and reports deaths. When a
//! process passes on a node of a third one, the broker checks that it holds the node, grants the
//! node to the receiver, and counts these grants. A call without such nodes never passes through
//! the broker: owners grant their own nodes themselves.
//!
//! - [`state`]: the broker's data and rules, without I/O.
//! - [`run`](run()): sockets, descriptors and memory around the state, on one thread. [`Running`]
//!   starts that thread in a process that needs a broker of its own.
//!
//! **Invariant**: the broker never imports the driver. Broker and driver share only the bytes that
//! [`baton_abi`] defines.
#![deny(unsafe_code)]

pub mod limits;
pub mod state;

mod client_thread;
mod clock;
mod close;
mod close_reason;
mod closing;
mod connection;
mod cpu_share;
mod deliver;
mod engine_lists;
mod fair_queue;
mod interrupt;
mod ledger;
mod listener;
mod outbox;
mod packet;
mod peer;
mod policy;
mod poll;
mod private_file;
mod process_list;
mod real_time;
mod requests;
mod restart_state;
mod resting;
mod run;
mod run_error;
mod running;
mod shortage;
mod status_pages;
mod throttle;
mod trim;

pub use policy::{Policy, PolicyError};
pub use run::{Config, GRACE, run};
pub use run_error::RunError;
pub use running::Running;
