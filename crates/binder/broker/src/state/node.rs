//! A node as the broker sees it: its holders, and how strongly each holds it.
//!
//! The broker knows a node from its first grant, or from the moment when it manages a context,
//! until it has neither holder nor that role. A node outlives its owner as long as some process has
//! a handle to it.

use baton_abi::control::{NodeId, ProcessId, Strength};
use std::collections::BTreeMap;

/// The system-wide name of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    /// The owner.
    pub owner: ProcessId,
    /// The owner's name for the node.
    pub node: NodeId,
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

    /// Number of processes that hold the node strongly, and that hold it at all.
    pub fn counts(&self) -> (u32, u32) {
        (self.n_strong, self.holders.len() as u32)
    }

    pub fn holders(&self) -> impl Iterator<Item = ProcessId> {
        self.holders.keys().copied()
    }

    /// The strength with which a process holds the node.
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
