//! Binder's driver of one process: what `drivers/android/binder.c` keeps for a `binder_proc`,
//! inside that process.
//!
//! What the process has is [`baton_state`]'s: nodes, references, threads, transactions. This crate
//! runs it.
//!
//! - [`engine`]: the runner: the state's lock, what the state wants done, the threads' sleep, the
//!   broker's events, the hidden control thread. `send`: the way out of a transaction.
//! - `channel`: the memory and the socket that this process shares with one other.
//! - `payload`: the bytes that a transaction carries.
//! - `control`: the two sockets to the broker. `maps`: where the program has mapped a file.
//!   `user`: the program's memory by address. `thread`: starting the control thread.
//!   `thread_end`: the program's threads end. `token`: numbers that no peer can guess.
//! - [`observer`]: a look at the broker, for those who take no part.
//! - Front ends: [`device`], the uapi byte for byte; [`typed`], what the typed API (the crate
//!   `baton`) is made of.
//!
//! **Invariant**: what a peer wrote is used only as a copy that has been checked, and a check that
//! fails costs that peer its channel and nobody else anything. A right (a grant, a reference in a
//! transaction, a descriptor) never comes from a peer's bytes: it comes from the broker's events or
//! from the kernel by the channel's socket.
//!
//! **Invariant**: `unsafe` stands in the files that `crates/binder/abi/tests/layers.rs` names, with
//! the reason for each.
mod channel;
pub mod device;
mod engine;
mod fast;
pub mod observer;
mod realtime;
mod runner;
mod sys;
mod wait;

/// The parts of which the crate `baton` makes the typed API, for that crate alone: they change with
/// it, and promise nobody else anything.
#[doc(hidden)]
pub mod typed {
    pub use crate::channel::INLINE_BYTES;
    pub use crate::channel::loan::LoanedLane;
    pub use crate::channel::payload::Payload;
    pub use crate::engine::Engine;
    pub use crate::engine::real_time::DedicatedLooper;
    pub use crate::engine::thread_end::remember;
    pub use crate::fast::{
        Answered, CopiedPayload, LaneCache, Outcome, PinnedLooper, RouteCache, Taken, while_serving,
    };
    pub use crate::runner::await_work::Until;
    pub use crate::runner::send::Outgoing;
    pub use crate::sys::priority::{adopt, of_transaction, restore};
    pub use crate::sys::thread::{
        Children, become_ordinary, priorities_changed, set_real_time_priority, start, tid,
    };
    pub use crate::wait::server::{ActiveSet, Served, Server};
    pub use crate::wait::settings::Settings;
}

/// Where the broker listens.
pub use baton_abi::place;
