//! References: this process's handles to nodes of others.
//!
//! The counts are local. A handle's grants go back to whoever gave them, broker or owner, once the
//! counts no longer need them: the strong grants when the last strong count goes, all of them with
//! the last count of all.

use crate::account::Held;
use crate::known::KnownEntry;
use crate::node::Counts;
use crate::notice::{DeathNotice, FreezeNotice};
use baton_abi::control::{HeldNode, NodeId, ProcessId, Strength};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// A node, by its owner and its owner's name for it.
pub type NodeKey = (ProcessId, NodeId);

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

    /// Takes out the grants that are no longer needed. Also whether the handle goes.
    pub fn surplus(&mut self) -> Option<(ByGiver, bool)> {
        if self.counts.strong > 0 || self.sending > 0 || !self.known.is_empty() {
            return None;
        }
        let has_weak = self.counts.weak > 0;
        let broker = self.grants.broker.surplus(has_weak);
        let owner = self.grants.owner.surplus(has_weak);
        let surplus = ByGiver { broker, owner };
        (!has_weak || surplus != ByGiver::default()).then_some((surplus, !has_weak))
    }

    /// The owner is dead: no grant goes back.
    pub fn end(&mut self) {
        self.dead = true;
        (self.grants, self.entry) = (ByGiver::default(), None);
    }
}

/// All handles of the process.
///
/// **Invariant**: each handle has one node, and each node at most one handle.
#[derive(Debug, Default)]
pub struct References {
    by_handle: BTreeMap<u32, Reference>,
    by_node: BTreeMap<NodeKey, u32>,
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

    /// The reference of a node and its handle, added if it is new.
    pub(crate) fn get_or_add(
        &mut self,
        key: NodeKey,
        flags: u32,
        manages: bool,
    ) -> (u32, &mut Reference) {
        let handle = match self.by_node.get(&key) {
            Some(&handle) => handle,
            None => self.number(key, manages),
        };
        let reference = self.by_handle.entry(handle);
        (handle, reference.or_insert_with(|| Reference::new(key, flags)))
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
        // Grants of the broker and of the owner, counts, what goes back, and whether the handle
        // goes.
        let grants = |strong, all| Grants { strong, all };
        for (broker, owner, (strong, weak), expected) in [
            ((1, 1), (0, 0), (1, 0), None),
            ((1, 1), (2, 3), (0, 0), Some(((1, 1), (2, 3), true))),
            ((1, 1), (2, 3), (0, 1), Some(((1, 0), (2, 2), false))),
            ((0, 1), (0, 2), (0, 1), None),
            ((0, 0), (2, 2), (0, 1), Some(((0, 0), (2, 1), false))),
        ] {
            let mut reference = Reference::new(key(1), 0);
            reference.counts = Counts { strong, weak };
            reference.grants.broker = grants(broker.0, broker.1);
            reference.grants.owner = grants(owner.0, owner.1);
            let expected =
                expected.map(|((a, b), (c, d), over): ((u32, u32), (u32, u32), bool)| {
                    (ByGiver { broker: grants(a, b), owner: grants(c, d) }, over)
                });
            assert_eq!(reference.surplus(), expected, "{broker:?} {owner:?} {strong} {weak}");
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
    fn nothing_goes_back_while_a_message_needs_it_nor_to_the_dead() {
        let mut reference = Reference::new(key(1), 0);
        reference.grants.owner.add(Strong);
        reference.grants.broker.add(Weak);
        reference.sending = 1;
        assert_eq!(reference.surplus(), None);
        reference.sending = 0;
        reference.end();
        assert_eq!(reference.surplus(), Some((ByGiver::default(), true)));
    }
}
