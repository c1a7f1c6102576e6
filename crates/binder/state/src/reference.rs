//! References: this process's handles to nodes of others.
//!
//! The counts are local. A handle's grants go back to whoever gave them, broker or owner, once the
//! counts no longer need them: the strong grants when the last strong count goes, all of them with
//! the last count of all.

use crate::account::Held;
use crate::known::KnownEntry;
use crate::node::{Counts, NodeKey};
use crate::notice::{DeathNotice, FreezeNotice};
use baton_abi::control::{HeldNode, NodeId, ProcessId, Strength};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// A holder returns all but one of so many grants.
const MANY_GRANTS: u32 = 1 << 16;

/// Grants of one giver that have not been returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The strong ones among them.
    pub strong: u32,
    /// Of either strength.
    pub all: u32,
}

impl Grants {
    /// Counts one more.
    pub fn add(&mut self, strength: Strength) {
        self.strong += u32::from(strength == Strength::Strong);
        self.all += 1;
    }

    /// Takes out all but one of many: a handle that is kept, and sent again and again, would count
    /// without end.
    pub(crate) fn take_excess(&mut self) -> Option<Grants> {
        if self.all < MANY_GRANTS {
            return None;
        }
        let kept = Grants { strong: self.strong.min(1), all: 1 };
        let all = std::mem::replace(self, kept);
        Some(Grants { strong: all.strong - kept.strong, all: all.all - kept.all })
    }

    /// Takes out those that a process without a strong count returns, or without any.
    fn surplus(&mut self, has_weak: bool) -> Grants {
        if !has_weak {
            return std::mem::take(self);
        }
        let strong = std::mem::take(&mut self.strong);
        // One grant keeps the handle; a strong grant that goes becomes a weak one for that.
        let all = strong.min(self.all.saturating_sub(1));
        self.all -= all;
        Grants { strong, all }
    }
}

/// The grants of a handle, by their giver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByGiver {
    /// Those of the broker, which has introduced this process.
    pub broker: Grants,
    /// Those of the node's owner.
    pub owner: Grants,
}

/// One handle.
#[derive(Debug)]
pub struct Reference {
    /// The node's owner.
    pub owner: ProcessId,
    /// The node's number at its owner.
    pub node: NodeId,
    /// The node's flags.
    pub flags: u32,
    /// The program's counts and those of buffers that hold the handle.
    pub counts: Counts,
    /// Transactions to the node, or with it, that are being sent or wait for their answer: the
    /// grants stay while there are any.
    pub sending: u32,
    /// Offers of the handle to peers, as a known node: the grants stay while there are any.
    pub(crate) known: SmallVec<[KnownEntry; 1]>,
    /// The broker has said that the node manages the context.
    manages: bool,
    /// The number of the round before which a count or transaction needed the grants last.
    pub(crate) idle_since: u64,
    /// The handle has been called: threads may have noted the way to its node.
    pub called: bool,
    /// Grants not yet returned.
    pub grants: ByGiver,
    /// This process's entry in the owner's list, if the owner has granted the node itself.
    pub entry: Option<u32>,
    /// The owner is dead.
    pub dead: bool,
    /// The program wants to know of the node's death.
    pub death: Option<DeathNotice>,
    /// The program wants to know of the owner's freezing.
    pub freeze: Option<FreezeNotice>,
    /// The handle's share of what the owner's user may give.
    pub(crate) share: Option<Held>,
}

impl Reference {
    fn new((owner, node): NodeKey, flags: u32) -> Reference {
        Reference {
            owner,
            node,
            flags,
            counts: Counts::default(),
            sending: 0,
            known: SmallVec::new(),
            manages: false,
            idle_since: 0,
            called: false,
            grants: ByGiver::default(),
            entry: None,
            dead: owner == ProcessId::BROKER,
            death: None,
            freeze: None,
            share: None,
        }
    }

    /// The node for the broker, as this process passes it on.
    pub fn held_node(&self, strength: Strength) -> HeldNode {
        let Reference { owner, node, entry, .. } = *self;
        HeldNode { owner, node, strength, entry }
    }

    /// The node.
    pub(crate) fn key(&self) -> NodeKey {
        (self.owner, self.node)
    }

    /// Whether no strong count needs its grants, and no transaction.
    pub(crate) fn is_idle(&self) -> bool {
        self.counts.strong == 0 && self.sending == 0
    }

