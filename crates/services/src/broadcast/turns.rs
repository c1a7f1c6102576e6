//! A queue in which users take turns: each user's items are in their order, and a user who floods
//! the queue delays its own items only.

use std::collections::{HashMap, VecDeque};

/// Items of users who take turns.
#[derive(Debug)]
pub struct Turns<T> {
    /// The users who have items, the next one first.
    users: VecDeque<u32>,
    items: HashMap<u32, VecDeque<T>>,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { users: VecDeque::new(), items: HashMap::new() }
    }
}

impl<T> Turns<T> {
    /// Adds an item of a user.
    pub fn push(&mut self, uid: u32, item: T) {
        let items = self.items.entry(uid).or_default();
        if items.is_empty() {
            self.users.push_back(uid);
        }
        items.push_back(item);
    }

    /// The items of a user, the oldest first.
    pub fn of(&mut self, uid: u32) -> impl DoubleEndedIterator<Item = &mut T> {
        self.items.get_mut(&uid).into_iter().flatten()
    }

    /// Takes the oldest item of the user whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let uid = self.users.pop_front()?;
        let items = self.items.get_mut(&uid).expect("a user with a turn has items");
        let item = items.pop_front();
        if items.is_empty() {
            self.items.remove(&uid);
        } else {
            self.users.push_back(uid);
        }
        item
    }

    /// Whether nobody has an item.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_floods_the_queue_delays_only_itself() {
        let mut turns = Turns::default();
        (0..100).for_each(|item| turns.push(1, (1, item)));
        turns.push(2, (2, 0));
        turns.push(2, (2, 1));
        turns.push(3, (3, 0));
        let first: Vec<(u32, i32)> = (0..6).filter_map(|_| turns.pop()).collect();
        assert_eq!(first, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
        let rest: Vec<i32> = std::iter::from_fn(|| turns.pop()).map(|(_, item)| item).collect();
        assert!(rest.into_iter().eq(3..100) && turns.is_empty() && turns.items.is_empty());
    }
}
