//! The broadcast service: intents reach receivers that their senders do not know, in the order of
//! their priorities.
//!
//! - [`server`]: the service. [`protocol`]: its requests. [`client`]: its clients.
//! - [`queue`]: accepted broadcasts, without a lock. [`priority`]: their levels.
//! - [`level`]: what one level has to do, pure. [`turns`]: users take turns. [`delivery`]: the
//!   threads that do it.
//! - [`tables`]: who receives what. [`account`]: bounds of each user.
//! - [`stats`] and [`report`]: what has been done.

pub mod account;
pub mod client;
pub mod delivery;
pub mod level;
pub mod priority;
pub mod protocol;
#[allow(unsafe_code)]
pub mod queue;
pub mod report;
pub mod server;
pub mod stats;
mod sync;
pub mod tables;
pub mod turns;

pub use client::BroadcastManager;
pub use protocol::NAME;
pub use server::{Server, Settings};