    /// Whether no count needs the handle, and no transaction.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_idle() && self.counts.weak == 0
    }

    /// Whether an idle reference has grants or offers that its counts do not need.
    pub(crate) fn has_surplus(&self) -> bool {
        let ByGiver { broker, owner } = self.grants;
        let is_strong = broker.strong > 0 || owner.strong > 0;
        let none = ByGiver::default();
        is_strong || !self.known.is_empty() || self.counts.weak == 0 && self.grants != none
    }

    /// Takes out the grants that an idle reference without offers does not need.
    pub(crate) fn take_surplus(&mut self) -> ByGiver {
        let has_weak = self.counts.weak > 0;
        let broker = self.grants.broker.surplus(has_weak);
        ByGiver { broker, owner: self.grants.owner.surplus(has_weak) }
    }

    /// A new grant has come. A denial may have ended a reference that no program knows: the node
    /// lives.
    pub(crate) fn revive(&mut self) {
        if self.is_unused() {
            self.dead = self.owner == ProcessId::BROKER;
        }
    }

    /// The owner is dead: no grant goes back.
    pub fn end(&mut self) {
        self.dead = true;
        (self.grants, self.entry) = (ByGiver::default(), None);
    }
}

/// A round of returns: what it looks at besides kept references.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Nodes whose handles have grants or offers that their counts do not need.
    pub surplus: BTreeSet<NodeKey>,
    /// The runner has been asked for it.
    pub is_expected: bool,
    /// Its number.
    pub number: u64,
}

/// All handles of the process, and the references that are kept without one ([`crate::kept`]).
///
/// **Invariant**: each handle has one node, and each node at most one handle. A node with a handle
/// has no kept reference.
#[derive(Debug, Default)]
pub struct References {
    by_handle: BTreeMap<u32, Reference>,
    by_node: BTreeMap<NodeKey, u32>,
    kept: BTreeMap<NodeKey, Reference>,
    /// The next round of returns.
    pub(crate) round: Round,
    /// Free numbers below `end`, without 0.
    free: BTreeSet<u32>,
    /// A number above every one that was ever in use, at least 1.
    end: u32,
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

    /// The handle of a node.
    pub fn handle_of(&self, key: NodeKey) -> Option<u32> {
        self.by_node.get(&key).copied()
    }

    /// The entry in an owner's list of some node that this owner has granted: of one that is being
    /// called, if there is one, because that entry stays.
    pub fn entry_at(&self, owner: ProcessId) -> Option<u32> {
        let of_owner = self.by_node.range((owner, NodeId(0))..=(owner, NodeId(u64::MAX)));
        let references = of_owner.map(|(_, handle)| &self.by_handle[handle]);
        let granted = references.filter(|reference| reference.entry.is_some());
        granted.max_by_key(|reference| reference.sending > 0)?.entry
    }

    /// The reference of a node, with a handle or kept.
    pub(crate) fn of_node(&self, key: NodeKey) -> Option<&Reference> {
        match self.by_node.get(&key) {
            Some(handle) => self.by_handle.get(handle),
            None => self.kept.get(&key),
        }
    }

    /// The reference of a node, with a handle or kept.
    pub(crate) fn of_node_mut(&mut self, key: NodeKey) -> Option<&mut Reference> {
        match self.by_node.get(&key) {
            Some(handle) => self.by_handle.get_mut(handle),
            None => self.kept.get_mut(&key),
        }
    }

    /// The reference of a node and its handle, added if it is new. A kept reference gets a handle
    /// again. `manages`: the broker says that the node manages the context.
    pub(crate) fn get_or_add(
        &mut self,
        key: NodeKey,
        flags: u32,
        manages: bool,
    ) -> (u32, &mut Reference) {
        let handle = match self.by_node.get(&key) {
            Some(&handle) => handle,
            None => {
                let kept = self.kept.remove(&key);
                let mut reference = kept.unwrap_or_else(|| Reference::new(key, flags));
                reference.manages |= manages;
                let handle = self.number(key, reference.manages);
                self.by_handle.insert(handle, reference);
                handle
            }
        };
        (handle, self.by_handle.get_mut(&handle).expect("each number has a reference"))
    }

    /// Keeps a reference that has no handle any more.
    pub(crate) fn keep(&mut self, reference: Reference) {
        self.kept.insert(reference.key(), reference);
    }

    /// The kept references.
    pub fn kept(&self) -> impl ExactSizeIterator<Item = &Reference> {
        self.kept.values()
    }

    /// A kept reference.
    pub(crate) fn kept_of(&self, key: NodeKey) -> Option<&Reference> {
        self.kept.get(&key)
    }

    /// Forgets a kept reference.
    pub(crate) fn remove_kept(&mut self, key: NodeKey) -> Option<Reference> {
        self.kept.remove(&key)
    }

