//! References: this process's handles to nodes of others.
//!
//! The counts are local. What the broker gave for a handle (grants) goes back to it once the
//! counts no longer need it: the strong grants when the last strong count goes, all of them with
//! the last count of all.

use super::node::Counts;
use super::{Effect, State};
use baton_abi::control::{Granted, NodeId, ProcessId, Request, Strength};
use baton_abi::uapi::*;
use std::collections::BTreeMap;

/// One handle.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Who owns the node.
    pub owner: ProcessId,
    /// The owner's name for it.
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
    /// The owner is gone.
    pub dead: bool,
    /// The program wants to know of the node's death.
    pub death: Option<super::death::Notice>,
    /// The program wants to know of the owner's freezing.
    pub freeze: Option<super::freeze::Notice>,
}

impl Reference {
    /// A handle that has just been granted.
    pub fn new(owner: ProcessId, node: NodeId, flags: u32) -> Reference {
        Reference {
            owner,
            node,
            flags,
            counts: Counts::default(),
            sending: 0,
            grants: (0, 0),
            dead: false,
            death: None,
            freeze: None,
        }
    }

    /// One more grant from the broker.
    pub fn grant(&mut self, strength: Strength) {
        self.grants.1 += 1;
        if strength == Strength::Strong {
            self.grants.0 += 1;
        }
    }

