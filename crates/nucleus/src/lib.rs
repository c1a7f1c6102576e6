//! An L4-style kernel in one process: threads with strict priorities and synchronous IPC, in which
//! every scheduling optimisation of Greenaway 2007 can be chosen.
//!
//! - [`variant`]: the kernels that there are. [`state`]: what all of them do, without stacks and
//!   clocks. [`statistics`]: what it counts.
//! - [`kernel`]: a state on an OS thread; [`current_thread`]: as its threads see it. `switch`: the
//!   assembly; `stack`, `signals`, `timer`, `interrupts`, `idle`: what it needs of the system;
//!   [`outside`]: other OS threads; [`host_state`]: where that is kept.
//! - [`registers`]: where a thread goes on. [`cluster`]: kernels that reach each other.
//! - [`tcb`], [`ready_queue`], [`send_queue`], [`heap`], [`list`], [`bitmap`]: what it is made of.
//! - [`thread_id`], [`message`], [`request`], [`grant`]: the words that threads and kernel
//!   exchange.
//!
//! **Invariant**: `state` and what it is made of have no `unsafe`; the assembly changes nothing
//! that the state could not have changed the same way.

pub mod bitmap;
pub mod cluster;
pub mod current_thread;
pub mod grant;
pub mod heap;
pub mod host_state;
mod idle;
mod interrupts;
pub mod kernel;
pub mod list;
pub mod message;
pub mod outside;
pub mod ready_queue;
pub mod registers;
pub mod request;
pub mod send_queue;
mod signals;
mod stack;
pub mod state;
pub mod statistics;
mod switch;
mod sync;
pub mod tcb;
pub mod thread_id;
mod timer;
pub mod variant;

pub use cluster::{Cluster, Seat};
pub use current_thread::{CurrentThread, Message};
pub use grant::{Access, Grant, GrantError};
pub use host_state::Failure;
pub use kernel::{Kernel, Options, Portable, Summary};
pub use message::{Cause, Ipc, IpcError, Phase, Tag, Timeout};
pub use outside::Nudge;
pub use registers::Registers;
pub use signals::SignalStack;
pub use switch::bare;
pub use thread_id::{Sender, Source, ThreadId};
