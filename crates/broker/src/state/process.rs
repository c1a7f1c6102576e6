//! One opened device as the broker sees it.

use super::channel::Channels;
use super::freeze::Freezer;
use super::handle::Handles;
use super::limits::Usage;
use baton_abi::control::Identity;

/// Who connected, as the system says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Thread group id in the broker's pid namespace; 0 if it has none there.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Security label, never empty.
    pub security_context: String,
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub identity: Identity,
    /// Name of the context that it opened. Contexts never go.
    pub context: String,
    pub handles: Handles,
    pub channels: Channels,
    pub freezer: Freezer,
    pub usage: Usage,
}
