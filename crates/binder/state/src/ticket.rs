//! Tickets: references that the broker has sent ahead of the message that carries their objects.

use crate::account::Held;
use crate::message::HeldObject;
use baton_abi::control::{ProcessId, TicketId};
use rustc_hash::{FxHashMap, FxHashSet};

/// How many tickets beyond its user's share are known of a process. A process that names an older
/// one has its channel ended: no honest engine has as many without their messages.
pub(crate) const MAX_OVERDRAWN: usize = 1024;

/// The places of a ticket and of its objects in their sender's account.
pub(crate) type Places = [Held; 2];

/// A ticket, by its sender and its number.
pub(crate) type Key = (ProcessId, TicketId);

#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// Tickets without their message, with their references.
    pub waiting: FxHashMap<Key, (Vec<HeldObject>, Option<Places>)>,
    /// Tickets whose message has been dropped and whose event has not come.
    pub disowned: FxHashMap<Key, Held>,
    /// Tickets that were beyond their user's share: they have been given back, and their messages
    /// fail.
    pub overdrawn: FxHashMap<ProcessId, FxHashSet<TicketId>>,
}

impl Tickets {
    /// Keeps a ticket for its message. `places` is `None` if its sender's user has no place left,
    /// and `Some(None)` for a request of this process's own. Returns references that go back,
    /// because there is no place or because the message has been dropped.
    pub fn keep(
        &mut self,
        key: Key,
        objects: Vec<HeldObject>,
        places: Option<Option<Places>>,
    ) -> Vec<HeldObject> {
        if self.disowned.remove(&key).is_some() {
            return objects;
        }
        let Some(places) = places else {
            let overdrawn = self.overdrawn.entry(key.0).or_default();
            if overdrawn.len() < MAX_OVERDRAWN {
                overdrawn.insert(key.1);
            }
            return objects;
        };
        self.waiting.insert(key, (objects, places));
        Vec::new()
    }

    /// Whether the ticket has come, and its message has not.
    pub fn has(&self, key: Key) -> bool {
        self.waiting.contains_key(&key)
    }

    /// The ticket's references, in the order of its objects.
    pub fn objects(&self, key: Key) -> &[HeldObject] {
        self.waiting.get(&key).map_or(&[], |(objects, _)| objects)
    }

    /// The references of all tickets of a sender.
    pub fn all_objects(&self, from: ProcessId) -> Vec<HeldObject> {
        let tickets = self.waiting.iter().filter(|(key, _)| key.0 == from);
        tickets.flat_map(|(_, (objects, _))| objects).cloned().collect()
    }

    /// Takes the ticket's references.
    pub fn take(&mut self, key: Key) -> Option<Vec<HeldObject>> {
        self.waiting.remove(&key).map(|(objects, _)| objects)
    }

    /// Notes that the message of a ticket that has not come has been dropped.
    pub fn disown(&mut self, key: Key, held: Held) {
        self.disowned.insert(key, held);
    }

    /// Whether this ticket was beyond its user's share.
    pub fn is_overdrawn(&self, (from, ticket): Key) -> bool {
        self.overdrawn.get(&from).is_some_and(|tickets| tickets.contains(&ticket))
    }

    /// Forgets this ticket, which no message names any more.
    pub fn forget_overdrawn(&mut self, (from, ticket): Key) {
        if let Some(tickets) = self.overdrawn.get_mut(&from) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.overdrawn.remove(&from);
            }
        }
    }

    /// Forgets all tickets, or those of one sender. Returns their references, oldest ticket first.
    pub fn forget(&mut self, from: Option<ProcessId>) -> Vec<HeldObject> {
        let is_concerned = |sender: ProcessId| from.is_none_or(|from| sender == from);
        self.disowned.retain(|key, _| !is_concerned(key.0));
        self.overdrawn.retain(|sender, _| !is_concerned(*sender));
        let mut lost: Vec<_> = self.waiting.extract_if(|key, _| is_concerned(key.0)).collect();
        lost.sort_unstable_by_key(|(key, _)| *key);
        lost.into_iter().flat_map(|(_, (objects, _))| objects).collect()
    }

    /// Whether no ticket waits for its message, and no message for its ticket.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.disowned.is_empty() && self.overdrawn.is_empty()
    }
}
