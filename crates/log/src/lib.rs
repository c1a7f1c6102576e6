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
//! Each thread that writes has a ring that it alone writes, in a file of its process. Whoever may
//! read the log's directory reads all rings, merges them by time, and follows. A writer takes no
//! lock, makes no system call and waits for nobody, but when its thread gets a ring, and to wake
//! those who follow and have fallen asleep. A real-time thread wakes nobody. See docs/log.md.
//!
//! - [`Logger`], [`Writer`]: writing; [`write()`], [`write_event`]: the same, to the process's own
//!   log. Modules in `write`.
//! - `adapter`: for the crates `log` and `tracing`, by the features of these names.
//! - [`Reader`]: reading, [`Item`] by [`Item`]. Modules in `read`.
//! - `bell`: whether writers ring for those who follow.
//! - `ring`: the writer's half of a ring; `cursor`: a reader's; `memory`: what lies between them;
//!   `record`: what is in it. [`moment`]: stamps, and what they mean.
//! - `files`: where all that is, and who may do what with it. [`reclaim()`]: what the dead have
//!   left; [`Settings`]: how large.
//!
//! **Invariant**: neither a writer nor a reader maps what a stranger can shrink.

#[cfg(all(not(loom), any(feature = "log", feature = "tracing")))]
pub mod adapter;
mod bell;
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
#[cfg(not(loom))]
mod write;

pub use buffer::{Buffer, N_BUFFERS, Priority};
pub use record::{MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES};

#[cfg(not(loom))]
pub use {
    files::cleared::clear,
    files::layout::{MAX_RING_BYTES, MIN_RING_BYTES},
    files::place::{DIRECTORY_VARIABLE, SYSTEM_DIRECTORY, directory, make_directory},
    files::reclaim::reclaim,
    files::settings::Settings,
    read::item::{Content, Item, Loss, Lost, Record},
    read::origin::{Origin, Voucher},
    read::reader::{Reader, Start},
    write::logger::{Logger, Options},
    write::thread::{logger, prepare, set_options, write, write_event},
    write::writer::Writer,
};
