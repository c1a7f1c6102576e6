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
    /// Name of the context that it opened. Contexts never go.
    pub context: String,
    pub handles: Handles,
    pub channels: Channels,
    pub freezer: Freezer,
    pub usage: Usage,
    /// The configuration's word on it.
    pub rights: Rights,
    /// Its handles, by the users that gave them.
    pub handles_given: Quota,
    /// Its channels as server, by their clients' users.
    pub served: Quota,
}
