//! The one-way transactions that wait at a node for the one before to be freed.
//!
//! They are in the order of their senders' priorities, and then of their age. A flood of ordinary
//! ones may be long: a real-time one that comes in looks at none of them.

use crate::message::Incoming;
use std::collections::VecDeque;

/// A node's queue of one-way transactions.
#[derive(Clone, Debug, Default)]
pub struct OneWayQueue {
    items: VecDeque<Incoming>,
    /// Those among the ordinary ones that may be of a real-time sender: the broker has not told of
    /// their lane yet.
    n_unknown: usize,
}

fn is_unknown(incoming: &Incoming) -> bool {
    incoming.lane_sender.is_some_and(|sender| sender.priority.is_none())
}

impl OneWayQueue {
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Incoming> {
        self.items.iter()
    }

    /// Adds one that has just come in. Earlier ones of its sender have its priority from then on,
    /// and stay before it.
    pub fn push(&mut self, incoming: Incoming) {
        let behind = self.items.partition_point(|it| it.real_time() >= incoming.real_time());
        let end = match self.n_unknown {
            0 => self.items.partition_point(|it| it.real_time().is_some()),
            _ => self.items.len(),
        };
        let mut at = behind;
        for place in behind..end {
            if self.items[place].has_sender_of(&incoming) {
                let mut earlier = self.remove(place);
                earlier.inherit(&incoming);
                self.insert(at, earlier);
                at += 1;
            }
        }
        self.insert(at, incoming);
    }

    /// Puts one back that had its turn already: it goes before those that are as urgent.
    pub fn put_back(&mut self, incoming: Incoming) {
        let at = self.items.partition_point(|it| it.real_time() > incoming.real_time());
        self.insert(at, incoming);
    }

    /// Takes the first one.
    pub fn pop(&mut self) -> Option<Incoming> {
        (!self.is_empty()).then(|| self.remove(0))
    }

    /// Takes the first one of which this is true.
    pub fn take_if(&mut self, wanted: impl FnMut(&Incoming) -> bool) -> Option<Incoming> {
        let place = self.items.iter().position(wanted)?;
        Some(self.remove(place))
    }

    /// Takes all of them.
    pub fn take_all(&mut self) -> impl Iterator<Item = Incoming> {
        std::mem::take(self).items.into_iter()
    }

    fn insert(&mut self, place: usize, incoming: Incoming) {
        self.n_unknown += usize::from(is_unknown(&incoming));
        self.items.insert(place, incoming);
    }

    fn remove(&mut self, place: usize) -> Incoming {
        let incoming = self.items.remove(place).expect("a place in the queue");
        self.n_unknown -= usize::from(is_unknown(&incoming));
        incoming
    }
}
