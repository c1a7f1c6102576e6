//! An L4-style kernel in one process: threads with strict priorities and synchronous IPC, in which
//! every scheduling optimisation of Greenaway 2007 can be chosen.
//!
//! Modules, from the lowest to the highest:
//!
//! - [`thread_id`], [`message`], [`grant`], [`request`]: the words that threads and kernel
//!   exchange.
//! - [`bitmap`], [`list`], [`heap`], [`ready_queue`], [`send_queue`], [`tcb`]: data structures.
//! - [`statistics`], [`variant`]: the kernels to choose from.
//! - [`cluster`]: the memory that kernels of one process share.
//! - [`state`]: everything that a kernel decides, without stacks, clock and I/O.
//! - `stack`, `timer`, `interrupts`, [`external_interrupts`], `interrupt_line`, [`host_state`],
//!   `idle`: what a kernel uses of its OS thread.
//! - `entry_points`, `switch`: the assembly. `signals`: the signal handlers.
//! - [`current_thread`]: the system calls. `trusted`: those with addresses, carried out.
//! - [`kernel`]: a state on an OS thread.
//!
//! **Invariant**: `state` and its data structures have no `unsafe`. The assembly changes nothing
//! that the state could not have changed in the same way.

pub mod bitmap;
pub mod cluster;
pub mod current_thread;
mod entry_points;
pub mod external_interrupts;
pub mod grant;
pub mod heap;
pub mod host_state;
mod idle;
mod interrupt_line;
mod interrupts;
pub mod kernel;
pub mod list;
pub mod message;
pub mod ready_queue;
pub mod request;
mod revocable;
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
mod trusted;
pub mod variant;

pub use cluster::{Cluster, Membership};
pub use current_thread::{CurrentThread, Message};
pub use external_interrupts::Interrupter;
pub use grant::{Access, Grant, GrantError};
pub use host_state::Failure;
pub use kernel::{Kernel, Options, Portable, Summary};
pub use message::{Cause, Ipc, IpcError, Phase, Tag, Timeout};
pub use request::Registers;
pub use signals::SignalStack;
pub use switch::bare;
pub use thread_id::{Sender, Source, ThreadId};
