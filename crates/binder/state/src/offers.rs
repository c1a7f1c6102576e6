//! The offers of known nodes ([`crate::known`]) to the peers that have introduced them.
//!
//! A handle is offered from its introduction on, and stays as long as it is. When the counts need
//! it no more, its offers are withdrawn, which waits for messages that are on their way.
//!
//! ```text
//!           learn                   the last strong count goes          withdrawn
//!   (free) -------> offered, in use ---------------------> withdrawing -----------> (free)
//!                          ^                                    |
//!                          +------------------------------------+
//!                                 a message with the node
//! ```
//!
//! **Invariant**: [`Reference::known`](crate::reference::Reference::known) names the entries that
//! offer the handle, and no others.

use crate::effect::Effect;
use crate::known::KnownEntry;
use crate::message::HeldObject;
use crate::process::State;
use baton_abi::control::{ChannelId, Granted, NodeId, Strength};
use baton_abi::lane::{Carried, Origin};

impl State {
    /// Offers a handle that a message on this channel has introduced, if the channel's table has a
    /// place for it.
    pub(crate) fn learn(&mut self, channel: ChannelId, granted: &Granted) {
        let key = (granted.owner, granted.node);
        let Some(handle) = self.references.handle_of(key) else { return };
        let Some(reference) = self.references.get_mut(handle) else { return };
        let is_offered = reference.known.iter().any(|entry| entry.channel == channel);
        if is_offered || reference.dead || granted.strength != Strength::Strong {
            return;
        }
        let Some((entry, uses)) = self.known.take(channel, key, handle) else { return };
        reference.known.push(entry);
        self.effect(Effect::Offer(entry, key, uses));
    }

    /// Whether the peer may name all known nodes among these: this process offers them.
    pub(crate) fn offers(&self, channel: ChannelId, objects: &[Carried]) -> bool {
        let known = objects.iter().filter(|object| object.origin() == Some(Origin::Known));
        known.into_iter().all(|object| self.offered(channel, object).is_some())
    }

    fn offered(&self, channel: ChannelId, object: &Carried) -> Option<(KnownEntry, u32)> {
        let entry = KnownEntry { channel, number: u8::try_from(object.entry).ok()? };
        let handle = self.known.handle(entry)?;
        let reference = self.references.get(handle)?;
        (reference.node == NodeId(object.node)).then_some((entry, handle))
    }

    /// Takes a known node that has come with a message. `None` if this process does not offer it.
    pub(crate) fn hold_known(
        &mut self,
        channel: ChannelId,
        object: &Carried,
    ) -> Option<HeldObject> {
        let (entry, handle) = self.offered(channel, object)?;
        self.known.count_use(entry);
        self.references.get_mut(handle)?.counts.strong += 1;
        Some(HeldObject::Handle { handle, strength: Strength::Strong })
    }

    /// Asks for the offers of a handle back that the counts need no more.
    pub(crate) fn withdraw(&mut self, handle: u32) {
        let Some(reference) = self.references.get(handle) else { return };
        self.known.withdrawing.insert(handle);
        for entry in reference.known.clone() {
            let uses = self.known.uses(entry);
            self.effect(Effect::Withdraw(entry, uses));
        }
    }

    /// The offer has been withdrawn: no message names the entry from now on.
    pub fn withdrawn(&mut self, entry: KnownEntry) {
        if let Some(handle) = self.known.free(entry) {
            self.end_offer(handle, |other| *other != entry);
        }
    }

    fn end_offer(&mut self, handle: u32, stays: impl Fn(&KnownEntry) -> bool) {
        let Some(reference) = self.references.get_mut(handle) else { return };
        reference.known.retain(|entry| stays(entry));
        if reference.known.is_empty() {
            self.known.withdrawing.remove(&handle);
            self.return_grants(handle);
        }
    }

    /// Whether offers wait for messages on their way.
    pub fn is_withdrawing(&self) -> bool {
        !self.known.withdrawing.is_empty()
    }

