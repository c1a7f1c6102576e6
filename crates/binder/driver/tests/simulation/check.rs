//! The invariants, looked at when nothing is under way.

use crate::party::{Party, Stage};
use crate::program::of;
use crate::world::World;
use baton_abi::control::{NodeId, ProcessId, Strength};
use baton_state::node::Counts;
use std::collections::BTreeMap;

type NodeName = (ProcessId, NodeId);

impl World {
    /// Everything that has been begun has ended, and every count is what a naive model says.
    pub fn check_at_rest(&self) {
        for party in self.parties.values() {
            self.check_threads(party);
            self.check_references(party);
            self.check_notices(party);
            self.check_peers(party);
        }
        self.check_owners();
    }

    fn check_threads(&self, party: &Party) {
        let id = party.id();
        for (tid, thread) in party.state.threads.iter() {
            assert!(thread.stack.is_empty(), "{id:?}.{tid} is left with {:?}", thread.stack);
            assert!(!thread.todo.urgent, "{id:?}.{tid} sleeps over its work");
            assert!(party.threads[&tid].underway.is_empty(), "{id:?}.{tid} was not told");
            assert!(
                matches!(party.threads[&tid].stage, Stage::Asleep { .. }),
                "{id:?}.{tid} stands"
            );
        }
        assert_eq!(party.state.outstanding, 0, "{id:?} owes answers");
        let reads = |(tid, _)| party.state.would_read(tid);
        assert!(!party.state.threads.iter().any(reads), "{id:?} sleeps over its work");
        assert!(party.state.contents.is_empty(), "{id:?} is left with buffers");
        assert_eq!(party.state.buffers.used(), (0, 0));
        assert!(party.fds.is_empty(), "{id:?} is left with descriptors {:?}", party.fds);
        assert!(
            party.state.is_settled(),
            "{id:?} is left with tickets or notices: {:?}",
            party.state
        );
        for channel in self.channels.values().filter(|c| c.server == id) {
            let open = channel.is_open(baton_abi::control::End::Server);
            assert!(!open || !channel.has_news(), "{id:?} sleeps over {:?}", channel.id);
            let full = channel.end(baton_abi::control::End::Server).full;
            assert!(!open || !full, "{id:?} has room, and {:?} waits for it", channel.id);
        }
    }

    /// The engine's counts are the program's (no buffer is held at rest) and the manager's pin;
    /// the broker has given exactly the grants that the engine has.
    fn check_references(&self, party: &Party) {
        let mut expected: BTreeMap<u32, Counts> = BTreeMap::new();
        for (&handle, &(strong, weak)) in &party.program.counts {
            expected.insert(handle, Counts { strong, weak });
        }
        if let Some(manager) = party.state.manager {
            expected.entry(manager).or_default().strong += 1;
        }
        expected.retain(|_, counts| *counts != Counts::default());
        let mut found = BTreeMap::new();
        for (handle, reference) in party.state.references.iter() {
            assert_eq!(reference.sending, 0);
            let grants = self.broker.grants(party.id(), handle);
            assert_eq!(grants, Some(reference.grants), "{:?}'s {handle}", party.id());
            assert!(reference.counts.strong == 0 || reference.grants.0 > 0, "no right to {handle}");
            assert_eq!(reference.dead, !self.parties.contains_key(&reference.owner));
            found.insert(handle, reference.counts);
        }
        assert_eq!(found, expected, "{:?}'s counts", party.id());
    }

    fn check_peers(&self, party: &Party) {
        let gone = party.state.peers.keys().find(|peer| !self.parties.contains_key(peer));
        assert_eq!(gone, None, "{:?} remembers the dead", party.id());
    }

    fn check_notices(&self, party: &Party) {
        use crate::program::Stage::Asked;
        for (cookie, notice) in &party.program.deaths {
            assert!(!notice.cleared, "BR_CLEAR_DEATH_NOTIFICATION_DONE missing: {cookie}");
            let reference = party.state.references.get(notice.handle);
            let listens = reference.and_then(|r| r.death).is_some_and(|n| n.cookie == *cookie);
            let dead = reference.is_some_and(|reference| reference.dead);
            assert!(!listens || !dead || notice.stage != Asked, "BR_DEAD_BINDER missing: {cookie}");
            assert!(dead || notice.stage == Asked || !listens, "BR_DEAD_BINDER of the living");
        }
        for (cookie, notice) in &party.program.freezes {
            assert!(!notice.cleared, "BR_CLEAR_FREEZE_NOTIFICATION_DONE missing: {cookie}");
            let reference = party.state.references.get(notice.handle);
            let Some(reference) =
                reference.filter(|r| r.freeze.is_some_and(|n| n.cookie == *cookie))
            else {
                continue;
            };
            if let Some(owner) = self.parties.get(&reference.owner) {
                assert_eq!(notice.told, Some(owner.frozen), "told of {:?} by {cookie}", owner.id());
            }
        }
    }

    /// Owners know who holds what.
    fn check_owners(&self) {
        let mut held: BTreeMap<NodeName, (u32, u32)> = BTreeMap::new();
        for party in self.parties.values() {
            for (_, reference) in party.state.references.iter() {
                let counts = held.entry((reference.owner, reference.node)).or_default();
                *of(counts, Strength::Weak) += 1;
                if reference.grants.0 > 0 {
                    *of(counts, Strength::Strong) += 1;
                }
                if let Some(owner) = self.parties.get(&reference.owner) {
                    let peer = owner.state.peers.get(&party.id()).expect("the owner knows it");
                    assert!(
                        peer.grants.contains_key(&reference.node),
                        "a holder that may not call"
                    );
                }
            }
        }
        for party in self.parties.values() {
            for (id, node) in party.state.nodes.iter() {
                let (strong, all) = held.remove(&(party.id(), id)).unwrap_or_default();
                assert_eq!((node.remote_strong, node.remote_held), (strong > 0, all > 0));
                let manager = party.program.objects.get(&node.ptr).is_some_and(|o| o.manager);
                let own = u32::from(manager);
                assert_eq!(node.local, Counts { strong: own, weak: own }, "{:?}", node);
                assert_eq!(node.in_transit, Counts::default());
                assert!(!node.one_way_busy && node.one_way_todo.is_empty());
                let object = party.program.objects.get(&node.ptr);
                let object = object.expect("a node without an object");
                assert_eq!((object.strong, object.weak), node.told(), "{node:?}");
                assert_eq!(
                    (object.strong, object.weak),
                    (manager || strong > 0, manager || all > 0)
                );
            }
        }
        let left = held.keys().find(|(owner, _)| self.parties.contains_key(owner));
        assert_eq!(left, None, "a reference to a node that its owner has forgotten");
    }

    /// Every program has given back what it held: only the managers' pins remain.
    pub fn check_given_back(&self) {
        for party in self.parties.values() {
            let handles: Vec<u32> =
                party.state.references.iter().map(|(handle, _)| handle).collect();
            let pins: Vec<u32> = party.state.manager.into_iter().collect();
            assert_eq!(handles, pins, "{:?} is left with handles", party.id());
            for (_, node) in party.state.nodes.iter() {
                assert!(party.program.objects[&node.ptr].manager, "left with {node:?}");
            }
        }
    }
}
