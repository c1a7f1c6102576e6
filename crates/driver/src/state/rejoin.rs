//! The broker's death, and what its successor is told.

use super::State;
use baton_abi::claim::{Claim, era_of};
use baton_abi::control::{NodeId, ProcessId};

/// How this process stands with brokers.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Of the last that was told of this process.
    era: u32,
    /// It is there, as far as is known.
    alive: bool,
}

impl Standing {
    /// With the broker that admitted it.
    pub fn new(era: u32) -> Standing {
        Standing { era, alive: true }
    }
}

impl State {
    /// Every event of the broker has been applied, and there will be none.
    pub fn broker_lost(&mut self) {
        self.broker.alive = false;
    }

    /// Whether what is missing may still come.
    pub fn has_broker(&self) -> bool {
        self.broker.alive
    }

    /// Whether a message's ticket, or its grant if it has none, may be on its way.
    pub(super) fn is_to_come(&self, ticket: u64) -> bool {
        self.broker.alive && (ticket == 0 || era_of(ticket) == self.broker.era)
    }

    /// Whether what a broker of this era answered still holds.
    pub fn is_of(&self, era: u32) -> bool {
        self.broker.era == era
    }

    /// Our nodes that manage the context, or are to, and their flags. The broker that was asked may
    /// have agreed and died: the next one knows.
    pub fn managers(&self) -> Vec<(NodeId, u32)> {
        let managers = self.nodes.iter().filter(|(_, node)| node.may_manage());
        managers.map(|(id, node)| (id, node.flags)).collect()
    }

    /// There is another broker: what it is to be told of nodes and handles. References under way
    /// are given up: a message that brings an old ticket from now on is refused. Peers that neither
    /// hold anything here nor have a channel are forgotten: nobody would tell of their deaths.
    pub fn rejoin(&mut self, era: u32, channels: impl Fn(ProcessId) -> bool) -> Vec<Claim> {
        self.peers.retain(|&id, peer| !peer.grants.is_empty() || channels(id));
        let mut waiting: Vec<_> = self.tickets.keys().copied().collect();
        waiting.sort_unstable();
        for (from, ticket) in waiting {
            self.release_ticket(from, ticket);
        }
        self.disowned.clear();
        (self.broker.era, self.broker.alive) = (era, true);
        let mut claims = self.held_by_others();
        claims.extend(self.references.iter().map(|(handle, reference)| Claim::Handle {
            handle,
            owner: reference.owner,
            node: reference.node,
            strong: reference.grants.0,
            grants: reference.grants.1,
        }));
        claims
    }

    fn held_by_others(&self) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (&holder, peer) in &self.peers {
            let mut nodes: Vec<NodeId> = peer.grants.iter().copied().collect();
            nodes.sort_unstable();
            for id in nodes {
                if let Some(node) = self.nodes.get(id) {
                    let (flags, strong) = (node.flags, node.remote_strong);
                    claims.push(Claim::Node { node: id, flags, strong, holder });
                }
            }
        }
        claims
    }
}
