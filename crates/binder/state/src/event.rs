//! Events of the broker, and the tickets that they bring.

use crate::account::Resource;
use crate::message::HeldObject;
use crate::node::NodeKey;
use crate::peer::{HoldingChange, NOBODY};
use crate::process::State;
use crate::reference::{Grants, Reference};
use crate::ticket::{Introduced, Key, Places};
use baton_abi::control::{Event, Granted, ProcessId, TicketId};

/// The fate of the context manager that the broker has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// Handle 0 stands for a manager: this one, or one that another thread has found.
    Known,
    /// The manager has died since. There may be another one.
    Dead,
}

impl State {
    /// Applies one event of the broker's stream. The runner looks after channels, the owners of
    /// lanes and `Barrier`. Before `References` that take a holder away and before `Dead`, it has
    /// taken in the messages that the process had sent.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Ticket { from, ticket, objects } => {
                let introduced = |granted: Granted| Introduced {
                    granted,
                    dead: granted.owner == ProcessId::BROKER,
                };
                self.keep_ticket((from, ticket), objects.into_iter().map(introduced).collect());
            }
            Event::TicketCancelled { from, ticket } => {
                self.release_ticket((from, ticket));
            }
            Event::References { node, holder: (process, holding), .. } => {
                let change = HoldingChange::Introduced(node, holding);
                self.change_holding(process, change).expect("only returns can be too many");
            }
            Event::Dead { process } => self.peer_gone(process),
            Event::Frozen { process, frozen } => self.freeze_changed(process, frozen),
            Event::Denied { owner, node } => self.denied((owner, node)),
            Event::Channel { .. }
            | Event::Barrier { .. }
            | Event::DescribeCalls
            | Event::RealTimeLane { .. }
            | Event::OrdinaryLane { .. } => {}
        }
    }

    fn keep_ticket(&mut self, key: Key, objects: Vec<Introduced>) {
        let places = match key.0 {
            ProcessId::BROKER => Some(None),
            from => self.places_for(from, objects.len()).map(Some),
        };
        for introduced in self.tickets.keep(key, objects, places) {
            self.decline(&introduced);
        }
    }

    fn places_for(&self, from: ProcessId, objects: usize) -> Option<Places> {
        let account = self.accounts.of(self.user_of(from));
        let ticket = account.take(Resource::Tickets, 1)?;
        Some([ticket, account.take(Resource::Objects, objects)?])
    }

    /// The effective user id of a process, `u32::MAX` if it is unknown.
    pub fn user_of(&self, process: ProcessId) -> u32 {
        self.peers.get(&process).map_or(NOBODY, |peer| peer.uid)
    }

    /// A grant on the context manager has come by this ticket: from now on it stands for handle 0,
    /// unless the manager has died since. `None` if the ticket has not come.
    pub fn set_manager(&mut self, ticket: TicketId) -> Option<Manager> {
        let claimed = self.tickets.take((ProcessId::BROKER, ticket))?;
        let [introduced] = claimed[..] else { return None };
        let held = self.hold(&introduced);
        let HeldObject::Handle { handle, .. } = held else { return None };
        let is_dead = self.references.get(handle).is_none_or(|reference| reference.dead);
        if is_dead || self.manager.is_some() {
            // No event reports this death again; or another thread asked at the same time.
            self.let_go(&held);
            return Some(if is_dead { Manager::Dead } else { Manager::Known });
        }
        // The ticket's strong count stays as the pin that keeps the handle while nobody holds it.
        self.manager = Some(handle);
        Some(Manager::Known)
    }

    /// The message of this ticket has been dropped: its references go back, now or when they come.
    pub fn drop_ticket(&mut self, from: ProcessId, ticket: TicketId) {
        let key = (from, ticket);
        let is_released = ticket == TicketId(0) || self.release_ticket(key);
        if !is_released && self.broker.may_send(ticket.0) {
            // Beyond the user's share the ticket is kept when it comes.
            let account = self.accounts.of(self.user_of(from));
            if let Some(held) = account.take(Resource::Disowned, 1) {
                self.tickets.disown(key, held);
            }
        }
    }

    /// No message takes the ticket: gives its references back. False if it has not come.
    pub(crate) fn release_ticket(&mut self, key: Key) -> bool {
        self.tickets.forget_overdrawn(key);
        let objects = self.tickets.take(key);
        objects.iter().flatten().for_each(|introduced| self.decline(introduced));
        objects.is_some()
    }

    /// No channel to this sender is left: no message takes its tickets any more.
    pub fn forget_tickets(&mut self, from: ProcessId) {
        for introduced in self.tickets.forget(Some(from)) {
            self.decline(&introduced);
        }
    }

    fn peer_gone(&mut self, process: ProcessId) {
        let peer = self.peers.remove(&process);
        self.postponed.forget(process);
        self.forget_tickets(process);
        self.tickets.end_of(process);
        let lost = self.references.iter().filter(|(_, held)| held.owner == process && !held.dead);
        let handles: Vec<u32> = lost.map(|(handle, _)| handle).collect();
        for handle in handles {
            self.node_dead(handle);
        }
        let is_its = |kept: &&Reference| kept.owner == process;
        let kept: Vec<_> = self.references.kept().filter(is_its).map(Reference::key).collect();
        kept.into_iter().for_each(|key| self.kept_node_dead(key));
        self.fail_calls_if(|calling| calling.peer == process);
        if let Some(peer) = peer {
            self.end_holdings(process, &peer);
        }
    }

    /// The broker's grants on a node are void.
    fn denied(&mut self, key: NodeKey) {
        let Some(reference) = self.references.of_node_mut(key) else { return };
        reference.grants.broker = Grants::default();
        if reference.grants.owner != Grants::default() {
            return;
        }
        match self.references.handle_of(key) {
            Some(handle) => self.node_dead(handle),
            None => self.kept_node_dead(key),
        }
    }

    fn node_dead(&mut self, handle: u32) {
        let Some(reference) = self.references.get_mut(handle) else { return };
        reference.end();
        self.tell_death(handle);
        if self.manager == Some(handle) {
            self.manager = None;
            if let Some(reference) = self.references.get_mut(handle) {
                reference.counts.strong -= 1;
            }
            self.return_grants(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effect;
    use crate::message::Received;
    use crate::ticket::MAX_OVERDRAWN;
    use crate::transaction::{Arrival, LaneId, Verdict};
    use baton_abi::control::{ChannelId, MAX_OBJECTS, NodeId, Released, Request, Strength};
    use baton_abi::lane::{Kind, Message};
    use rustix::io::Errno;

    const STRANGER: ProcessId = ProcessId(2);
    const OTHER: ProcessId = ProcessId(3);

    /// A process of root's with a peer of each of two users.
    fn process() -> State {
        let mut state = State::new(ProcessId(1));
        state.buffers.map(1 << 20);
        for (peer, uid) in [(STRANGER, 1000), (OTHER, 1001)] {
            let known = state.peers.entry(peer).or_default();
            (known.uid, known.label) = (uid, "label".to_owned());
        }
        state
    }

    /// Tickets of one peer, each with so many handles of their own; how many were kept.
    fn send(state: &mut State, from: ProcessId, tickets: u64, objects: u64) -> usize {
        let before = state.tickets.waiting.len();
        for ticket in 1..=tickets {
            let granted = |nth| {
                let node = NodeId(ticket * objects + nth + 1);
                let (owner, strength) = (from, Strength::Strong);
                Granted { owner, node, strength, flags: 0, manages: false }
            };
            let objects = (0..objects).map(granted).collect();
            state.event(Event::Ticket { from, ticket: TicketId(ticket), objects });
        }
        state.tickets.waiting.len() - before
    }

    fn claim(state: &mut State, from: ProcessId, ticket: u64) -> Result<(), Verdict> {
        let message = Message { ticket, ..Message::default() };
        let via = LaneId { channel: ChannelId(1), lane: 0 };
        let (chain, objects) = (Vec::new(), Vec::new());
        let arrival =
            Arrival { via, peer: from, message: &message, chain, objects, lane_sender: None };
        let admitted = state.admit_reply(&arrival);
        state.drop_claim(&arrival);
        admitted.map(|room| state.reject(room, Received::default()))
    }

    /// How many references go back, each of one strong grant.
    fn released(state: &mut State) -> usize {
        let one = |it: &Released| (it.strong, it.grants) == (1, 1);
        let of = |effect| match effect {
            Effect::Tell(Request::Release { released }) => {
                assert!(released.len() <= MAX_OBJECTS && released.iter().all(one));
                released.len()
            }
            _ => 0,
        };
        state.take_effects().into_iter().map(of).sum()
    }

    #[test]
    fn a_whole_ticket_goes_back_by_one_request() {
        let mut state = process();
        send(&mut state, STRANGER, 1, MAX_OBJECTS as u64);
        state.drop_ticket(STRANGER, TicketId(1));
        let of = |effect: Effect| match effect {
            Effect::Tell(Request::Release { released }) => Some(released.len()),
            _ => None,
        };
        let requests: Vec<_> = state.take_effects().into_iter().filter_map(of).collect();
        assert_eq!(requests, [MAX_OBJECTS]);
    }

    #[test]
    fn tickets_without_their_messages_are_bounded_by_their_user() {
        for (tickets, objects, kept) in
            [(5_000, 1, 5_000), (20_000, 1, 7_680), (20_000, 0, 7_680), (1_000, 64, 240)]
        {
            let mut state = process();
            assert_eq!(send(&mut state, STRANGER, tickets, objects), kept);
            let refused = tickets - kept as u64;
            assert_eq!(released(&mut state) as u64, refused * objects, "they go back at once");
            assert_eq!(state.references.iter().count(), 0, "a handle comes with its message");
            assert!(state.tickets.overdrawn.values().all(|tickets| tickets.len() <= MAX_OVERDRAWN));
            assert_eq!(send(&mut state, OTHER, 100, objects), 100, "another user's");
        }
    }

    #[test]
    fn tickets_of_a_sender_without_a_channel_go_back() {
        let mut state = process();
        assert_eq!(send(&mut state, STRANGER, 3, 2), 3);
        assert_eq!(send(&mut state, OTHER, 1, 1), 1);
        state.drop_ticket(STRANGER, TicketId(100));
        state.forget_tickets(STRANGER);
        assert_eq!(released(&mut state), 6);
        assert!(!state.is_settled(), "another sender's ticket waits");
        state.forget_tickets(OTHER);
        assert!(state.is_settled());
    }

    #[test]
    fn a_message_with_a_ticket_beyond_the_share_fails_and_the_next_one_does_not() {
        let mut state = process();
        let kept = send(&mut state, STRANGER, 8_000, 1) as u64;
        assert_eq!(claim(&mut state, STRANGER, 1), Ok(()));
        let over = Err(Verdict::Refused(Kind::Failed, Errno::DQUOT));
        assert_eq!(claim(&mut state, STRANGER, kept + 1), over);
        // A ticket that is named twice, or by another sender, is a violation.
        assert_eq!(claim(&mut state, STRANGER, kept + 1), Err(Verdict::NotYet));
        assert_eq!(claim(&mut state, OTHER, kept + 2), Err(Verdict::NotYet));
        assert_eq!(send(&mut state, STRANGER, 1, 1), 1, "there is room for one");
        state.event(Event::Dead { process: STRANGER });
        state.event(Event::Dead { process: OTHER });
        assert!(state.is_settled());
    }

    #[test]
    fn a_manager_that_has_died_before_its_ticket_is_claimed_is_none() {
        let mut state = process();
        let (node, strength, flags, manages) = (NodeId(1), Strength::Strong, 0, true);
        for (owner, dies, found) in
            [(STRANGER, true, Manager::Dead), (OTHER, false, Manager::Known)]
        {
            let ticket = TicketId(owner.0);
            assert_eq!(state.set_manager(ticket), None, "it has not come");
            let objects = vec![Granted { owner, node, strength, flags, manages }];
            state.event(Event::Ticket { from: ProcessId::BROKER, ticket, objects });
            if dies {
                state.event(Event::Dead { process: owner });
            }
            assert_eq!(state.set_manager(ticket), Some(found));
            assert_eq!(state.manager, (!dies).then_some(0));
            assert_eq!(state.references.get(0).is_some(), !dies);
        }
    }

    #[test]
    fn what_keeps_handle_0_is_no_count_of_the_program() {
        let mut state = process();
        let (node, ticket, strength) = (NodeId(1), TicketId(1), Strength::Strong);
        let objects = vec![Granted { owner: OTHER, node, strength, flags: 0, manages: true }];
        state.event(Event::Ticket { from: ProcessId::BROKER, ticket, objects });
        assert_eq!(state.set_manager(ticket), Some(Manager::Known));
        let counts = |state: &State| {
            let counts = state.describe().references[0].counts;
            (counts.strong, counts.weak)
        };
        assert_eq!(counts(&state), (1, 0), "the process is a holder");
        for (strength, expected) in [(Strength::Weak, (0, 1)), (Strength::Strong, (1, 1))] {
            assert!(state.increase_manager(strength));
            assert_eq!(counts(&state), expected);
        }
    }

    #[test]
    fn tickets_that_are_cancelled_or_disowned_leave_nothing() {
        let mut state = process();
        for ticket in 1..=10_000 {
            let ticket = TicketId(ticket);
            state.event(Event::Ticket { from: STRANGER, ticket, objects: Vec::new() });
            state.event(Event::TicketCancelled { from: STRANGER, ticket });
        }
        assert!(state.is_settled());
        for ticket in 1..=10_000 {
            state.drop_ticket(STRANGER, TicketId(ticket));
        }
        assert_eq!(state.tickets.disowned.len(), 1_920, "no more than its user may");
        state.event(Event::Dead { process: STRANGER });
        assert!(state.is_settled());
    }
}
