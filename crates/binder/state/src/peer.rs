//! Peers: the other processes, the nodes that each may call, and the broker between them.

use baton_abi::claim::era_of;
use baton_abi::control::{NodeId, Strength};
use rustc_hash::FxHashMap;

/// The user of a process without a channel: unknown.
pub(crate) const NOBODY: u32 = u32::MAX;

/// One other process.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The nodes of this process that the peer holds, and how, by the broker's events.
    pub grants: FxHashMap<NodeId, Strength>,
    /// Effective user id.
    pub uid: u32,
    /// Thread group id.
    pub pid: u32,
    /// Security label, empty until there is a channel.
    pub label: String,
}

impl Peer {
    /// Whether nothing is known of the peer any more.
    pub fn is_unused(&self) -> bool {
        self.grants.is_empty() && self.label.is_empty()
    }
}

/// The last broker that this process has joined.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Broker {
    pub era: u32,
    /// The broker is alive, as far as is known.
    pub is_alive: bool,
}

impl Broker {
    /// Whether a message's ticket, or its grant if it has none, may be on its way.
    pub fn may_send(self, ticket: u64) -> bool {
        self.is_alive && (ticket == 0 || era_of(ticket) == self.era)
    }
}
