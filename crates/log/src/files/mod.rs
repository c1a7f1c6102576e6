//! Files of the log: one for each process that writes, in one directory.
//!
//! - [`place`]: where the directory is, and whom it lets do what; [`settings`]: how large things
//!   are; [`cleared`]: what is not to be read.
//! - `layout`: what a process's file has where; `file`: making one; `opened`: looking at others'.
//! - `boot`: which start of the machine a file is of. `lock`: whose a file is, and whether they
//!   live; `fork`: what a child has to do with it.
//! - [`reclaim`]: what the dead have left; `archive`: one file for many of them. `watch`: whether
//!   somebody waits for news.

pub(crate) mod archive;
pub(crate) mod boot;
pub(crate) mod cleared;
pub(crate) mod file;
pub(crate) mod fork;
pub(crate) mod last_boot;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod opened;
pub mod place;
pub(crate) mod reclaim;
pub mod settings;
pub(crate) mod watch;
