//! Chooses the connection that is served next: users in turn, and the connections of one user in
//! turn.
//!
//! Deficit round robin (Shreedhar and Varghese, "Efficient fair queuing using deficit round-robin",
//! 1995), with users for flows. The broker serves one request at a time and knows its cost
//! afterwards. A user that has overdrawn its credit is passed over while others wait, until later
//! rounds have repaid the debt. So a user with many connections or costly requests delays another
//! user by one request a round.
//!
//! **Invariant**: a connection waits at most once. The queue returns a connection whenever one
//! waits.

use crate::poll::ConnectionId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Credit that a user gets each round. The unit is the cost of a plain request.
const CREDIT: i64 = 4;

/// Connections that wait to be served, by user.
#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    /// Users in the order of service, the next one first.
    round: VecDeque<u32>,
    users: BTreeMap<u32, UserQueue>,
    waiting: BTreeSet<ConnectionId>,
}

/// The waiting connections and the credit of one user.
#[derive(Debug)]
struct UserQueue {
    connections: VecDeque<ConnectionId>,
    credit: i64,
}

impl FairQueue {
    /// Adds a connection of `user` that has something to read, unless it waits already.
    pub fn add(&mut self, user: u32, connection: ConnectionId) {
        if !self.waiting.insert(connection) {
            return;
        }
        let user_queue = self.users.entry(user).or_insert_with(|| {
            self.round.push_back(user);
            UserQueue { connections: VecDeque::new(), credit: CREDIT }
        });
        user_queue.connections.push_back(connection);
    }

    /// Takes out the connection that is served next.
    pub fn next(&mut self) -> Option<ConnectionId> {
        if self.waiting.is_empty() {
            // No connection waits, so no debt has to be repaid.
            self.users.clear();
            self.round.clear();
            return None;
        }
        loop {
            let user = *self.round.front().expect("somebody waits");
            let user_queue = self.users.get_mut(&user).expect("of this round");
            if user_queue.credit > 0
                && let Some(connection) = user_queue.connections.pop_front()
            {
                self.waiting.remove(&connection);
                return Some(connection);
            }
            self.round.pop_front();
            if user_queue.credit > 0 {
                self.users.remove(&user);
            } else {
                user_queue.credit += CREDIT;
                self.round.push_back(user);
            }
        }
    }

    /// Charges `user` the cost of a request that was served.
    pub fn charge(&mut self, user: u32, cost: u64) {
        let cost = i64::try_from(cost).unwrap_or(i64::MAX / 2);
        if let Some(user_queue) = self.users.get_mut(&user) {
            user_queue.credit = user_queue.credit.saturating_sub(cost).max(i64::MIN / 2);
        }
    }

    /// Whether no connection waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ConnectionId {
        ConnectionId(number)
    }

    /// Serves `times` requests, where every connection has another request after each. `users`
    /// lists connection, user and cost of a request. Returns the connections in the order of
    /// service.
    fn serve(queue: &mut FairQueue, users: &[(u64, u32, u64)], times: usize) -> Vec<u64> {
        let serve = |_| {
            let connection = queue.next().expect("somebody waits");
            let known = users.iter().find(|(number, ..)| *number == connection.0);
            let (number, user, cost) = *known.expect("one of those");
            queue.charge(user, cost);
            queue.add(user, connection);
            number
        };
        (0..times).map(serve).collect()
    }

    #[test]
    fn users_share_equally_whatever_their_connections() {
        let users = [(1, 1000, 1), (2, 1000, 1), (3, 1000, 1), (10, 0, 1)];
        let mut queue = FairQueue::default();
        users.iter().for_each(|(number, user, _)| queue.add(*user, id(*number)));
        let served = serve(&mut queue, &users, 8_000);
        let of = |number| served.iter().filter(|it| **it == number).count();
        assert_eq!(of(10), 4_000);
        assert!((1..=3).all(|number| of(number).abs_diff(1_333) < 3), "{served:?}");
    }

    #[test]
    fn costly_requests_are_served_less_often() {
        let users = [(1, 1000, 100), (2, 0, 1)];
        let mut queue = FairQueue::default();
        users.iter().for_each(|(number, user, _)| queue.add(*user, id(*number)));
        let served = serve(&mut queue, &users, 10_100);
        let dear = served.iter().filter(|it| **it == 1).count();
        assert!((95..=105).contains(&dear), "{dear}");
        // The other user never waited for two costly requests in a row.
        assert!(!served.windows(2).any(|two| two == [1, 1]));
    }

    #[test]
    fn a_single_user_is_served_whatever_its_debt() {
        let mut queue = FairQueue::default();
        for _ in 0..3 {
            queue.add(1000, id(1));
            queue.add(1000, id(1));
            assert_eq!(queue.next(), Some(id(1)));
            queue.charge(1000, u64::MAX);
            assert_eq!(queue.next(), None);
        }
        // A debt from a time when nobody else waited is forgotten.
        queue.add(1000, id(1));
        queue.add(0, id(2));
        assert_eq!((queue.next(), queue.next()), (Some(id(1)), Some(id(2))));
    }

    #[test]
    fn a_debt_outlasts_an_empty_user_queue() {
        let mut queue = FairQueue::default();
        queue.add(0, id(1));
        queue.add(1000, id(2));
        queue.add(0, id(3));
        assert_eq!(queue.next(), Some(id(1)));
        queue.charge(0, 1);
        assert_eq!(queue.next(), Some(id(3)));
        queue.charge(0, 1);
        assert_eq!(queue.next(), Some(id(2)));
        queue.charge(1000, 100);
        queue.add(0, id(1));
        queue.add(1000, id(2));
        let mut before = 0;
        while queue.next() == Some(id(1)) {
            queue.charge(0, 1);
            queue.add(0, id(1));
            before += 1;
        }
        assert!((90..110).contains(&before), "{before}");
    }
}
