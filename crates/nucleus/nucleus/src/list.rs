//! Circular lists of threads, linked through a table that has one link for each thread.
//!
//! ```text
//!  List.head ---> slot 4 <--> slot 1 <--> slot 7 <--> (slot 4)
//!                 front                   back
//! ```
//!
//! The links are apart from the TCBs, sixteen to a cache line, so a walk along a list touches few
//! lines.
//!
//! **Invariant**: a thread is on at most one of the lists that share a table.

/// The number of a thread in its kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Slot(u16);

impl Slot {
    /// No thread.
    pub const NONE: Slot = Slot(u16::MAX);
    pub(crate) const MAX_SLOTS: usize = u16::MAX as usize;

    #[inline]
    pub(crate) const fn new(index: u16) -> Slot {
        Slot(index)
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    next: Slot,
    previous: Slot,
}

/// A table of links, one for each thread.
#[derive(Clone, Debug)]
pub struct Links(Box<[Link]>);

impl Links {
    pub(crate) fn new(n_threads: usize) -> Links {
        Links(vec![Link { next: Slot::NONE, previous: Slot::NONE }; n_threads].into())
    }

    #[inline]
    pub(crate) fn next(&self, slot: Slot) -> Slot {
        self.0[slot.index()].next
    }

    /// Inserts a thread before another one.
    #[inline]
    fn insert_before(&mut self, slot: Slot, next: Slot) {
        let previous = self.0[next.index()].previous;
        self.0[slot.index()] = Link { next, previous };
        self.0[previous.index()].next = slot;
        self.0[next.index()].previous = slot;
    }
}

/// A list, represented by its first thread.
#[derive(Clone, Copy, Debug)]
pub struct List {
    head: Slot,
}

impl List {
    pub(crate) const EMPTY: List = List { head: Slot::NONE };

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.head == Slot::NONE
    }

    /// The first thread, or `NONE`.
    #[inline]
    pub(crate) fn front(self) -> Slot {
        self.head
    }

    #[inline]
    pub(crate) fn push_back(&mut self, links: &mut Links, slot: Slot) {
        if self.is_empty() {
            links.0[slot.index()] = Link { next: slot, previous: slot };
            self.head = slot;
        } else {
            links.insert_before(slot, self.head);
        }
    }

    #[inline]
    pub(crate) fn push_front(&mut self, links: &mut Links, slot: Slot) {
        self.push_back(links, slot);
        self.head = slot;
    }

    /// Inserts a thread before one that is on the list and is not its first.
    pub(crate) fn insert_before(&mut self, links: &mut Links, slot: Slot, next: Slot) {
        debug_assert_ne!(next, self.head);
        links.insert_before(slot, next);
    }

    /// Removes a thread that is on the list.
    #[inline]
    pub(crate) fn remove(&mut self, links: &mut Links, slot: Slot) {
        let Link { next, previous } = links.0[slot.index()];
        if next == slot {
            self.head = Slot::NONE;
            return;
        }
        links.0[previous.index()].next = next;
        links.0[next.index()].previous = previous;
        if self.head == slot {
            self.head = next;
        }
    }

    /// The threads from the first to the last.
    pub(crate) fn iter(self, links: &Links) -> impl Iterator<Item = Slot> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let slot = at;
            if slot == Slot::NONE {
                return None;
            }
            at = links.next(slot);
            if at == self.head {
                at = Slot::NONE;
            }
            Some(slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(list: List, links: &Links) -> Vec<u16> {
        list.iter(links).map(|slot| slot.0).collect()
    }

    #[test]
    fn a_list_keeps_its_order() {
        let mut links = Links::new(5);
        let mut list = List::EMPTY;
        for number in [2, 0, 4] {
            list.push_back(&mut links, Slot(number));
        }
        list.push_front(&mut links, Slot(1));
        assert_eq!(slots(list, &links), [1, 2, 0, 4]);
        list.insert_before(&mut links, Slot(3), Slot(0));
        assert_eq!(slots(list, &links), [1, 2, 3, 0, 4]);
        for (number, left) in [(1, &[2, 3, 0, 4][..]), (4, &[2, 3, 0]), (3, &[2, 0]), (2, &[0])] {
            list.remove(&mut links, Slot(number));
            assert_eq!(slots(list, &links), left);
        }
        list.remove(&mut links, Slot(0));
        assert!(list.is_empty());
    }
}
