//! References: this process's handles to nodes of others.
//!
//! The counts are local. The broker's grants of a handle go back to it once the counts no longer
//! need them: the strong grants when the last strong count goes, all of them with the last count of
//! all.

use crate::node::Counts;
use crate::notice::{DeathNotice, FreezeNotice};
use baton_abi::control::{NodeId, ProcessId};
use std::collections::BTreeMap;

/// One handle.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The node's owner.
    pub owner: ProcessId,
    /// The node's number at its owner.
    pub node: NodeId,
    /// The node's flags.
    pub flags: u32,
    /// The program's counts and those of buffers that hold the handle.
    pub counts: Counts,
    /// Transactions to the node that are being sent or wait for their answer: the grants stay while
    /// there are any.
    pub sending: u32,
    /// Grants not yet returned: strong ones, and all.
    pub grants: (u32, u32),
    /// The owner is dead.
    pub dead: bool,
    /// The program wants to know of the node's death.
    pub death: Option<DeathNotice>,
    /// The program wants to know of the owner's freezing.
    pub freeze: Option<FreezeNotice>,
}

impl Reference {
    /// Grants that are no longer needed, strong ones and all, and whether the handle goes.
    pub fn surplus(&mut self) -> Option<((u32, u32), bool)> {
        if self.counts.strong > 0 || self.sending > 0 {
            return None;
        }
        if self.counts.weak == 0 {
            return Some((std::mem::take(&mut self.grants), true));
        }
        let strong = std::mem::take(&mut self.grants.0);
        // One grant keeps the handle itself; a strong grant that goes becomes a weak one for that.
        let all = strong.min(self.grants.1 - 1);
        self.grants.1 -= all;
        (strong > 0).then_some(((strong, all), false))
    }
}

/// All handles of the process.
#[derive(Clone, Debug, Default)]
pub struct References {
    by_handle: BTreeMap<u32, Reference>,
}

impl References {
    /// A reference by its handle.
    pub fn get(&self, handle: u32) -> Option<&Reference> {
        self.by_handle.get(&handle)
    }

    /// A reference by its handle.
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut Reference> {
        self.by_handle.get_mut(&handle)
    }

    /// The reference of a handle that the broker named, added if it is new.
    pub(crate) fn get_or_add(
        &mut self,
        handle: u32,
        (owner, node): (ProcessId, NodeId),
        flags: u32,
    ) -> &mut Reference {
        let reference = self.by_handle.entry(handle).or_insert_with(|| Reference {
            owner,
            node,
            flags,
            counts: Counts::default(),
            sending: 0,
            grants: (0, 0),
            dead: false,
            death: None,
            freeze: None,
        });
        debug_assert!(
            reference.dead || (reference.owner, reference.node) == (owner, node),
            "the broker reused {handle}"
        );
        reference
    }

    /// Forgets a handle.
    pub fn remove(&mut self, handle: u32) -> Option<Reference> {
        self.by_handle.remove(&handle)
    }

    /// Every handle.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Reference)> {
        self.by_handle.iter().map(|(&handle, reference)| (handle, reference))
    }

    /// Every handle.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Reference)> {
        self.by_handle.iter_mut().map(|(&handle, reference)| (handle, reference))
    }
}
