//! The files of a log: one for each process that writes, in one directory.
//!
//! - [`directory`]: the directory and its permissions. [`settings`]: sizes. [`cleared`]: the times
//!   before which readers skip records.
//! - `layout`: the layout of a file. `file`: makes one. `opened`: opens one to read it.
//! - `boot`, `last_boot`: the start of the machine in which a file was made. `lock`: whose a file
//!   is, and whether that process lives. `fork`: closes files in children.
//! - [`reclaim`]: removes files of dead processes. `archive`: one file for many of them. `watch`:
//!   the requests of followers.

pub(crate) mod archive;
pub(crate) mod boot;
pub(crate) mod cleared;
pub mod directory;
pub(crate) mod file;
pub(crate) mod fork;
pub(crate) mod last_boot;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod opened;
pub(crate) mod reclaim;
pub mod settings;
pub(crate) mod watch;
