//! The broadcast service: intents reach receivers that their senders do not know, in the order of
//! their priorities.
//!
//! - [`server`]: the service. [`protocol`]: its requests. [`client`]: its clients. [`seen`]: what a
//!   receiver has got.
//! - [`queue`]: accepted broadcasts, without a lock. [`priority`]: their levels.
//! - [`level`]: what one level has to do, pure. [`turns`]: users take turns. [`delivery`]: the
//!   threads that do it. [`token`]: by which receivers finish. [`presence`]: who is told of their
//!   ends.
//! - [`components`]: the processes of receivers in manifests.
//! - [`tables`]: who receives what. [`account`]: bounds of each user.
//! - [`journal`]: what the next service finds. [`record`]: its layout, pure. [`blocks`]: its room.
//!   [`kept`]: what its records say. [`ids`]: the broadcasts' names. [`adopt`]: how it goes on.
//! - [`stats`] and [`report`]: what has been done.

#[cfg(not(loom))]
pub mod account;
#[cfg(not(loom))]
pub mod adopt;
pub mod blocks;
#[cfg(not(loom))]
pub mod client;
#[cfg(not(loom))]
pub mod components;
#[cfg(not(loom))]
pub mod delivery;
#[cfg(not(loom))]
pub mod ids;
#[cfg(not(loom))]
#[allow(unsafe_code)]
pub mod journal;
#[cfg(not(loom))]
pub mod kept;
#[cfg(not(loom))]
pub mod level;
#[cfg(not(loom))]
pub mod presence;
#[cfg(not(loom))]
pub mod priority;
#[cfg(not(loom))]
pub mod protocol;
#[allow(unsafe_code)]
pub mod queue;
#[cfg(not(loom))]
pub mod record;
#[cfg(not(loom))]
pub mod report;
#[cfg(not(loom))]
pub mod seen;
#[cfg(not(loom))]
pub mod server;
#[cfg(not(loom))]
pub mod stats;
mod sync;
#[cfg(not(loom))]
pub mod tables;
#[cfg(not(loom))]
pub mod token;
#[cfg(not(loom))]
pub mod turns;

#[cfg(not(loom))]
pub use client::BroadcastManager;
#[cfg(not(loom))]
pub use protocol::NAME;
#[cfg(not(loom))]
pub use server::{Server, Settings};
