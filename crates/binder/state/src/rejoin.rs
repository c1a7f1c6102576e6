//! The broker's death, and the claims for its successor.

use crate::process::State;
use crate::reference::{Grants, Reference};
use baton_abi::claim::Claim;
use baton_abi::control::{NodeId, ProcessId, Strength};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

impl State {
    /// Notes the broker's death: every event of it has been applied.
    pub fn broker_lost(&mut self) {
        self.broker.is_alive = false;
    }

    /// Whether events that are missing may still come.
    pub fn has_broker(&self) -> bool {
        self.broker.is_alive
    }

    /// Whether an answer of a broker of this era still holds.
    pub fn is_of(&self, era: u32) -> bool {
        self.broker.era == era
    }

    /// The nodes of this process that manage the context, or are to, with their flags. A broker
    /// that was asked may have agreed before it died: its successor knows.
    pub fn managers(&self) -> Vec<(NodeId, u32)> {
        let managers = self.nodes.iter().filter(|(_, node)| node.may_manage());
        managers.map(|(id, node)| (id, node.flags)).collect()
    }

    /// Joins another broker. References under way are given up: a message with an old ticket is
    /// refused from now on. Peers that neither hold anything here nor have a channel are forgotten:
    /// no event would report their deaths.
    pub fn rejoin(&mut self, era: u32, channels: impl Fn(ProcessId) -> bool) {
        self.peers.retain(|&id, peer| {
            !peer.introduced.is_empty() || !peer.granted.is_empty() || channels(id)
        });
        // What a message has not brought is not claimed.
        self.tickets.forget(None);
        (self.broker.era, self.broker.is_alive) = (era, true);
    }

