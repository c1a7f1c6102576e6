//! A log in shared memory: no daemon in the way, whole records or none, every loss counted.
//!
//! ```no_run
//! use baton_log::{Buffer, Item, Priority, Reader};
//!
//! baton_log::write(Buffer::Main, Priority::Info, b"sensors", b"3 found");
//!
//! let mut reader = Reader::open(&baton_log::directory())?;
//! while let Some(item) = reader.next_item() {
//!     println!("{item:?}");
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Each writing thread has a ring that only this thread writes, in a file of its process. A process
//! that may read the log's directory reads all rings, merges them by time, and follows. A writer
//! takes no lock and makes no system call, except when its thread gets a ring, and to wake
//! followers that sleep. A real-time thread wakes no follower. See docs/log.md.
//!
//! - [`Logger`], [`Writer`]: writing. [`write()`], [`write_event`]: writing to the process's own
//!   log. Their modules are in `write`.
//! - `adapter`: for the crates `log` and `tracing`, with the features of these names.
//! - [`Reader`]: reading, one [`Item`] at a time. Its modules are in `read`.
//! - `wakeup`: when writers wake followers.
//! - `ring`: the writer's end of a ring; `cursor`: a reader's end; `memory`: the memory between
//!   them; `record`: the records in it. [`moment`]: stamps and their meaning.
//! - `files`: the files of the rings and their permissions. [`reclaim()`]: removes what dead
//!   processes have left. [`Settings`]: sizes.
//!
//! **Invariant**: neither a writer nor a reader maps a file that another user can shrink.

#[cfg(all(not(loom), any(feature = "log", feature = "tracing")))]
pub mod adapter;
mod bounds;
mod buffer;
mod cursor;
#[cfg(not(loom))]
mod files;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
mod models;
#[cfg(loom)]
use models as memory;
pub mod moment;
#[cfg(not(loom))]
mod read;
mod record;
mod ring;
mod wakeup;
#[cfg(not(loom))]
mod write;

pub use buffer::{Buffer, N_BUFFERS, Priority};
pub use record::{MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES};

#[cfg(not(loom))]
pub use {
    files::cleared::clear,
    files::directory::{DIRECTORY_VARIABLE, SYSTEM_DIRECTORY, directory, make_directory},
    files::layout::{MAX_RING_BYTES, MIN_RING_BYTES},
    files::reclaim::reclaim,
    files::settings::Settings,
    read::item::{Content, Item, Loss, Lost, Record},
    read::origin::{Origin, Voucher},
    read::reader::{Reader, Start},
    write::logger::{Logger, Options},
    write::thread::{logger, prepare, set_options, write, write_event},
    write::writer::Writer,
};
