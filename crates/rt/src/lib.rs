//! A process's own side of real time: what it asks of the machine, and how the machine gets it
//! back.
//!
//! ```text
//!   Options --hold()--> Guard            undone when it is dropped
//!           --before_exec()--> program   undone when the program ends, however it ends
//! ```
//!
//! - [`Options`] and [`Guard`]: everything at once.
//! - [`frequency`]: the lock that processes share; [`cpufreq`]: the files behind it; [`holder`]:
//!   who has it; [`guardian`]: who undoes it for a process that is killed.
//! - [`idle`]: how deep processors may sleep. [`memory`]: pages that stay, `inject`: in a program
//!   that is only about to begin. [`oom`]: who is killed when memory runs out. [`schedule`]:
//!   priority, processors, timer slack.
//! - [`status`]: what the machine has and who holds what; [`paths`]: where. [`Error`]: what is
//!   missing, and what to do.
//!
//! **Invariant**: whatever outlives its process (the processors' frequency alone) is written down
//! before it is changed. All else the kernel undoes when the process ends.
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
