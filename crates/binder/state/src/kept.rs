//! Kept references: the program has given a handle up, and its grants have not gone back yet.
//!
//! Grants go back in rounds: by the second round after the counts that needed them. A node that
//! comes again before that gets a handle again, and neither the broker nor its owner hears of it.
//! So a node that is sent and dropped again and again stays granted.
//!
//! ```text
//!             the last count goes           the second round, and no offer is left
//!   a handle ---------------------> kept ------------------------------------------> (none)
//!      ^                             |                  its grants go back
//!      +-----------------------------+
//!        a message brings the node: it gets the lowest free number, as a new one does
//! ```
//!
//! The number of a kept reference is free, and the program's notices are gone. What peers and the
//! broker have to do with stays: grants, offers of a known node ([`crate::offers`]), the entry in
//! the owner's list and the share of its user's amount. A handle with weak counts alone stays a
//! handle, and its strong grants go back by the same round.
//!
//! **Invariant**: a round is expected as long as a reference is kept whose offers are not being
//! withdrawn, or a handle's surplus is.

use crate::effect::Effect;
use crate::node::NodeKey;
use crate::process::State;
use crate::reference::{ByGiver, Grants, Reference};
use baton_abi::control::{MAX_OBJECTS, ProcessId, Released, Request};
use baton_abi::lane::ReturnedGrants;

/// A round begins at once when so many nodes wait for it.
const MANY: usize = 1024;

impl State {
    /// Frees the number of a handle, if nothing needs the handle any more, and keeps its reference
    /// for the next round. Call it for a handle with offers if no message with them is on its way:
    /// the handle would have to keep its number for that message.
    pub fn free_handle(&mut self, handle: u32) {
        let is_unused = |reference: &&Reference| reference.is_unused();
        let Some(reference) = self.references.get(handle).filter(is_unused) else { return };
        let (owner, key) = (reference.owner, reference.key());
        if reference.called {
            // Before the number is free.
            self.effect(Effect::HandleDropped(owner));
        }
        self.known.withdrawing.remove(&key);
        self.references.round.surplus.remove(&key);
        let Some(mut reference) = self.references.remove(handle) else { return };
        self.drop_notices(reference.death.take(), reference.freeze.take());
        reference.called = false;
        reference.idle_since = self.references.round.number;
        if reference.has_surplus() {
            self.references.keep(reference);
            self.expect_round();
        }
    }

    /// Keeps the surplus of a handle for the next round.
    pub(crate) fn keep_surplus(&mut self, key: NodeKey) {
        let number = self.references.round.number;
        if let Some(reference) = self.references.of_node_mut(key) {
            reference.idle_since = number;
        }
        self.references.round.surplus.insert(key);
        self.expect_round();
    }

    fn expect_round(&mut self) {
        if !std::mem::replace(&mut self.references.round.is_expected, true) {
            self.effect(Effect::Round);
        }
        // A peer may keep offers from being withdrawn: they are bounded by its table.
        let n_waiting = self.references.kept().len() + self.references.round.surplus.len();
        if n_waiting >= MANY + self.known.withdrawing.len() {
            self.return_kept();
        }
    }

    /// A round: returns the grants that nothing has needed since the last round. Others wait for
    /// the next one: a node that comes again and again never goes back in between.
    pub fn round(&mut self) {
        let number = self.references.round.number;
        self.return_idle(|reference| reference.idle_since < number);
        self.references.round.number += 1;
        let is_left = |kept: &Reference| kept.idle_since == number;
        if !self.references.round.surplus.is_empty() || self.references.kept().any(is_left) {
            self.expect_round();
        }
    }

    /// Returns all grants that are kept, without waiting for a round.
    pub fn return_kept(&mut self) {
        self.return_idle(|_| true);
    }

