//! An L4-style kernel in one process: threads with strict priorities and synchronous IPC, in which
//! every scheduling optimisation of Greenaway 2007 can be chosen.
//!
//! - [`variant`]: the kernels that there are. [`state`]: what all of them do, without stacks and
//!   clocks. [`statistics`]: what it counts.
//! - [`tcb`], [`ready_queue`], [`send_queue`], [`heap`], [`list`], [`bitmap`]: what it is made of.
//! - [`thread_id`], [`message`], [`request`]: the words that threads and kernel exchange.

pub mod bitmap;
pub mod heap;
pub mod list;
pub mod message;
pub mod ready_queue;
pub mod request;
pub mod send_queue;
pub mod state;
pub mod statistics;
pub mod tcb;
pub mod thread_id;
pub mod variant;

pub use message::{Cause, Ipc, IpcError, Phase, Tag, Timeout};
pub use thread_id::{Sender, Source, ThreadId};
