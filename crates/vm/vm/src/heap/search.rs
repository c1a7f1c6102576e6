//! How far a search for cycles goes, and where it begins: see [`cycles`](super::cycles).

use crate::object::Ref;
use std::collections::VecDeque;

/// What the search for cycles has done, and how much it may do.
#[derive(Debug)]
pub(super) struct Searching {
    /// Suspects that this search, or the next one, begins at
    pub queue: VecDeque<Ref>,
    /// How many objects the program has paid for by allocating
    pub credit: usize,
    /// A portion begins when so many are paid for.
    pub price: usize,
    /// Threads that wait do not cut a portion short before it has looked at so many objects.
    pub reach: usize,
    /// Objects of a portion, after which memory is given away. It grows while none is found.
    pub portion: usize,
    /// Where these three begin
    pub least: usize,
}

impl Searching {
    pub fn new(least: usize) -> Searching {
        let queue = VecDeque::new();
        Searching { queue, credit: 0, price: least, reach: least, portion: least, least }
    }

    /// Lets the search look at two objects for each new one.
    pub fn pay(&mut self, n_new: usize) {
        self.credit = self.credit.saturating_add(2 * n_new);
    }

    /// Begins a search.
    pub fn begin(&mut self, suspects: impl Iterator<Item = Ref>) {
        self.queue.extend(suspects);
        self.portion = self.least;
    }

    /// Objects of a portion, beside so many suspects.
    pub fn portion_of(&self, n_suspects: usize) -> usize {
        self.portion.max(n_suspects / 16)
    }

    /// Whether the program has paid for another portion, and there is a suspect.
    pub fn is_due(&self) -> bool {
        !self.queue.is_empty() && self.credit >= self.price
    }
}
