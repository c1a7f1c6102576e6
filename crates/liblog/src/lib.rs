//! Android's liblog on Baton's log: what `<android/log.h>` and the headers of Debian's package
//! android-liblog-dev declare. A program that is built against them logs here with no change, if it
//! is linked with this library or has it in `LD_PRELOAD`.
//!
//! - [`write`]: texts; [`print`]: the same by printf's rules. [`loggable`]: which are written;
//!   [`logger`]: by whom.
//! - [`event`]: binary events; [`list`]: of several values; [`parser`]: and back.
//! - [`read`]: what has been written. [`format`]: entries as text; [`tags`]: what events are
//!   called.
//! - [`border`]: what all of them have in common.
//!
//! **Invariant**: no panic leaves a function, none follows a null pointer that the headers allow,
//! and `errno` stays as it was.
#![allow(non_camel_case_types, reason = "the names are C's")]

mod border;
pub mod event;
pub mod format;
pub mod list;
pub mod loggable;
pub mod logger;
pub mod parser;
pub mod print;
pub mod read;
pub mod read_list;
pub mod tags;
mod text;
pub mod write;
