//! binderfs as a FUSE file system: any program that can open a file can use Binder, with nothing
//! loaded into it.
//!
//! ```text
//!   client thread --ioctl--> kernel --> server's reader --> stand-in --> driver --> channels
//!                 <------------------ answer of the stand-in <----
//!   client's map of the device = the engine's receive buffer (FUSE passthrough), or a copy of it
//! ```
//!
//! - [`protocol`]: FUSE's messages. [`connection`]: /dev/fuse. [`mounted`]: the mount.
//!   [`restart_state`]: what a server that is killed leaves to the next one.
//! - [`contexts`]: the contexts of devices, at the broker.
//! - [`tree`]: the files; [`entry`]: an entry of a directory. [`server`]: reads requests.
//!   [`watcher`]: looks at everything else, by [`watches`].
//! - [`pages`]: how a client's map gets the bytes of the receive buffer.
//! - [`opened_device`]: one open device. [`opener`]: the process that has opened it.
//!   [`device_threads`]: the threads that open devices, and are then their control threads.
//!   [`next_device`]: the device that is prepared for the next open. [`client_thread`]: the threads
//!   that stand in for its clients' threads. [`opens`]: all of them. [`pending`]: those that wait.
//!   [`interrupt`]: their signals. [`shared`]: what all threads use. [`account`]: what each user
//!   takes of the server.
//! - [`logs`]: reads of `binder_logs`. [`log_files`]: its files. [`kernel_form`]: their text.
//!   [`traffic`]: what clients have sent and got.
//! - [`client_priority`]: the priority that a client's thread and its stand-in share.
//! - [`prerequisites`]: what a server needs of the system. [`errno`]: errors of the C library's
//!   calls.
//! - [`client_memory`]: memory and descriptors of clients. [`staging`]: copies commands and all
//!   that they point to. [`descriptors`]: gives clients the descriptors that come for them, by
//!   [`injection`].
//!
//! **Invariant**: the driver gets no address of a client's; see [`staging`].
//!
//! **Invariant**: the thread that reads requests waits for no client and for no other process than
//! the broker.

mod account;
mod client_memory;
mod client_priority;
mod client_thread;
mod connection;
mod contexts;
mod descriptors;
mod device_threads;
mod entry;
mod errno;
mod injection;
mod interrupt;
mod kernel_form;
mod log_files;
mod logs;
mod mount_error;
mod mounted;
mod next_device;
mod opened_device;
mod opener;
mod opens;
mod pages;
mod pending;
mod prerequisites;
mod protocol;
mod restart_state;
mod server;
mod shared;
mod staging;
mod traffic;
mod tree;
mod watcher;
mod watches;

pub use mount_error::MountError;
pub use pages::PageSource;
pub use restart_state::Kept;
pub use server::{Config, serve};
pub use tree::Options;