    /// Tries again: a peer may have undone a use.
    pub fn withdraw_again(&mut self) {
        for handle in std::mem::take(&mut self.known.withdrawing) {
            self.return_grants(handle);
        }
    }

    /// The channel is gone, and its messages with it.
    pub fn forget_offers(&mut self, channel: ChannelId) {
        for handle in self.known.forget(channel) {
            self.end_offer(handle, |entry| entry.channel != channel);
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

    /// What the owner is told once the handle is gone.
    fn released(grants: u32) -> Effect {
        let (owner, node, strong) = (OWNER, NodeId(5), grants);
        let released = vec![Released { owner, node, strong, grants }];
        Effect::Tell(Request::Release { released })
    }

    #[test]
    fn a_handle_that_is_given_up_goes_when_its_offer_is_withdrawn() {
        let mut state = process();
        assert_eq!(introduce(&mut state, CHANNEL, granted(5, Strong)), [], "offered already");
        state.let_go(&HELD);
        assert_eq!(state.take_effects(), [], "a count is left");
        state.let_go(&HELD);
        assert_eq!(state.take_effects(), [Effect::Withdraw(entry_of(5), 1)]);
        assert!(!state.holds(HANDLE, Weak) && state.is_withdrawing(), "the program has it no more");
        state.withdrawn(entry_of(5));
        assert_eq!(state.take_effects(), [released(2)]);
        assert!(state.references.get(HANDLE).is_none() && !state.is_withdrawing());
        assert_eq!(state.hold_known(CHANNEL, &named(5)), None);
        let key = (OWNER, NodeId(5));
        let effects = introduce(&mut state, CHANNEL, granted(5, Strong));
        assert_eq!(effects, [Effect::Offer(entry_of(5), key, 2)], "no number comes again");
    }

    #[test]
    fn a_message_on_its_way_keeps_the_handle() {
        let mut state = process();
        state.let_go(&HELD);
        assert_eq!(state.take_effects(), [Effect::Withdraw(entry_of(5), 1)]);
        assert!(state.offers(CHANNEL, &[named(5)]));
        assert_eq!(state.hold_known(CHANNEL, &named(5)), Some(HELD));
        assert!(state.holds(HANDLE, Strong));
        state.withdraw_again();
        assert_eq!(state.take_effects(), [], "it is in use");
        assert!(!state.is_withdrawing());
        state.let_go(&HELD);
        assert_eq!(state.take_effects(), [Effect::Withdraw(entry_of(5), 2)]);
        state.withdraw_again();
        assert_eq!(state.take_effects(), [Effect::Withdraw(entry_of(5), 2)], "a use was undone");
        state.withdrawn(entry_of(5));
        assert_eq!(state.take_effects(), [released(1)]);
    }

    #[test]
    fn only_living_nodes_that_are_held_strongly_are_offered() {
        let mut state = State::new(ProcessId(1));
        assert_eq!(introduce(&mut state, CHANNEL, granted(5, Weak)), []);
        let mut state = process();
        state.event(Event::Dead { process: OWNER });
        state.take_effects();
        assert_eq!(introduce(&mut state, ChannelId(9), granted(5, Strong)), []);
        state.let_go(&HELD);
        state.let_go(&HELD);
        assert_eq!(state.take_effects(), [Effect::Withdraw(entry_of(5), 1)], "the peer may use it");
        state.withdrawn(entry_of(5));
        assert_eq!(state.take_effects(), [], "no grant goes back to the dead");
        assert!(state.references.get(HANDLE).is_none());
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
        let both = [Effect::Withdraw(entry_of(5), 1), Effect::Withdraw(entry, 1)];
        assert_eq!(state.take_effects(), both);
        state.forget_offers(CHANNEL);
        assert!(state.take_effects().is_empty() && state.is_withdrawing(), "the other one is left");
        state.forget_offers(other);
        assert_eq!(state.take_effects(), [released(2)]);
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
