//! Binder's driver of one process: what `drivers/android/binder.c` keeps for a `binder_proc`,
//! inside that process.
//!
//! [`baton_state`] holds what the process has: nodes, references, threads, transactions. This crate
//! runs that state. Its directories, highest first; each uses only those below it:
//!
//! - [`device`]: the uapi front end, byte for byte. [`typed`]: the parts of the typed API (the
//!   crate `baton`). [`observer`]: a look at the broker, for those who take no part.
//! - `runner`: the state under its lock, and the I/O that it asks for: what goes out, what comes
//!   in, the broker's events, the hidden control thread.
//! - `fast`: plain calls, which bypass the state.
//! - `realtime`: lanes of real-time callers, and loopers that wait on one lane alone.
//! - `engine`: the engine of one opened device as its parts: the link to the broker, the status
//!   page, the receive buffer, the operations in flight.
//! - `wait`: how threads wait: for an answer, or as loopers of the pool.
//! - `channel`: the memory and the socket that this process shares with one other.
//! - `sys`: the calling thread and the system: clocks, priorities, tokens, the program's memory.
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
        Answered, Carries, CopiedPayload, LaneCache, Nothing, Outcome, PinnedLooper, References,
        RouteCache, Taken, while_serving,
    };
    pub use crate::runner::await_work::Until;
    pub use crate::runner::send::Outgoing;
    pub use crate::sys::priority::of_transaction;
    pub use crate::sys::thread::{
        Children, become_ordinary, priorities_changed, set_real_time_priority, start, tid,
    };
    pub use crate::wait::server::{ActiveSet, Served, Server};
    pub use crate::wait::settings::Settings;
}

/// Where the broker listens.
pub use baton_abi::place;
