//! A node as the broker sees it: who holds it, and how strongly.
//!
//! It is known from the first grant, or from the moment when it manages a context, until it has
//! neither a holder nor that role. It outlives its owner as long as somebody has a handle to it.

use baton_abi::control::{NodeId, ProcessId, Strength};
use std::collections::BTreeMap;

/// A node's name in the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    /// Whose node.
    pub owner: ProcessId,
    /// Which of it.
    pub node: NodeId,
}

/// What its owner is told of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub strong: bool,
    pub held: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// `flat_binder_object.flags` at its first appearance.
    pub flags: u32,
    /// It is its context's manager, which keeps it known.
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

    /// Processes that hold it strongly, and that hold it at all.
    pub fn counts(&self) -> (u32, u32) {
        (self.n_strong, self.holders.len() as u32)
    }

    pub fn holders(&self) -> impl Iterator<Item = ProcessId> {
        self.holders.keys().copied()
    }

    /// What a process holds of it.
    pub fn held_by(&self, holder: ProcessId) -> Option<Strength> {
        self.holders.get(&holder).copied()
    }

    /// Sets what a process holds of it; whether that is a change.
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
