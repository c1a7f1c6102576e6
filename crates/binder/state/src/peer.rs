//! Peers: the other processes, what each holds of this process's nodes, and the broker between
//! them.

use crate::account::{Account, Held, Resource};
use baton_abi::claim::era_of;
use baton_abi::control::{Identity, NodeId, Strength};
use baton_abi::holder_list::ENTRIES;
use baton_abi::lane::{ChainEntry, ReturnedGrants, SENDER_USER};
use rustc_hash::{FxHashMap, FxHashSet};

/// The user of a process without a channel: unknown.
pub(crate) const NOBODY: u32 = u32::MAX;

/// One other process.
#[derive(Debug, Default)]
pub struct Peer {
    /// The nodes of this process to which the broker has introduced the peer, and how it holds
    /// them.
    pub introduced: FxHashMap<NodeId, Strength>,
    /// The nodes that this process has granted to the peer.
    pub granted: FxHashMap<NodeId, Granted>,
    /// Those among these nodes that the peer has called: threads may have noted that it may.
    pub called: FxHashSet<NodeId>,
    /// The peer's entries in this process's list, as a share of what its user may have.
    pub(crate) entries: Option<Held>,
    /// Effective user id.
    pub uid: u32,
    /// Thread group id.
    pub pid: u32,
    /// Its messages may name another user: see [`Identity::is_served_by_root`].
    pub is_served_by_root: bool,
    /// Security label, empty until there is a channel.
    pub label: String,
}

/// One node's grants to one peer, which the peer has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Strong ones.
    pub strong: u64,
    /// Of either strength. The peer may return these before it returns that they were strong.
    pub all: u64,
    /// The peer's entry in this process's list.
    pub entry: u32,
}

impl Granted {
    /// Counts one more.
    pub(crate) fn add(&mut self, strength: Strength) {
        self.strong += u64::from(strength == Strength::Strong);
        self.all += 1;
    }

    /// Whether the peer holds the node so strongly by these grants.
    pub(crate) fn holds(&self, strength: Strength) -> bool {
        match strength {
            Strength::Strong => self.strong > 0,
            Strength::Weak => self.all > 0,
        }
    }

    /// What is left after a return.
    fn less(self, returned: ReturnedGrants) -> Result<Granted, OverReturn> {
        let strong = self.strong.checked_sub(returned.strong.into()).ok_or(OverReturn)?;
        let all = self.all.checked_sub(returned.all.into()).ok_or(OverReturn)?;
        Ok(Granted { strong, all, ..self })
    }

    /// How the peer holds the node by these grants.
    pub fn holding(&self) -> Option<Strength> {
        match (self.strong, self.all) {
            (0, 0) => None,
            (0, _) => Some(Strength::Weak),
            _ => Some(Strength::Strong),
        }
    }
}

/// The user that a message names as its sender's, if it does. Entries that do so are taken out of
/// the chain: whoever sends the chain on is another sender.
pub(crate) fn take_sender_user(chain: &mut Vec<ChainEntry>) -> Option<u32> {
    let named = chain.iter().find(|entry| entry.process == SENDER_USER)?.token;
    chain.retain(|entry| entry.process != SENDER_USER);
    u32::try_from(named).ok()
}

impl Peer {
    /// Notes who the peer is, by the broker's word.
    pub fn identify(&mut self, peer: Identity) {
        let Identity { pid, uid, security_context, is_served_by_root, .. } = peer;
        (self.pid, self.uid, self.label) = (pid, uid, security_context);
        self.is_served_by_root = is_served_by_root;
    }

    /// The peer's pid and user as the sender of a message, which may name another user.
    pub(crate) fn sender(&self, named: Option<u32>) -> (u32, u32) {
        (self.pid, named.filter(|_| self.is_served_by_root).unwrap_or(self.uid))
    }

    /// How the peer holds a node of this process.
    pub fn holding(&self, node: NodeId) -> Option<Strength> {
        let introduced = self.introduced.get(&node).copied();
        stronger(introduced, self.granted.get(&node).and_then(Granted::holding))
    }

    /// How the peer will hold the change's node after it.
    pub(crate) fn holding_after(
        &self,
        change: HoldingChange,
    ) -> Result<Option<Strength>, OverReturn> {
        let node = change.node();
        let granted = self.granted.get(&node).copied();
        let (introduced, granted) = match change {
            HoldingChange::Returned(returned) => {
                let left = granted.ok_or(OverReturn)?.less(returned)?;
                (self.introduced.get(&node).copied(), Some(left))
            }
            HoldingChange::Introduced(_, holding) => (holding, granted),
        };
        Ok(stronger(introduced, granted.as_ref().and_then(Granted::holding)))
    }

    /// Whether the peer holds a node of this process so strongly.
    pub fn holds(&self, node: NodeId, strength: Strength) -> bool {
        let holding = self.holding(node);
        holding == Some(Strength::Strong) || strength == Strength::Weak && holding.is_some()
    }

    /// Counts one more entry. False if the peer's user has as many as it may.
    pub(crate) fn count_entry(&mut self, account: &Account) -> bool {
        match &mut self.entries {
            Some(entries) => entries.add_one(),
            None => {
                self.entries = account.take(Resource::Entries, 1);
                self.entries.is_some()
            }
        }
    }

    /// Whether nothing is known of the peer any more.
    pub fn is_unused(&self) -> bool {
        self.introduced.is_empty() && self.granted.is_empty() && self.label.is_empty()
    }
}

/// A peer returned grants that it did not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverReturn;

/// A change of what a peer holds of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldingChange {
    /// It returns grants of this process.
    Returned(ReturnedGrants),
    /// How it holds the node by the broker's grants.
    Introduced(NodeId, Option<Strength>),
}

impl HoldingChange {
    /// The node.
    pub fn node(&self) -> NodeId {
        match *self {
            HoldingChange::Returned(ReturnedGrants { node, .. }) => NodeId(node),
            HoldingChange::Introduced(node, _) => node,
        }
    }
}

impl Peer {
    /// Applies a change.
    pub(crate) fn change(&mut self, change: HoldingChange) -> Result<(), OverReturn> {
        match change {
            HoldingChange::Returned(returned) => {
                let granted = self.granted.get_mut(&change.node()).ok_or(OverReturn)?;
                *granted = granted.less(returned)?;
            }
            HoldingChange::Introduced(node, holding) => {
                match holding {
                    Some(strength) => self.introduced.insert(node, strength),
                    None => self.introduced.remove(&node),
                };
            }
        }
        Ok(())
    }
}

/// The stronger of two holds of one node.
fn stronger(one: Option<Strength>, other: Option<Strength>) -> Option<Strength> {
    match [one, other].contains(&Some(Strength::Strong)) {
        true => Some(Strength::Strong),
        false => one.or(other),
    }
}

/// The entries of this process's list.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    free: Vec<u32>,
    /// The entries from here on were never in use.
    pub end: u32,
}

impl Entries {
    /// Takes a free entry. `None` if there is none.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let entry = self.end;
            self.end = (entry + 1).min(ENTRIES);
            (entry < ENTRIES).then_some(entry)
        })
    }

    /// Gives an entry back.
    pub fn give(&mut self, entry: u32) {
        self.free.push(entry);
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
