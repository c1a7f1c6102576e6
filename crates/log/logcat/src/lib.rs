//! Logcat without a device: the output of Android's log tools for log entries. It neither reads nor
//! writes a log.
//!
//! ```text
//!   Entry --shown()--> Shown --Filter--> Format --> text        -v, filterspecs
//!     |                  ^
//!     |               tags, event     binary events become text
//!     +--wire--> bytes                -B, and liblog's readers
//! ```
//!
//! - [`entry`]: a log entry. [`wire`]: its bytes as Android's readers get them.
//! - [`event`]: binary payloads. [`tags`]: the meaning of their numbers.
//! - [`mod@format`]: `-v`. [`mod@line`]: the lines of an entry. [`printable`]: escapes. [`stamp`]:
//!   times in lines.
//! - [`proto`]: protocol buffers. [`syslog`]: datagrams of other programs.
//! - [`filter`]: filters. [`time`]: `-t TIME`. [`resume`]: the latest time in a file. [`size`]: `-G
//!   SIZE`. [`divider`]: lines between buffers.
//!
//! Source: the output of Android's liblog, which the golden files in `tests/golden` hold byte for
//! byte.
//!
//! **Invariant**: the crate is pure. It reads no clock, file or environment, except the rules of
//! time zones.
#![forbid(unsafe_code)]

pub mod divider;
pub mod entry;
pub mod event;
pub mod filter;
pub mod format;
pub mod line;
pub mod printable;
pub mod proto;
pub mod resume;
pub mod size;
pub mod stamp;
pub mod syslog;
pub mod tags;
pub mod time;
pub mod wire;