    /// Returns kept grants. A node that is offered to peers is withdrawn first, and follows when
    /// that is done.
    fn return_idle(&mut self, is_due: impl Fn(&Reference) -> bool) {
        self.references.round.is_expected = false;
        let surplus = std::mem::take(&mut self.references.round.surplus);
        let kept: Vec<NodeKey> = self.references.kept().map(Reference::key).collect();
        for key in surplus.iter().copied().chain(kept) {
            if self.references.of_node(key).is_some_and(&is_due) {
                self.return_unneeded(key);
            } else if surplus.contains(&key) {
                self.references.round.surplus.insert(key);
            }
        }
    }

    /// Returns the grants of a node that its counts do not need, once it is not offered any more.
    pub(crate) fn return_unneeded(&mut self, key: NodeKey) {
        let Some(reference) = self.references.of_node(key).filter(|it| it.is_idle()) else {
            return;
        };
        let handle = self.references.handle_of(key);
        if let Some(handle) = handle.filter(|_| reference.is_unused()) {
            // A message that was on its way has ended.
            return self.return_grants(handle);
        }
        if !reference.known.is_empty() {
            return self.withdraw(key);
        }
        let surplus = match handle {
            Some(_) => self.references.of_node_mut(key).map(Reference::take_surplus),
            None => self.references.remove_kept(key).map(|kept| kept.grants),
        };
        let (owner, node) = key;
        let ByGiver { broker, owner: of_owner } = surplus.unwrap_or_default();
        if broker != Grants::default() {
            self.release(Released { owner, node, strong: broker.strong, grants: broker.all });
        }
        if of_owner != Grants::default() {
            let Grants { strong, all } = of_owner;
            self.give_back(owner, ReturnedGrants { node: node.0, strong, all });
        }
    }

    /// A kept reference's node is dead, or the broker's grants on it are void: nothing goes back.
    pub(crate) fn kept_node_dead(&mut self, key: NodeKey) {
        let Some(reference) = self.references.of_node_mut(key) else { return };
        reference.end();
        if reference.known.is_empty() {
            self.references.remove_kept(key);
        }
    }

    /// Whether a handle of this owner's node would need a share of what the owner's user may give.
    pub(crate) fn needs_share(&self, key: NodeKey) -> bool {
        // A message that was refused for want of a share leaves a kept reference without one.
        let is_kept = |kept: &Reference| kept.share.is_some();
        self.references.handle_of(key).is_none()
            && !self.references.kept_of(key).is_some_and(is_kept)
    }

    /// Returns grants of the broker's, many in one request.
    pub(crate) fn release(&mut self, released: Released) {
        for effect in self.last_returns() {
            if let Effect::Tell(Request::Release { released: all }) = effect
                && all.len() < MAX_OBJECTS
            {
                return all.push(released);
            }
        }
        self.effect(Effect::Tell(Request::Release { released: vec![released] }));
    }

    /// Returns grants to the owner that has given them, many by one effect.
    pub(crate) fn give_back(&mut self, owner: ProcessId, returned: ReturnedGrants) {
        for effect in self.last_returns() {
            if let Effect::Return(to, all) = effect
                && *to == owner
            {
                return all.push(returned);
            }
        }
        self.effect(Effect::Return(owner, vec![returned]));
    }

