//! One opened device as the broker sees it.

use super::channel::Channels;
use super::freeze::Freezer;
use super::handle::Handles;
use crate::limits::{Rights, Usage};
use baton_abi::control::Identity;
use baton_abi::quota::Quota;

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub identity: Identity,
    /// Name of the context that the process opened. Contexts are never removed.
    pub context: String,
    pub handles: Handles,
    pub channels: Channels,
    pub freezer: Freezer,
    pub usage: Usage,
    /// Rights that the configuration gives to the process.
    pub rights: Rights,
    /// The process's handles, by the users that gave them.
    pub handles_given: Quota,
    /// The process's channels as server, by the clients' users.
    pub served: Quota,
}
