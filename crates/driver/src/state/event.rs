//! What the broker says: its events, and the tickets that they bring.

use super::State;
use baton_abi::control::{Event, Granted, ProcessId, Strength, TicketId};

impl State {
    /// One event of the broker's stream. Channels and who serves a lane are the runner's, and `Barrier` is its own
    /// question; before `References` that take a holder away and before `Dead`, the runner has
    /// taken in what that process had sent.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Ticket { from, ticket, objects } => {
                for granted in &objects {
                    self.hold(granted);
                }
                self.tickets.insert((from, ticket), objects);
                if self.disowned.remove(&(from, ticket)) {
                    self.drop_ticket(from, ticket);
                }
            }
            Event::TicketCancelled { from, ticket } => {
                self.release_ticket(from, ticket);
            }
            Event::References { node: id, strong, held, holder } => {
                let (process, holding) = holder;
                let peer = self.peers.entry(process).or_default();
                match holding {
                    Some(strength) => drop(peer.grants.insert(id, strength)),
                    None => drop(peer.grants.remove(&id)),
                }
                if peer.is_unused() {
                    self.peers.remove(&process);
                }
                let Some(node) = self.nodes.get_mut(id) else { return };
                let (was_strong, was_held) = (node.remote_strong, node.remote_held);
                (node.remote_strong, node.remote_held) = (strong, held);
                self.node_changed(id);
                if was_strong && !strong {
                    self.node_dropped(id, Strength::Strong);
                }
                if was_held && !held {
                    self.node_dropped(id, Strength::Weak);
                }
            }
            Event::Dead { process } => self.peer_gone(process),
            Event::Frozen { process, frozen } => self.freeze_changed(process, frozen),
            Event::Denied { handle } => self.node_dead(handle),
            Event::Channel { .. }
            | Event::Barrier { .. }
            | Event::RealTimeLane { .. }
            | Event::OrdinaryLane { .. } => {}
        }
    }

    /// Whose nodes' handles lose with this ticket what may be their last strong count.
    pub fn ends_with(&self, from: ProcessId, ticket: TicketId) -> Vec<ProcessId> {
        let held = self.tickets.get(&(from, ticket));
        self.owners_of_last(held.map_or(&[], |held| held))
    }

    /// A grant on the context manager has come by this ticket: from now on it stands for handle 0.
    pub fn set_manager(&mut self, ticket: TicketId) -> bool {
        let claimed = self.tickets.remove(&(ProcessId::BROKER, ticket));
        let Some(&[Granted::Handle { handle, .. }]) = claimed.as_deref() else { return false };
        if self.manager.is_some() {
            // Another thread asked at the same time.
            self.let_go(&claimed.expect("just matched")[0]);
            return true;
        }
        // The ticket's strong count stays as the pin that keeps the handle while nobody holds it.
        self.manager = Some(handle);
        true
    }

    /// A message that nobody takes had this ticket: its references go back, now or when they come.
    pub fn drop_ticket(&mut self, from: ProcessId, ticket: TicketId) {
        let told = ticket == TicketId(0) || self.release_ticket(from, ticket);
        if !told && self.is_to_come(ticket.0) {
            self.disowned.insert((from, ticket));
        }
    }

    pub(super) fn release_ticket(&mut self, from: ProcessId, ticket: TicketId) -> bool {
        let Some(held) = self.tickets.remove(&(from, ticket)) else { return false };
        for granted in &held {
            self.let_go(granted);
        }
        true
    }

    fn peer_gone(&mut self, process: ProcessId) {
        self.peers.remove(&process);
        let mut lost: Vec<_> =
            self.tickets.keys().filter(|(from, _)| *from == process).copied().collect();
        lost.sort_unstable();
        for (from, ticket) in lost {
            self.release_ticket(from, ticket);
        }
        self.disowned.retain(|(from, _)| *from != process);
        let handles: Vec<u32> = self
            .references
            .iter()
            .filter(|(_, reference)| reference.owner == process && !reference.dead)
            .map(|(handle, _)| handle)
            .collect();
        for handle in handles {
            self.node_dead(handle);
        }
        self.fail_calls(process);
    }

    fn node_dead(&mut self, handle: u32) {
        let Some(reference) = self.references.get_mut(handle) else { return };
        reference.dead = true;
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
