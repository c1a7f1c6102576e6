//! Tickets: references that the broker has sent ahead of the message that carries their objects.

use crate::account::Held;
use baton_abi::control::{Granted, ProcessId, TicketId};
use rustc_hash::{FxHashMap, FxHashSet};

/// How many tickets beyond its user's share are known of a process. A process that names an older
/// one has its channel ended: no honest engine has as many without their messages.
pub(crate) const MAX_OVERDRAWN: usize = 1024;

/// A grant of the broker's whose message has not come. It gets its handle with the message, because
/// the kernel numbers new handles in the order of the message's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Introduced {
    pub granted: Granted,
    /// The owner has died since.
    pub dead: bool,
}

/// The places of a ticket and of its objects in their sender's account.
pub(crate) type Places = [Held; 2];

/// A ticket, by its sender and its number.
pub(crate) type Key = (ProcessId, TicketId);

#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// Tickets without their message, with their references.
    pub waiting: FxHashMap<Key, (Vec<Introduced>, Option<Places>)>,
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
        objects: Vec<Introduced>,
        places: Option<Option<Places>>,
    ) -> Vec<Introduced> {
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

    /// The owner is dead.
    pub fn end_of(&mut self, owner: ProcessId) {
        let all = self.waiting.values_mut().flat_map(|(objects, _)| objects);
        let its = all.filter(|introduced| introduced.granted.owner == owner);
        its.for_each(|introduced| introduced.dead = true);
    }

    /// Takes the ticket's references.
    pub fn take(&mut self, key: Key) -> Option<Vec<Introduced>> {
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
    pub fn forget(&mut self, from: Option<ProcessId>) -> Vec<Introduced> {
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
