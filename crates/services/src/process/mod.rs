//! The process manager: applications, the class of each process, and who dies when memory is short.
//!
//! ```text
//!   requests --> server --> run: table (pure) --> effects --> start --> helper --> processes
//!                            ^  killer (pure) <-- pressure                            |
//!                            +------------------ deaths (pidfd) ----------------------+
//! ```
//!
//! - [`class`]: importance classes; [`package`]: applications; [`table`]: processes, components and
//!   their classes; [`killer`]: the low-memory killer's choice. These are pure.
//! - [`pressure`]: free memory and stalls; [`group`]: control groups; [`start`] and [`helper`]: how
//!   processes are started, warm or plainly. [`run`]: all of it at work.
//! - [`server`]: the service `activity`, by the methods of [`protocol`]; [`client`]: its clients.

pub mod class;
pub mod client;
mod fork;
pub mod group;
pub mod helper;
pub mod killer;
pub mod package;
pub mod pressure;
pub mod protocol;
pub mod run;
pub mod server;
pub mod start;
pub mod table;