    /// All references, with handles or kept.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Reference> {
        self.by_handle.values().chain(self.kept.values())
    }

    /// Numbers a new handle as the kernel does: the lowest free number, where only the manager's
    /// node may get 0.
    fn number(&mut self, key: NodeKey, manages: bool) -> u32 {
        let number = if manages && !self.by_handle.contains_key(&0) {
            0
        } else if let Some(lowest) = self.free.pop_first() {
            lowest
        } else {
            self.end = self.end.max(1) + 1;
            self.end - 1
        };
        self.by_node.insert(key, number);
        number
    }

    /// Forgets a handle.
    pub fn remove(&mut self, handle: u32) -> Option<Reference> {
        let reference = self.by_handle.remove(&handle)?;
        self.by_node.remove(&(reference.owner, reference.node));
        if handle != 0 {
            self.free.insert(handle);
        }
        Some(reference)
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

#[cfg(test)]
mod tests {
    use super::*;
    use Strength::{Strong, Weak};

    fn key(node: u64) -> NodeKey {
        (ProcessId(2), NodeId(node))
    }

    #[test]
    fn a_new_handle_gets_the_lowest_free_number() {
        let mut references = References::default();
        let mut add = |node, manages| references.get_or_add(key(node), 0, manages).0;
        assert_eq!([add(1, false), add(2, false), add(1, true), add(3, true)], [1, 2, 1, 0]);
        assert_eq!(add(4, true), 3, "there is a handle 0");
        for handle in [2, 0, 1] {
            assert!(references.remove(handle).is_some_and(|it| it.owner == ProcessId(2)));
        }
        let mut add = |node, manages| references.get_or_add(key(node), 0, manages).0;
        assert_eq!([add(5, false), add(6, false), add(7, false), add(8, true)], [1, 2, 4, 0]);
        assert_eq!(references.handle_of(key(5)), Some(1));
        assert_eq!(references.handle_of(key(1)), None);
    }

    #[test]
    fn grants_go_back_to_their_givers_when_no_count_needs_them() {
        // Grants of the broker and of the owner, weak counts, and what goes back.
        let grants = |strong, all| Grants { strong, all };
        for (broker, owner, weak, expected) in [
            ((1, 1), (2, 3), 0, ((1, 1), (2, 3))),
            ((1, 1), (2, 3), 1, ((1, 0), (2, 2))),
            ((0, 1), (0, 2), 1, ((0, 0), (0, 0))),
            ((0, 0), (2, 2), 1, ((0, 0), (2, 1))),
        ] {
            let mut reference = Reference::new(key(1), 0);
            reference.counts.weak = weak;
            reference.grants.broker = grants(broker.0, broker.1);
            reference.grants.owner = grants(owner.0, owner.1);
            let ((a, b), (c, d)) = expected;
            let expected = ByGiver { broker: grants(a, b), owner: grants(c, d) };
            assert_eq!(reference.has_surplus(), expected != ByGiver::default());
            assert_eq!(reference.take_surplus(), expected, "{broker:?} {owner:?} {weak}");
            assert!(!reference.has_surplus());
        }
    }

    #[test]
    fn all_but_one_of_many_grants_go_back() {
        for (first, strong) in [(Weak, MANY_GRANTS - 2), (Strong, MANY_GRANTS - 1)] {
            let mut grants = Grants::default();
            grants.add(first);
            for _ in 1..MANY_GRANTS - 1 {
                grants.add(Strong);
                assert_eq!(grants.take_excess(), None);
            }
            grants.add(Strong);
            assert_eq!(grants.take_excess(), Some(Grants { strong, all: MANY_GRANTS - 1 }));
            assert_eq!(grants, Grants { strong: 1, all: 1 });
        }
    }

    #[test]
    fn a_reference_is_used_by_counts_and_by_messages() {
        let mut reference = Reference::new(key(1), 0);
        for (strong, weak, sending, is_idle, is_unused) in [
            (0, 0, 0, true, true),
            (0, 1, 0, true, false),
            (1, 0, 0, false, false),
            (0, 0, 1, false, false),
        ] {
            (reference.counts, reference.sending) = (Counts { strong, weak }, sending);
            assert_eq!((reference.is_idle(), reference.is_unused()), (is_idle, is_unused));
        }
    }

    #[test]
    fn a_kept_reference_gets_a_number_as_a_new_one_does() {
        for (manages, expected) in [(false, 1), (true, 0)] {
            let mut references = References::default();
            let (handle, reference) = references.get_or_add(key(1), 7, manages);
            assert_eq!(handle, expected);
            reference.grants.broker.add(Strong);
            let reference = references.remove(handle).unwrap();
            references.keep(reference);
            assert_eq!((references.handle_of(key(1)), references.kept().len()), (None, 1));
            assert!(references.of_node(key(1)).is_some());
            let other = references.get_or_add(key(2), 0, false).0;
            assert_eq!(other, 1, "the number is free");
            // Whoever brings the node back does not know that it manages the context.
            let (handle, reference) = references.get_or_add(key(1), 0, false);
            assert_eq!(handle, if manages { 0 } else { 2 });
            assert_eq!((reference.flags, reference.grants.broker.all), (7, 1));
            assert_eq!(references.kept().len(), 0);
        }
    }
}
