//! A process's handle table: numbers for nodes of other processes, and the grants on each.
//!
//! **Invariant**: each handle has one node, and each node at most one handle. A handle exists
//! exactly as long as `grants > 0`; `strong_grants <= grants`.

use super::node::NodeKey;
use baton_abi::control::{NodeId, ProcessId, Strength};
use std::collections::{BTreeMap, BTreeSet};

/// One entry of a handle table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    pub key: NodeKey,
    /// Grants that were given and not returned, of either strength. 64 bits cannot overflow in
    /// practice.
    pub grants: u64,
    /// The strong ones among `grants`.
    pub strong_grants: u64,
    /// The user whose process gave the first grant.
    pub giver: u32,
}

impl Handle {
    /// The strength with which the process holds the node through this handle.
    pub fn holding(&self) -> Option<Strength> {
        match (self.strong_grants, self.grants) {
            (0, 0) => None,
            (0, _) => Some(Strength::Weak),
            _ => Some(Strength::Strong),
        }
    }
}

/// A process returned grants that it did not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OverReturn;

#[derive(Clone, Debug, Default)]
pub(super) struct Handles {
    by_number: BTreeMap<u32, Handle>,
    by_node: BTreeMap<NodeKey, u32>,
    /// Free numbers below `end`, without 0.
    free: BTreeSet<u32>,
    /// A number above every one that was ever in use, at least 1.
    end: u32,
}

impl Handles {
    pub fn get(&self, number: u32) -> Option<&Handle> {
        self.by_number.get(&number)
    }

    pub fn number_of(&self, key: NodeKey) -> Option<u32> {
        self.by_node.get(&key).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Handle)> {
        self.from(0)
    }

    /// Handles in the order of their numbers, from `first` on.
    pub fn from(&self, first: u64) -> impl Iterator<Item = (u32, &Handle)> {
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        self.by_number.range(first..).map(|(number, handle)| (*number, handle))
    }

    /// Whether the table has a handle to a node of this owner.
    pub fn holds_node_of(&self, owner: ProcessId) -> bool {
        let first = NodeKey { owner, node: NodeId(0) };
        let last = NodeKey { owner, node: NodeId(u64::MAX) };
        self.by_node.range(first..=last).next().is_some()
    }

    /// Adds a grant on the handle for a node, and makes the handle if there is none.
    pub fn grant(&mut self, key: NodeKey, strength: Strength, is_manager: bool, giver: u32) -> u32 {
        let number = match self.by_node.get(&key) {
            Some(number) => *number,
            None => self.insert_new(key, is_manager, giver),
        };
        let handle = self.by_number.get_mut(&number).expect("both maps have the same handles");
        handle.grants += 1;
        handle.strong_grants += u64::from(strength == Strength::Strong);
        number
    }

    /// Adds a handle with the number that a previous broker gave it. Lower numbers become free, so
    /// the caller bounds the number.
    pub fn adopt(&mut self, number: u32, handle: Handle) {
        let end = self.end.max(1);
        if number >= end {
            self.free.extend(end..number);
            self.end = number + 1;
        }
        self.free.remove(&number);
        self.by_node.insert(handle.key, number);
        self.by_number.insert(number, handle);
    }

    /// Makes the handle for one node a handle for another. Returns the handle, if there was one.
    pub fn rebind(&mut self, from: NodeKey, to: NodeKey) -> Option<(u32, Handle)> {
        let number = self.by_node.remove(&from)?;
        self.by_node.insert(to, number);
        let handle = self.by_number.get_mut(&number).expect("both maps have the same handles");
        handle.key = to;
        Some((number, *handle))
    }

    /// Takes grants back, and removes the handle with its last grant.
    ///
    /// `strong` may exceed `grants`: the difference becomes weak grants.
    pub fn release(&mut self, number: u32, strong: u32, grants: u32) -> Result<Handle, OverReturn> {
        let handle = self.by_number.get_mut(&number).ok_or(OverReturn)?;
        let left = Handle {
            grants: handle.grants.checked_sub(grants.into()).ok_or(OverReturn)?,
            strong_grants: handle.strong_grants.checked_sub(strong.into()).ok_or(OverReturn)?,
            ..*handle
        };
        if left.strong_grants > left.grants {
            return Err(OverReturn);
        }
        *handle = left;
        if left.grants == 0 {
            self.by_number.remove(&number);
            self.by_node.remove(&left.key);
            if number != 0 {
                self.free.insert(number);
            }
        }
        Ok(left)
    }

    /// Numbers a new handle as the kernel does: the lowest free number, where only the manager's
    /// node may get 0.
    fn insert_new(&mut self, key: NodeKey, is_manager: bool, giver: u32) -> u32 {
        let number = if is_manager && !self.by_number.contains_key(&0) {
            0
        } else if let Some(lowest) = self.free.pop_first() {
            lowest
        } else {
            self.end = self.end.max(1) + 1;
            self.end - 1
        };
        self.by_number.insert(number, Handle { key, grants: 0, strong_grants: 0, giver });
        self.by_node.insert(key, number);
        number
    }
}
