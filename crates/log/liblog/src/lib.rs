//! Android's liblog on Baton's log: the functions of `<android/log.h>` and of the headers in
//! Debian's package android-liblog-dev. A program that is built against them logs here unchanged,
//! if it is linked with this library or has it in `LD_PRELOAD`.
//!
//! - [`write`]: writes texts. [`print`]: formats them as printf does. [`loggable`]: the priorities
//!   that are written. [`logger`]: the function that writes. `text`: a text on its way to the log.
//! - [`event`]: binary events. [`list`]: events of several values. [`parser`], [`read_list`]: reads
//!   these values.
//! - [`read`]: reads the log. [`format`]: entries as text. [`tags`]: the names of events.
//! - [`ffi`]: the boundary to C.
//!
//! **Invariant**: no panic leaves a function. No function follows a null pointer that the headers
//! allow. `errno` stays unchanged.
#![allow(non_camel_case_types, reason = "the names are C's")]

pub mod event;
mod ffi;
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
