//! A process's book of grants: for each node of another process, the grants that the broker gave.
//!
//! Grants that an owner gives itself are not in any book: the owner and the holder count them, and
//! the owner lists them in its [`HolderLists`](super::HolderLists) file.
//!
//! **Invariant**: a node is in the book exactly as long as `grants > 0`; `strong_grants <= grants`.

use super::node::NodeKey;
use baton_abi::control::{ProcessId, Strength};
use std::collections::BTreeMap;

/// The grants that a process has on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Grant {
    /// Grants that were given and not returned, of either strength. 64 bits cannot overflow in
    /// practice.
    pub grants: u64,
    /// The strong ones among `grants`.
    pub strong_grants: u64,
    /// The user whose process gave the first grant.
    pub giver: u32,
}

impl Grant {
    /// The strength with which the process holds the node by these grants.
    pub fn holding(&self) -> Option<Strength> {
        match (self.strong_grants, self.grants) {
            (0, 0) => None,
            (0, _) => Some(Strength::Weak),
            _ => Some(Strength::Strong),
        }
    }

    /// What is left after a return. `strong` may exceed `grants`: the difference becomes weak
    /// grants.
    fn without(self, strong: u32, grants: u32) -> Option<Grant> {
        let left = Grant {
            grants: self.grants.checked_sub(grants.into())?,
            strong_grants: self.strong_grants.checked_sub(strong.into())?,
            ..self
        };
        (left.strong_grants <= left.grants).then_some(left)
    }
}

/// A process returned grants that it did not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OverReturn;

#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    by_node: BTreeMap<NodeKey, Grant>,
    /// Whether an owner has denied some grant of the process. The process may return such a grant
    /// before it reads [`Event::Denied`](baton_abi::control::Event::Denied).
    was_denied: bool,
}

impl Grants {
    pub fn get(&self, key: NodeKey) -> Option<Grant> {
        self.by_node.get(&key).copied()
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeKey> {
        self.by_node.keys().copied()
    }

    /// Whether the process has a grant on a node of this owner.
    pub fn holds_node_of(&self, owner: ProcessId) -> bool {
        self.by_node.range(NodeKey::all_of(owner)).next().is_some()
    }

    /// Adds a grant. Returns all grants on the node.
    pub fn grant(&mut self, key: NodeKey, strength: Strength, giver: u32) -> Grant {
        let new = Grant { giver, ..Grant::default() };
        let grant = self.by_node.entry(key).or_insert(new);
        grant.grants += 1;
        grant.strong_grants += u64::from(strength == Strength::Strong);
        *grant
    }

    /// Enters the grants that a previous broker gave on a node that is not in the book.
    pub fn adopt(&mut self, key: NodeKey, grant: Grant) {
        self.by_node.insert(key, grant);
    }

    /// Takes grants back, and removes the node with its last grant. Returns what is left, or `None`
    /// for grants that were void already.
    pub fn release(
        &mut self,
        key: NodeKey,
        strong: u32,
        grants: u32,
    ) -> Result<Option<Grant>, OverReturn> {
        let before = self.by_node.get(&key).copied();
        let left = match before.and_then(|grant| grant.without(strong, grants)) {
            Some(left) => left,
            None if !self.was_denied => return Err(OverReturn),
            None => match before {
                // Void grants come back together with valid ones, or count as such.
                Some(grant) => Grant { grants: 0, strong_grants: 0, ..grant },
                None => return Ok(None),
            },
        };
        match left.grants {
            0 => self.by_node.remove(&key),
            _ => self.by_node.insert(key, left),
        };
        Ok(Some(left))
    }

    /// Removes the grants on a node, because its owner is dead. Returns them, if there were any.
    pub fn remove(&mut self, key: NodeKey) -> Option<Grant> {
        self.by_node.remove(&key)
    }

    /// Records that some owner denies grants of the process.
    pub fn note_denial(&mut self) {
        self.was_denied = true;
    }
}
