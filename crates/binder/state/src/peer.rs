//! Peers: the other processes, and which of our nodes each may call.

use baton_abi::control::{NodeId, Strength};
use rustc_hash::FxHashMap;

/// One other process.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Nodes of ours that it holds, and how, as the broker told us.
    pub grants: FxHashMap<NodeId, Strength>,
    /// Effective user id.
    pub uid: u32,
    /// Thread group id.
    pub pid: u32,
    /// Security label, empty until a channel told it.
    pub label: String,
}

impl Peer {
    /// Nothing is known of it any more.
    pub fn is_unused(&self) -> bool {
        self.grants.is_empty() && self.label.is_empty()
    }
}
