//! A node as the broker sees it: the processes that hold it by grants of the broker's, and how
//! strongly each holds it.
//!
//! The broker knows a node from the first such grant, or from the moment when it manages a context,
//! until it has neither holder nor that role, or until its owner is dead. The broker does not know
//! the processes to which the owner has granted the node itself.

use baton_abi::control::{NodeId, ProcessId, Strength};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The system-wide name of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    /// The owner.
    pub owner: ProcessId,
    /// The owner's name for the node.
    pub node: NodeId,
}

impl NodeKey {
    /// Every name that a node of this owner can have.
    pub(super) fn all_of(owner: ProcessId) -> RangeInclusive<NodeKey> {
        NodeKey { owner, node: NodeId(0) }..=NodeKey { owner, node: NodeId(u64::MAX) }
    }
}

/// The part of a node's state that its owner is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub strong: bool,
    pub held: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// `flat_binder_object.flags` at its first appearance.
    pub flags: u32,
    /// Whether the node manages its context, which keeps it known without holders.
    pub is_manager: bool,
    holders: BTreeMap<ProcessId, Strength>,
    n_strong: u32,
}

impl Node {
    pub fn new(flags: u32) -> Node {
        Node { flags, is_manager: false, holders: BTreeMap::new(), n_strong: 0 }
    }

    pub fn summary(&self) -> Summary {
        Summary { strong: self.n_strong > 0, held: !self.holders.is_empty() }
    }

    pub fn holders(&self) -> impl Iterator<Item = ProcessId> {
        self.holders.keys().copied()
    }

    /// The processes from `first` on that hold the node, in the order of their ids.
    pub fn holdings_from(&self, first: ProcessId) -> impl Iterator<Item = (ProcessId, Strength)> {
        self.holders.range(first..).map(|(holder, strength)| (*holder, *strength))
    }

    /// The strength with which a process holds the node by the broker's grants.
    pub fn held_by(&self, holder: ProcessId) -> Option<Strength> {
        self.holders.get(&holder).copied()
    }

    /// Sets how a process holds the node. Returns whether that is a change.
    pub fn set(&mut self, holder: ProcessId, holding: Option<Strength>) -> bool {
        let before = match holding {
            Some(strength) => self.holders.insert(holder, strength),
            None => self.holders.remove(&holder),
        };
        self.n_strong += u32::from(holding == Some(Strength::Strong));
        self.n_strong -= u32::from(before == Some(Strength::Strong));
        before != holding
    }
}