    /// The claims for the other broker, after the effects of [`State::rejoin`]: with the references
    /// under way others may go.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims = self.held_by_others();
        // Kept references, too: their grants go back to the broker that is in place then.
        let has_introduced = |it: &&Reference| it.grants.broker.all > 0;
        let introduced = self.references.all().filter(has_introduced);
        let of_owner = |it: &&Reference| it.grants.owner != Grants::default();
        let owners = self.references.all().filter(of_owner).map(|it| it.owner);
        let holders = self.peers.iter().filter(|(_, peer)| !peer.granted.is_empty());
        let peers: BTreeSet<ProcessId> = holders.map(|(&holder, _)| holder).chain(owners).collect();
        claims.extend(peers.into_iter().map(|peer| Claim::Peer { peer }));
        claims.extend(introduced.map(|reference| Claim::Granted {
            owner: reference.owner,
            node: reference.node,
            strong: reference.grants.broker.strong,
            grants: reference.grants.broker.all,
        }));
        claims
    }

    fn held_by_others(&self) -> Vec<Claim> {
        let introduced = self.peers.values().flat_map(|peer| &peer.introduced);
        let strongly = introduced.filter(|(_, strength)| **strength == Strength::Strong);
        let strong: FxHashSet<NodeId> = strongly.map(|(&node, _)| node).collect();
        let mut claims = Vec::new();
        for (&holder, peer) in &self.peers {
            let mut nodes: Vec<NodeId> = peer.introduced.keys().copied().collect();
            nodes.sort_unstable();
            for id in nodes {
                if let Some(node) = self.nodes.get(id) {
                    let (flags, strong) = (node.flags, strong.contains(&id));
                    claims.push(Claim::Node { node: id, flags, strong, holder });
                }
            }
        }
        claims
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::message::HeldObject;
    use crate::thread::{Calling, Frame};
    use crate::ticket::Introduced;
    use crate::transaction::{Arrival, LaneId, Verdict};
    use crate::{Effect, Return};
    use baton_abi::control::{ChannelId, Event, Granted, TicketId};
    use baton_abi::lane::Message;

    const PEER: ProcessId = ProcessId(2);
    pub(crate) const HANDLE: u32 = 1;

    /// A process with a buffer, and a handle that came by this ticket of the peer's.
    fn process(ticket: u64) -> State {
        let mut state = State::new(ProcessId(1));
        state.buffers.map(4096);
        let (node, strength) = (NodeId(7), Strength::Weak);
        let granted = Granted { owner: PEER, node, strength, flags: 0, manages: false };
        let ticket = TicketId(ticket);
        state.event(Event::Ticket { from: PEER, ticket, objects: vec![granted] });
        state
    }

    /// Such a process, to which the ticket's message has come.
    pub(crate) fn holder() -> State {
        let mut state = process(5);
        for introduced in state.tickets.take((PEER, TicketId(5))).unwrap() {
            state.hold(&introduced);
        }
        state
    }

    fn granted(claims: &[Claim]) -> usize {
        claims.iter().filter(|claim| matches!(claim, Claim::Granted { .. })).count()
    }

    #[test]
    fn a_ticket_without_its_message_is_given_back_and_then_unknown() {
        let old = 5;
        let mut state = process(old);
        state.broker_lost();
        state.rejoin(1, |_| true);
        assert_eq!(granted(&state.claims()), 0);
        let refused = |state: &mut State, ticket| {
            let message = Message { ticket, ..Message::default() };
            let via = LaneId { channel: ChannelId(1), lane: 0 };
            let (chain, objects) = (Vec::new(), Vec::new());
            let arrival =
                Arrival { via, peer: PEER, message: &message, chain, objects, lane_sender: None };
            matches!(state.admit_reply(&arrival), Err(Verdict::Refused(..)))
        };
        assert!(refused(&mut state, old));
        assert!(!refused(&mut state, 1 << 32 | 1), "the new broker's may come");
        state.drop_ticket(PEER, TicketId(old));
        assert!(state.is_settled(), "nothing is waited for that does not come");
        state.broker_lost();
        assert!(refused(&mut state, 1 << 32 | 1), "now it may not");
    }

    #[test]
    fn what_is_held_is_claimed_as_often_as_it_was_granted() {
        let mut state = holder();
        assert!(state.increase(HANDLE, Strength::Weak));
        let (owner, node, strength) = (PEER, NodeId(7), Strength::Strong);
        let granted = Granted { owner, node, strength, flags: 0, manages: false };
        state.hold(&Introduced { granted, dead: false });
        let claim = Claim::Granted { owner: PEER, node: NodeId(7), strong: 1, grants: 2 };
        for era in [1, 2] {
            state.rejoin(era, |_| true);
            assert_eq!(state.claims(), [claim]);
        }
    }

    #[test]
    fn a_handle_that_a_taken_call_had_kept_is_claimed_until_its_round() {
        let mut state = holder();
        let via = LaneId { channel: ChannelId(1), lane: 0 };
        let (peer, handle) = (PEER, Some(HANDLE));
        let calling = Calling { via, peer, handle, token: 1, owns_lane: true, dead: false };
        state.thread(1).stack.push(Frame::Calling(calling));
        state.references.get_mut(HANDLE).unwrap().sending = 1;
        state.let_go(&HeldObject::Handle { handle: HANDLE, strength: Strength::Weak });
        state.rejoin(1, |_| true);
        assert!(state.take_effects().iter().any(|it| matches!(it, Effect::EndSending(HANDLE))));
        assert_eq!(granted(&state.claims()), 1, "the peer may not have taken the call yet");
        state.taken(1, 0);
        assert_eq!(granted(&state.claims()), 1, "its grants have not gone back yet");
        state.return_kept();
        assert_eq!(granted(&state.claims()), 0);
    }

    #[test]
    fn holders_are_named_and_strangers_forgotten() {
        let mut state = State::new(ProcessId(1));
        let id = state.context_manager_node(0x10, 0, 3);
        let [holder, caller, gone] = [2, 3, 4].map(ProcessId);
        let holds = (holder, Some(Strength::Strong));
        state.event(Event::References { node: id, strong: true, held: true, holder: holds });
        for peer in [caller, gone] {
            state.peers.entry(peer).or_default().label = "label".to_owned();
        }
        state.rejoin(1, |peer| peer == caller);
        assert_eq!(state.claims(), [Claim::Node { node: id, flags: 3, strong: true, holder }]);
        assert_eq!(state.managers(), [(id, 3)]);
        assert!(state.peers.keys().eq([&holder, &caller]));
        state.not_context_manager(id);
        assert_eq!(state.managers(), []);
    }

    #[test]
    fn a_state_that_is_told_again_is_no_news() {
        let mut state = holder();
        state.listen_for_freeze(HANDLE, 9).unwrap();
        let frozen = |frozen| Event::Frozen { process: PEER, frozen };
        let news = |state: &mut State| match state.next_return(1, true) {
            Some(Return::Frozen(9, frozen)) => {
                state.freeze_done(9).unwrap();
                Some(frozen)
            }
            other => {
                assert!(other.is_none(), "{other:?}");
                None
            }
        };
        for (told, expect) in
            [(false, Some(false)), (false, None), (true, Some(true)), (true, None)]
        {
            state.event(frozen(told));
            assert_eq!(news(&mut state), expect);
        }
    }

    #[test]
    fn a_denied_handle_is_a_dead_nodes() {
        let mut state = holder();
        state.request_death(HANDLE, 9);
        state.event(Event::Denied { owner: PEER, node: NodeId(7) });
        assert!(matches!(state.next_return(1, true), Some(Return::Cookie(_, 9))));
        assert!(state.references.get(HANDLE).is_some_and(|reference| reference.dead));
        state.event(Event::Denied { owner: PEER, node: NodeId(77) });
    }
}
