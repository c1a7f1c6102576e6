//! The broker: the one that everybody trusts.
//!
//! It admits processes, knows who holds which node, opens channels, translates references that
//! travel, and tells of deaths. It is on no plain call's path.
//!
//! **Invariant**: the broker never imports the driver; they meet in `abi`'s bytes only.
#![forbid(unsafe_code)]

mod client;
pub mod limits;
mod report;
pub mod run;
pub mod state;

pub use run::{Config, RunError, run};
