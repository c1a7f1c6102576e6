//! The settings that a process makes for real-time work, and how they are undone.
//!
//! ```text
//!   Options --hold()--> Guard            undone when it is dropped
//!           --before_exec()--> program   undone when the program ends, however it ends
//! ```
//!
//! - [`Options`] and [`Guard`]: all settings at once.
//! - [`frequency`]: the lock on the processors' frequency that processes share. [`cpufreq`]: the
//!   files behind it. [`holder`]: a process that holds it. [`guardian`]: the process that undoes
//!   the settings of a killed one.
//! - [`idle`]: a bound on processors' wake-up times. [`memory`]: locked memory. `inject`: locked
//!   memory of a program that is about to start. [`oom`]: protection from the out-of-memory killer.
//!   [`schedule`]: priority, processors, timer slack.
//! - [`status`]: the machine's capabilities and the current settings. [`paths`]: the files' places.
//!   [`Error`]: what is missing, and what to do about it.
//!
//! **Invariant**: a setting that outlives its process, which is only the processors' frequency, is
//! recorded before it is changed. The kernel undoes all other settings when the process ends.
#![deny(unsafe_code)]

pub mod cpufreq;
mod error;
pub mod frequency;
pub mod guardian;
pub mod holder;
pub mod idle;
mod inject;
pub mod memory;
pub mod oom;
mod options;
pub mod paths;
pub mod schedule;
pub mod status;

pub use baton_abi::sched_priority::SchedPriority;
pub use error::Error;
pub use frequency::Frequency;
pub use options::{Guard, Options};
pub use paths::Paths;
