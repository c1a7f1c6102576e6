//! The offers of known nodes ([`crate::known`]) to the peers that have introduced them.
//!
//! A node is offered from its introduction on, and its grants stay as long as it is. A round
//! ([`crate::kept`]) withdraws the offers that no count needs any more, which waits for messages
//! that are on their way.
//!
//! ```text
//!           learn                                  a round               withdrawn
//!   (free) -------> offered, in use or kept ---------------> withdrawing -----------> (free)
//!                          ^                                      |
//!                          +--------------------------------------+
//!                                  a message with the node
//! ```
//!
//! **Invariant**: [`Reference::known`](crate::reference::Reference::known) names the entries that
//! offer the node, and no others. An offered node has a reference, with a handle or kept.

use crate::effect::Effect;
use crate::known::KnownEntry;
use crate::message::HeldObject;
use crate::node::NodeKey;
use crate::process::State;
use baton_abi::control::{ChannelId, Granted, NodeId, Strength};
use baton_abi::lane::{Carried, Origin};

impl State {
    /// Offers a node that a message on this channel has introduced, if the channel's table has a
    /// place for it.
    pub(crate) fn learn(&mut self, channel: ChannelId, granted: &Granted) {
        let key = (granted.owner, granted.node);
        let Some(reference) = self.references.of_node_mut(key) else { return };
        let is_offered = reference.known.iter().any(|entry| entry.channel == channel);
        if is_offered || reference.dead || granted.strength != Strength::Strong {
            return;
        }
        let Some((entry, uses)) = self.known.take(channel, key) else { return };
        reference.known.push(entry);
        self.effect(Effect::Offer(entry, key, uses));
    }

    /// Whether the peer may name all known nodes among these: this process offers them.
    pub(crate) fn offers(&self, channel: ChannelId, objects: &[Carried]) -> bool {
        let known = objects.iter().filter(|object| object.origin() == Some(Origin::Known));
        known.into_iter().all(|object| self.offered(channel, object).is_some())
    }

    fn offered(&self, channel: ChannelId, object: &Carried) -> Option<(KnownEntry, NodeKey)> {
        let entry = KnownEntry { channel, number: u8::try_from(object.entry).ok()? };
        let key = self.known.node(entry)?;
        (key.1 == NodeId(object.node)).then_some((entry, key))
    }

    /// Takes a known node that has come with a message. `None` if this process does not offer it.
    pub(crate) fn hold_known(
        &mut self,
        channel: ChannelId,
        object: &Carried,
    ) -> Option<HeldObject> {
        let (entry, key) = self.offered(channel, object)?;
        self.known.count_use(entry);
        // An offered node has a reference.
        let (handle, reference) = self.references.get_or_add(key, 0, false);
        reference.counts.strong += 1;
        Some(HeldObject::Handle { handle, strength: Strength::Strong })
    }

    /// The offers of a handle, each with the uses that have come.
    pub fn offers_of(&self, handle: u32) -> impl Iterator<Item = (KnownEntry, u32)> {
        let offers = self.references.get(handle).into_iter().flat_map(|reference| &reference.known);
        offers.map(|&entry| (entry, self.known.uses(entry)))
    }

    /// Asks for the offers of a node back that no count needs any more.
    pub(crate) fn withdraw(&mut self, key: NodeKey) {
        let Some(reference) = self.references.of_node(key) else { return };
        self.known.withdrawing.insert(key);
        for entry in reference.known.clone() {
            let uses = self.known.uses(entry);
            self.effect(Effect::Withdraw(entry, uses));
        }
    }

    /// The offer has been withdrawn: no message names the entry from now on.
    pub fn withdrawn(&mut self, entry: KnownEntry) {
        if let Some(key) = self.known.free(entry) {
            self.end_offer(key, |other| *other != entry);
        }
    }

    fn end_offer(&mut self, key: NodeKey, stays: impl Fn(&KnownEntry) -> bool) {
        let Some(reference) = self.references.of_node_mut(key) else { return };
        reference.known.retain(|entry| stays(entry));
        if reference.known.is_empty() && self.known.withdrawing.remove(&key) {
            self.return_unneeded(key);
        }
    }