    /// Grants that are not needed any more, strong and all, and whether the handle goes.
    pub fn surplus(&mut self) -> Option<((u32, u32), bool)> {
        if self.counts.strong > 0 || self.sending > 0 {
            return None;
        }
        if self.counts.weak == 0 {
            return Some((std::mem::take(&mut self.grants), true));
        }
        let strong = std::mem::take(&mut self.grants.0);
        // One grant of the handle itself stays; a strong grant becomes a weak one in its place.
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
    /// By handle.
    pub fn get(&self, handle: u32) -> Option<&Reference> {
        self.by_handle.get(&handle)
    }

    /// By handle.
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut Reference> {
        self.by_handle.get_mut(&handle)
    }

    /// A handle that the broker named, known already or not.
    pub fn granted(
        &mut self,
        handle: u32,
        owner: ProcessId,
        node: NodeId,
        flags: u32,
    ) -> &mut Reference {
        let reference =
            self.by_handle.entry(handle).or_insert_with(|| Reference::new(owner, node, flags));
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

impl State {
    /// BC_INCREFS of a handle that the program has, and BC_ACQUIRE of one that it has strongly.
    pub fn increase(&mut self, handle: u32, strength: Strength) -> bool {
        let held = self.holds(handle, strength);
        if let Some(reference) = self.references.get_mut(handle).filter(|_| held) {
            *reference.counts.of(strength) += 1;
        }
        held
    }

    /// BC_INCREFS and BC_ACQUIRE of handle 0, which make it the program's while there is a context
    /// manager.
    pub fn increase_manager(&mut self, strength: Strength) -> bool {
        let Some(reference) = self.manager.and_then(|handle| self.references.get_mut(handle))
        else {
            return self.increase(0, strength);
        };
        *reference.counts.of(strength) += 1;
        true
    }

    /// A command named a handle that does not exist.
    pub fn invalid_handle(&mut self, command: u32, handle: u32) {
        self.complain(format!("{} tried on invalid ref {handle}", command_name(command)));
    }

    /// BC_RELEASE and BC_DECREFS.
    pub fn decrease(&mut self, handle: u32, strength: Strength) {
        let command = match strength {
            Strength::Strong => BC_RELEASE,
            Strength::Weak => BC_DECREFS,
        };
        let Some(reference) = self.references.get_mut(handle) else {
            return self.invalid_handle(command, handle);
        };
        let pinned = u32::from(self.manager == Some(handle));
        if pinned > 0 && reference.counts.weak == 0 && reference.counts.strong == pinned {
            return self.invalid_handle(command, handle);
        }
        let pinned = self.pinned(handle, strength);
        let reference = self.references.get_mut(handle).expect("just seen");
        let count = reference.counts.of(strength);
        if *count <= pinned {
            return self.complain(format!("{} invalid dec, ref {handle}", command_name(command)));
        }
        *count -= 1;
        self.return_grants(handle);
    }

    /// Counts that calls to handle 0 keep, and nobody gives up.
    fn pinned(&self, handle: u32, strength: Strength) -> u32 {
        u32::from(strength == Strength::Strong && self.manager == Some(handle))
    }

    /// A handle that the program has: not one that only calls to handle 0 keep.
    pub(super) fn held(&mut self, handle: u32) -> Option<&mut Reference> {
        let pinned = u32::from(self.manager == Some(handle));
        let reference = self.references.get_mut(handle)?;
        (reference.counts.strong > pinned || reference.counts.weak > 0).then_some(reference)
    }

    /// Whether the program has a handle this strongly.
    pub fn holds(&mut self, handle: u32, strength: Strength) -> bool {
        let pinned = u32::from(self.manager == Some(handle));
        self.held(handle)
            .is_some_and(|reference| strength == Strength::Weak || reference.counts.strong > pinned)
    }

    /// Whose node's the handle is, if it may not be held strongly any more when up to so many
    /// counts go.
    pub fn owner_of_last(&self, handle: u32, counts: usize) -> Option<ProcessId> {
        let pinned = self.pinned(handle, Strength::Strong) as usize;
        let is_last = |held: &&Reference| held.counts.strong as usize <= pinned + counts;
        self.references.get(handle).filter(is_last).map(|reference| reference.owner)
    }

    /// The same of all handles that these hold.
    pub(super) fn owners_of_last(&self, held: &[Granted]) -> Vec<ProcessId> {
        let owner = |granted: &Granted| match *granted {
            Granted::Handle { handle, strength: Strength::Strong, .. } => {
                self.owner_of_last(handle, held.len())
            }
            _ => None,
        };
        held.iter().filter_map(owner).collect()
    }

    /// The program has let go of the manager's handle, which stays for calls to handle 0: what it
    /// wanted to hear by it goes.
    fn forget_notices(&mut self, handle: u32) {
        if self.held(handle).is_some() {
            return;
        }
        let Some(reference) = self.references.get_mut(handle) else { return };
        let (death, freeze) = (reference.death.take(), reference.freeze.take());
        if let Some(notice) = death {
            self.drop_notice(notice);
        }
        if let Some(notice) = freeze {
            self.drop_freeze(notice);
        }
    }

    pub(super) fn return_grants(&mut self, handle: u32) {
        let Some(reference) = self.references.get_mut(handle) else { return };
        let unused = reference.counts.strong == 0 && reference.sending > 0;
        let owner = reference.owner;
        let Some(((strong, grants), over)) = reference.surplus() else {
            if unused {
                self.effect(Effect::EndSending(handle));
            }
            return self.forget_notices(handle);
        };
        if over {
            // Before the broker hears that the number is free.
            self.effect(Effect::Forgotten(owner));
        }
        if strong > 0 || grants > 0 {
            self.effect(Effect::Tell(Request::Release { handle, strong, grants }));
        }
        if !over {
            return;
        }
        let reference = self.references.remove(handle).expect("just seen");
        if let Some(notice) = reference.death {
            self.drop_notice(notice);
        }
        if let Some(notice) = reference.freeze {
            self.drop_freeze(notice);
        }
    }

    pub(super) fn hold(&mut self, granted: &Granted) {
        match *granted {
            Granted::Handle { handle, owner, node, strength, flags } => {
                let reference = self.references.granted(handle, owner, node, flags);
                reference.grant(strength);
                *reference.counts.of(strength) += 1;
            }
            Granted::Own { node, strength } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    *node.local.of(strength) += 1;
                }
            }
        }
    }

    pub(super) fn let_go(&mut self, granted: &Granted) {
        match *granted {
            Granted::Handle { handle, strength, .. } => {
                let pinned = self.pinned(handle, strength);
                let Some(reference) = self.references.get_mut(handle) else { return };
                let count = reference.counts.of(strength);
                if *count <= pinned {
                    // The program has given up what was not its own.
                    return self.complain(format!("invalid dec, ref {handle}"));
                }
                *count -= 1;
                self.return_grants(handle);
            }
            Granted::Own { node: id, strength } => {
                if let Some(node) = self.nodes.get_mut(id) {
                    *node.local.of(strength) -= 1;
                }
                self.node_dropped(id, strength);
                self.node_named(id);
            }
        }
    }
}
