//! Logcat without a device: what Android's log tools make of log entries, and nothing that reads or
//! writes a log.
//!
//! ```text
//!   Entry --shown()--> Shown --Filter--> Format --> text        -v, filterspecs
//!     |                  ^
//!     |               tags, event     binary events become text
//!     +--wire--> bytes                -B, and liblog's readers
//! ```
//!
//! - [`entry`]: one entry, wherever it comes from. [`wire`]: its bytes as Android's readers get
//!   them.
//! - [`event`]: binary payloads; [`tags`]: what their numbers mean.
//! - [`mod@format`]: `-v`; [`mod@line`]: the text itself; [`printable`]: escapes; [`stamp`]: times
//!   in it.
//! - [`proto`]: protocol buffers. [`syslog`]: datagrams of other programs.
//! - [`filter`]: filterspecs. [`time`]: `-t TIME`; [`resume`]: where a file ends. [`size`]: `-G
//!   SIZE`. [`divider`]: lines between buffers.
//!
//! Source: the text of Android's liblog as it is printed, held byte for byte by the golden files in
//! `tests/golden`.
//!
//! **Invariant**: pure. No clock, no file and no environment is read here but the zone's own rules.
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