    /// The effects at the end that return grants. Their order does not matter.
    fn last_returns(&mut self) -> impl Iterator<Item = &mut Effect> {
        let returns = |effect: &&mut Effect| {
            matches!(effect, Effect::Return(..) | Effect::Tell(Request::Release { .. }))
        };
        self.effects.iter_mut().rev().take_while(returns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Resource;
    use crate::message::HeldObject;
    use crate::ticket::Introduced;
    use Strength::{Strong, Weak};
    use baton_abi::claim::Claim;
    use baton_abi::control::{Event, Granted, NodeId, Strength};
    use baton_abi::lane::Carried;

    const OWNER: ProcessId = ProcessId(2);

    /// A node comes with a message, by a grant of its giver's.
    enum Giver {
        Broker,
        Owner,
    }

    use Giver::{Broker, Owner};

    fn hold(state: &mut State, giver: &Giver, node: u64, strength: Strength) -> HeldObject {
        match giver {
            Broker => {
                let node = NodeId(node);
                let granted = Granted { owner: OWNER, node, strength, flags: 0, manages: false };
                state.hold(&Introduced { granted, dead: false })
            }
            Owner => state.hold_of_owner(OWNER, &Carried::of_sender(NodeId(node), 0, 0, strength)),
        }
    }

    /// What goes back: by a request to the broker, and to the owner; each as node, strong grants
    /// and all.
    type Returned = (Vec<(u64, u32, u32)>, Vec<(u64, u32, u32)>);

    fn returned(state: &mut State) -> Returned {
        let (mut to_broker, mut to_owner) = (Vec::new(), Vec::new());
        for effect in state.take_effects() {
            match effect {
                Effect::Tell(Request::Release { released }) => {
                    assert!(released.len() <= MAX_OBJECTS);
                    to_broker.extend(released.iter().map(|it| (it.node.0, it.strong, it.grants)));
                }
                Effect::Return(OWNER, all) => {
                    to_owner.extend(all.iter().map(|it| (it.node, it.strong, it.all)));
                }
                _ => {}
            }
        }
        (to_broker, to_owner)
    }

    #[test]
    fn grants_go_back_by_a_round_those_of_one_node_together() {
        for (holds, to_broker, to_owner) in [
            (vec![(Broker, 5, Strong)], vec![(5, 1, 1)], vec![]),
            (vec![(Owner, 5, Strong)], vec![], vec![(5, 1, 1)]),
            (vec![(Broker, 5, Weak), (Broker, 5, Strong)], vec![(5, 1, 2)], vec![]),
            (vec![(Broker, 5, Strong), (Owner, 5, Weak)], vec![(5, 1, 1)], vec![(5, 0, 1)]),
            (
                vec![(Broker, 6, Strong), (Owner, 5, Strong), (Broker, 5, Strong)],
                vec![(5, 1, 1), (6, 1, 1)],
                vec![(5, 1, 1)],
            ),
        ] {
            let mut state = State::new(ProcessId(1));
            for (giver, node, strength) in &holds {
                let held = hold(&mut state, giver, *node, *strength);
                assert_eq!(returned(&mut state), Returned::default());
                state.let_go(&held);
                assert_eq!(returned(&mut state), Returned::default(), "not before the round");
                assert_eq!(state.references.iter().count(), 0, "the number is free");
                assert!(!state.is_settled());
            }
            state.return_kept();
            assert_eq!(returned(&mut state), (to_broker, to_owner));
            assert!(state.is_settled());
            state.return_kept();
            assert_eq!(state.take_effects(), [], "nothing goes back twice");
        }
    }

    #[test]
    fn a_round_is_asked_for_once() {
        let mut state = State::new(ProcessId(1));
        for expected in [vec![Effect::Round], vec![]] {
            for node in [5, 6] {
                let held = hold(&mut state, &Owner, node, Strong);
                state.let_go(&held);
            }
            assert_eq!(state.take_effects(), expected);
        }
        state.return_kept();
        state.take_effects();
        let held = hold(&mut state, &Owner, 5, Strong);
        state.let_go(&held);
        assert_eq!(state.take_effects(), [Effect::Round]);
    }

    #[test]
    fn a_node_that_comes_again_before_the_second_round_returns_nothing() {
        let mut state = State::new(ProcessId(1));
        let strong = hold(&mut state, &Broker, 6, Strong);
        hold(&mut state, &Broker, 6, Weak);
        for _ in 0..3 {
            let held = hold(&mut state, &Broker, 5, Strong);
            state.let_go(&held);
            state.take_effects();
            state.round();
            assert_eq!(state.take_effects(), [Effect::Round], "nothing but the next round");
        }
        state.let_go(&strong);
        state.take_effects();
        state.round();
        assert_eq!(returned(&mut state).0, [(5, 3, 3)]);
        state.round();
        assert_eq!(returned(&mut state).0, [(6, 1, 1)], "a handle with a weak count is left");
        state.round();
        assert_eq!(state.take_effects(), [], "no further round");
        assert!(state.is_settled());
    }

    #[test]
    fn a_node_that_is_held_again_returns_nothing() {
        let mut state = State::new(ProcessId(1));
        let held = hold(&mut state, &Broker, 5, Strong);
        state.let_go(&held);
        let held = hold(&mut state, &Owner, 5, Strong);
        state.return_kept();
        assert_eq!(returned(&mut state), Returned::default());
        assert!(state.is_settled());
        state.let_go(&held);
        state.return_kept();
        assert_eq!(returned(&mut state), (vec![(5, 1, 1)], vec![(5, 1, 1)]));
    }

    #[test]
    fn strong_grants_go_back_by_a_round_if_no_strong_count_comes_before() {
        for (is_held_again, expected) in [(false, vec![(5, 1, 0)]), (true, vec![])] {
            let mut state = State::new(ProcessId(1));
            let strong = hold(&mut state, &Broker, 5, Strong);
            hold(&mut state, &Broker, 5, Weak);
            state.let_go(&strong);
            assert_eq!(returned(&mut state), Returned::default());
            if is_held_again {
                hold(&mut state, &Broker, 5, Strong);
            }
            state.return_kept();
            let expected = expected.iter().map(|&(node, strong, _)| (node, strong, 1)).collect();
            assert_eq!(returned(&mut state), (expected, vec![]));
        }
    }

    #[test]
    fn many_nodes_do_not_wait_for_a_round() {
        let mut state = State::new(ProcessId(1));
        let mut n_returned = 0;
        for node in 0..5 * MANY as u64 {
            let held = hold(&mut state, &Broker, node, Strong);
            state.let_go(&held);
            n_returned += returned(&mut state).0.len();
            assert!(state.references.kept().len() < MANY);
        }
        assert_eq!(n_returned, 5 * MANY);
    }

    #[test]
    fn kept_references_are_claimed_and_end_with_their_owner() {
        let claim = Claim::Granted { owner: OWNER, node: NodeId(5), strong: 1, grants: 1 };
        let process = || {
            let mut state = State::new(ProcessId(1));
            let held = hold(&mut state, &Broker, 5, Strong);
            state.let_go(&held);
            state.rejoin(1, |_| true);
            assert_eq!(state.claims(), [claim]);
            state
        };
        let mut state = process();
        state.return_kept();
        assert_eq!(returned(&mut state).0, [(5, 1, 1)], "to the next broker");
        for event in
            [Event::Dead { process: OWNER }, Event::Denied { owner: OWNER, node: NodeId(5) }]
        {
            let mut state = process();
            state.event(event);
            assert!(state.is_settled() && state.claims().is_empty());
            state.return_kept();
            assert_eq!(returned(&mut state), Returned::default());
        }
    }

    #[test]
    fn grants_of_the_owner_outlast_a_denial() {
        let mut state = State::new(ProcessId(1));
        for giver in [Broker, Owner] {
            let held = hold(&mut state, &giver, 5, Strong);
            state.let_go(&held);
        }
        state.event(Event::Denied { owner: OWNER, node: NodeId(5) });
        state.return_kept();
        assert_eq!(returned(&mut state), (vec![], vec![(5, 1, 1)]));
    }

    #[test]
    fn a_kept_reference_counts_as_its_owners_users_until_the_round() {
        let mut state = State::new(ProcessId(1));
        let peer = state.peers.entry(OWNER).or_default();
        (peer.uid, peer.label) = (1000, "label".to_owned());
        let held = hold(&mut state, &Owner, 5, Strong);
        let key = |node| (OWNER, NodeId(node));
        assert!(!state.needs_share(key(5)) && state.needs_share(key(6)));
        state.let_go(&held);
        assert!(!state.needs_share(key(5)), "it has its share");
        let account = state.accounts.of(1000);
        let mut all = Vec::new();
        all.extend(std::iter::from_fn(|| account.take(Resource::Handles, 1)));
        let held = hold(&mut state, &Owner, 6, Strong);
        state.let_go(&held);
        assert!(state.needs_share(key(6)), "it was refused, and comes again");
        state.return_kept();
        assert!(account.take(Resource::Handles, 1).is_some(), "the share is free again");
    }
}