    /// Whether offers wait for messages on their way.
    pub fn is_withdrawing(&self) -> bool {
        !self.known.withdrawing.is_empty()
    }

    /// Tries again: a peer may have undone a use.
    pub fn withdraw_again(&mut self) {
        for key in std::mem::take(&mut self.known.withdrawing) {
            self.return_unneeded(key);
        }
    }

    /// The channel is gone, and its messages with it.
    pub fn forget_offers(&mut self, channel: ChannelId) {
        for key in self.known.forget(channel) {
            self.end_offer(key, |entry| entry.channel != channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Introduced;
    use Strength::{Strong, Weak};
    use baton_abi::control::{Event, ProcessId, Released, Request};
    use baton_abi::lane::known_places;

    const OWNER: ProcessId = ProcessId(3);
    const CHANNEL: ChannelId = ChannelId(4);
    const HANDLE: u32 = 1;
    const HELD: HeldObject = HeldObject::Handle { handle: HANDLE, strength: Strong };

    fn granted(node: u64, strength: Strength) -> Granted {
        Granted { owner: OWNER, node: NodeId(node), strength, flags: 0, manages: false }
    }

    /// A message of the peer's introduces a node. Returns the effects.
    fn introduce(state: &mut State, channel: ChannelId, granted: Granted) -> Vec<Effect> {
        state.hold(&Introduced { granted, dead: false });
        state.learn(channel, &granted);
        state.take_effects()
    }

    fn entry_of(node: u64) -> KnownEntry {
        let number = known_places(OWNER, NodeId(node)).next().unwrap();
        KnownEntry { channel: CHANNEL, number }
    }

    fn named(node: u64) -> Carried {
        Carried::of_known(NodeId(node), entry_of(node).number)
    }

    /// A process to which node 5 has been introduced, as handle 1.
    fn process() -> State {
        let mut state = State::new(ProcessId(1));
        let key = (OWNER, NodeId(5));
        let effects = introduce(&mut state, CHANNEL, granted(5, Strong));
        assert_eq!(effects, [Effect::Offer(entry_of(5), key, 1)]);
        state
    }

    /// The broker is told this once the node is not offered any more.
    fn released(grants: u32) -> Effect {
        let (owner, node, strong) = (OWNER, NodeId(5), grants);
        let released = vec![Released { owner, node, strong, grants }];
        Effect::Tell(Request::Release { released })
    }

    /// A round, of which a message on its way keeps nothing. Returns the effects before that.
    fn round(state: &mut State) -> Vec<Effect> {
        state.return_kept();
        let effects = state.take_effects();
        for effect in &effects {
            if let Effect::Withdraw(entry, _) = *effect {
                state.withdrawn(entry);
            }
        }
        effects
    }

    #[test]
    fn a_node_that_is_given_up_is_offered_until_the_next_round() {
        let mut state = process();
        assert_eq!(introduce(&mut state, CHANNEL, granted(5, Strong)), [], "offered already");
        state.let_go(&HELD);
        assert_eq!(state.take_effects(), [], "a count is left");
        state.let_go(&HELD);
        assert_eq!(state.take_effects(), [Effect::FreeHandle(HANDLE)]);
        assert!(state.offers_of(HANDLE).eq([(entry_of(5), 1)]));
        state.free_handle(HANDLE);
        assert_eq!(state.take_effects(), [Effect::Round]);
        assert!(state.references.get(HANDLE).is_none() && !state.is_settled());
        for uses in 2..5 {
            assert!(state.offers(CHANNEL, &[named(5)]));
            assert_eq!(state.hold_known(CHANNEL, &named(5)), Some(HELD), "it comes again");
            state.let_go(&HELD);
            assert_eq!(state.take_effects(), [Effect::FreeHandle(HANDLE)]);
            assert!(state.offers_of(HANDLE).eq([(entry_of(5), uses)]));
            state.free_handle(HANDLE);
            assert_eq!(state.take_effects(), [], "one round is expected");
        }
        assert_eq!(round(&mut state), [Effect::Withdraw(entry_of(5), 4)]);
        assert_eq!(state.take_effects(), [released(2)]);
        assert!(state.is_settled() && !state.is_withdrawing());
        assert_eq!(state.hold_known(CHANNEL, &named(5)), None);
        let key = (OWNER, NodeId(5));
        let effects = introduce(&mut state, CHANNEL, granted(5, Strong));
        assert_eq!(effects, [Effect::Offer(entry_of(5), key, 5)], "no number comes again");
    }

    #[test]
    fn a_message_on_its_way_keeps_the_handle() {
        let mut state = process();
        state.let_go(&HELD);
        // The runner sees the message and does not free the number.
        assert_eq!(state.take_effects(), [Effect::FreeHandle(HANDLE)]);
        assert!(!state.holds(HANDLE, Weak) && state.is_withdrawing(), "the program has it no more");
        assert!(state.offers(CHANNEL, &[named(5)]));
        assert_eq!(state.hold_known(CHANNEL, &named(5)), Some(HELD));
        assert!(state.holds(HANDLE, Strong));
        state.withdraw_again();
        state.free_handle(HANDLE);
        assert_eq!(state.take_effects(), [], "it is in use");
        assert!(!state.is_withdrawing() && state.holds(HANDLE, Strong));
        state.let_go(&HELD);
        assert_eq!(state.take_effects(), [Effect::FreeHandle(HANDLE)]);
        state.withdraw_again();
        assert_eq!(state.take_effects(), [Effect::FreeHandle(HANDLE)], "a use was undone");
        state.free_handle(HANDLE);
        assert_eq!(round(&mut state), [Effect::Round, Effect::Withdraw(entry_of(5), 2)]);
        assert_eq!(state.take_effects(), [released(1)]);
    }

    #[test]
    fn a_message_on_its_way_outlasts_a_round() {
        let mut state = process();
        state.let_go(&HELD);
        state.free_handle(HANDLE);
        state.return_kept();
        // The runner cannot withdraw the offer.
        state.take_effects();
        assert!(state.is_withdrawing() && !state.is_settled());
        state.return_kept();
        assert_eq!(state.take_effects(), [Effect::Withdraw(entry_of(5), 1)], "nor the next time");
        assert_eq!(state.hold_known(CHANNEL, &named(5)), Some(HELD));
        state.withdraw_again();
        assert_eq!(state.take_effects(), [], "it is in use");
        state.let_go(&HELD);
        state.free_handle(HANDLE);
        round(&mut state);
        assert_eq!(state.take_effects(), [released(1)]);
        assert!(state.is_settled() && !state.is_withdrawing());
    }

    #[test]
    fn a_handle_with_weak_counts_alone_is_offered_until_the_next_round() {
        let mut state = process();
        assert!(state.increase(HANDLE, Weak));
        state.let_go(&HELD);
        assert_eq!(round(&mut state), [Effect::Round, Effect::Withdraw(entry_of(5), 1)]);
        let released = vec![Released { owner: OWNER, node: NodeId(5), strong: 1, grants: 0 }];
        assert_eq!(state.take_effects(), [Effect::Tell(Request::Release { released })]);
        assert!(state.holds(HANDLE, Weak) && state.is_settled());
        assert_eq!(round(&mut state), [], "nothing else goes back");
    }

    #[test]
    fn only_living_nodes_that_are_held_strongly_are_offered() {
        let mut state = State::new(ProcessId(1));
        assert_eq!(introduce(&mut state, CHANNEL, granted(5, Weak)), []);
        for is_kept in [false, true] {
            let mut state = process();
            if is_kept {
                state.let_go(&HELD);
                state.free_handle(HANDLE);
            }
            state.event(Event::Dead { process: OWNER });
            state.take_effects();
            let granted = granted(5, Strong);
            state.hold(&Introduced { granted, dead: true });
            state.learn(ChannelId(9), &granted);
            assert_eq!(state.take_effects(), []);
            assert_eq!(state.hold_known(CHANNEL, &named(5)), Some(HELD), "the peer may use it");
            state.let_go(&HELD);
            state.let_go(&HELD);
            if !is_kept {
                state.let_go(&HELD);
            }
            state.take_effects();
            state.free_handle(HANDLE);
            assert!(round(&mut state).contains(&Effect::Withdraw(entry_of(5), 2)));
            assert_eq!(state.take_effects(), [], "no grant goes back to the dead");
            assert!(state.references.get(HANDLE).is_none() && state.is_settled());
        }
    }

    #[test]
    fn a_node_that_was_denied_while_it_was_kept_lives_again_by_a_new_grant() {
        for is_granted in [true, false] {
            let mut state = process();
            state.let_go(&HELD);
            state.free_handle(HANDLE);
            state.event(Event::Denied { owner: OWNER, node: NodeId(5) });
            match is_granted {
                true => drop(introduce(&mut state, CHANNEL, granted(5, Strong))),
                false => assert_eq!(state.hold_known(CHANNEL, &named(5)), Some(HELD)),
            }
            assert_eq!(state.references.get(HANDLE).map(|it| it.dead), Some(!is_granted));
            state.let_go(&HELD);
            state.free_handle(HANDLE);
            round(&mut state);
            let expected: Vec<_> = is_granted.then(|| released(1)).into_iter().collect();
            assert_eq!(state.take_effects(), expected);
            assert!(state.is_settled());
        }
    }

    #[test]
    fn a_peer_names_what_is_offered_to_it_and_nothing_else() {
        let mut state = process();
        for (name, channel, object) in [
            ("another channel", ChannelId(9), named(5)),
            ("another node", CHANNEL, Carried { node: 6, ..named(5) }),
            ("another entry", CHANNEL, Carried::of_known(NodeId(5), entry_of(6).number)),
            ("no entry", CHANNEL, Carried { entry: 256 + named(5).entry, ..named(5) }),
        ] {
            assert!(!state.offers(channel, &[object]), "{name}");
            assert_eq!(state.hold_known(channel, &object), None, "{name}");
        }
        assert!(state.offers(CHANNEL, &[named(5), Carried::of_third(Strong)]));
    }

    #[test]
    fn offers_end_with_their_channel() {
        let mut state = process();
        let other = ChannelId(9);
        let effects = introduce(&mut state, other, granted(5, Strong));
        let entry = KnownEntry { channel: other, ..entry_of(5) };
        assert_eq!(effects, [Effect::Offer(entry, (OWNER, NodeId(5)), 1)], "to the other peer");
        state.let_go(&HELD);
        state.let_go(&HELD);
        state.free_handle(HANDLE);
        state.take_effects();
        state.return_kept();
        let both = [Effect::Withdraw(entry_of(5), 1), Effect::Withdraw(entry, 1)];
        assert_eq!(state.take_effects(), both);
        state.forget_offers(CHANNEL);
        assert!(state.take_effects().is_empty() && state.is_withdrawing(), "the other one is left");
        state.forget_offers(other);
        assert_eq!(state.take_effects(), [released(2)]);
    }

    #[test]
    fn a_channel_that_ends_leaves_kept_nodes_for_their_round() {
        let mut state = process();
        state.let_go(&HELD);
        state.free_handle(HANDLE);
        state.forget_offers(CHANNEL);
        assert_eq!(state.take_effects(), [Effect::FreeHandle(HANDLE), Effect::Round]);
        assert_eq!(round(&mut state), [released(1)]);
    }

    #[test]
    fn a_full_table_offers_nothing() {
        let mut state = State::new(ProcessId(1));
        let same_place = (0..).map(|nth| 5 + nth * baton_abi::lane::KNOWN as u64);
        for (nth, node) in same_place.take(baton_abi::lane::KNOWN_PLACES + 1).enumerate() {
            let effects = introduce(&mut state, CHANNEL, granted(node, Strong));
            assert_eq!(effects.is_empty(), nth == baton_abi::lane::KNOWN_PLACES, "{node}");
        }
    }
}
