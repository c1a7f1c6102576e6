//! Who is served next: users in turn, and of one user its connections in turn.
//!
//! Deficit round robin (Shreedhar and Varghese, "Efficient fair queuing using deficit round-robin",
//! 1995), with users for flows. A turn is one request. What it costs is known when it has been
//! served: a user that has used up its credit is passed over for as many rounds as it takes, while
//! others wait. So a user with many connections, or with requests that cost much, delays another
//! user by one request a round.
//!
//! **Invariant**: a connection waits at most once; somebody is served whenever somebody waits.

use crate::poll::ConnectionId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a user may use up in a round, in units of a plain request's cost.
const CREDIT: i64 = 4;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The users of `lines`, the next one first.
    round: VecDeque<u32>,
    lines: BTreeMap<u32, Line>,
    waiting: BTreeSet<ConnectionId>,
}

/// One user's connections.
#[derive(Debug)]
struct Line {
    connections: VecDeque<ConnectionId>,
    credit: i64,
}

impl Turns {
    /// A connection of a user has something to be read, if it is not known already.
    pub fn add(&mut self, user: u32, connection: ConnectionId) {
        if !self.waiting.insert(connection) {
            return;
        }
        let line = self.lines.entry(user).or_insert_with(|| {
            self.round.push_back(user);
            Line { connections: VecDeque::new(), credit: CREDIT }
        });
        line.connections.push_back(connection);
    }

    /// Whose turn it is. It waits no longer.
    pub fn next(&mut self) -> Option<ConnectionId> {
        if self.waiting.is_empty() {
            // Nobody was kept waiting by what anybody used.
            self.lines.clear();
            self.round.clear();
            return None;
        }
        loop {
            let user = *self.round.front().expect("somebody waits");
            let line = self.lines.get_mut(&user).expect("of this round");
            if line.credit > 0
                && let Some(connection) = line.connections.pop_front()
            {
                self.waiting.remove(&connection);
                return Some(connection);
            }
            self.round.pop_front();
            if line.credit > 0 {
                self.lines.remove(&user);
            } else {
                line.credit += CREDIT;
                self.round.push_back(user);
            }
        }
    }

    /// A user's request has cost so much.
    pub fn charge(&mut self, user: u32, cost: u64) {
        let cost = i64::try_from(cost).unwrap_or(i64::MAX / 2);
        if let Some(line) = self.lines.get_mut(&user) {
            line.credit = line.credit.saturating_sub(cost).max(i64::MIN / 2);
        }
    }

    /// Whether nobody waits.
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

    /// Who is served, where each has something to be read again after its turn.
    fn serve(turns: &mut Turns, users: &[(u64, u32, u64)], times: usize) -> Vec<u64> {
        let serve = |_| {
            let connection = turns.next().expect("somebody waits");
            let known = users.iter().find(|(number, ..)| *number == connection.0);
            let (number, user, cost) = *known.expect("one of those");
            turns.charge(user, cost);
            turns.add(user, connection);
            number
        };
        (0..times).map(serve).collect()
    }

    #[test]
    fn users_take_turns_whatever_connections_they_have() {
        let users = [(1, 1000, 1), (2, 1000, 1), (3, 1000, 1), (10, 0, 1)];
        let mut turns = Turns::default();
        users.iter().for_each(|(number, user, _)| turns.add(*user, id(*number)));
        let served = serve(&mut turns, &users, 8_000);
        let of = |number| served.iter().filter(|it| **it == number).count();
        assert_eq!(of(10), 4_000);
        assert!((1..=3).all(|number| of(number).abs_diff(1_333) < 3), "{served:?}");
    }

    #[test]
    fn what_costs_much_is_paid_with_turns() {
        let users = [(1, 1000, 100), (2, 0, 1)];
        let mut turns = Turns::default();
        users.iter().for_each(|(number, user, _)| turns.add(*user, id(*number)));
        let served = serve(&mut turns, &users, 10_100);
        let dear = served.iter().filter(|it| **it == 1).count();
        assert!((95..=105).contains(&dear), "{dear}");
        // The other one never waited for two of them.
        assert!(!served.windows(2).any(|two| two == [1, 1]));
    }

    #[test]
    fn who_is_alone_is_served_whatever_it_costs() {
        let mut turns = Turns::default();
        for _ in 0..3 {
            turns.add(1000, id(1));
            turns.add(1000, id(1));
            assert_eq!(turns.next(), Some(id(1)));
            turns.charge(1000, u64::MAX);
            assert_eq!(turns.next(), None);
        }
        // What was used while nobody waited is forgotten.
        turns.add(1000, id(1));
        turns.add(0, id(2));
        assert_eq!((turns.next(), turns.next()), (Some(id(1)), Some(id(2))));
    }

    #[test]
    fn a_debt_outlasts_a_moment_without_requests() {
        let mut turns = Turns::default();
        turns.add(0, id(1));
        turns.add(1000, id(2));
        turns.add(0, id(3));
        assert_eq!(turns.next(), Some(id(1)));
        turns.charge(0, 1);
        assert_eq!(turns.next(), Some(id(3)));
        turns.charge(0, 1);
        assert_eq!(turns.next(), Some(id(2)));
        turns.charge(1000, 100);
        turns.add(0, id(1));
        turns.add(1000, id(2));
        let mut before = 0;
        while turns.next() == Some(id(1)) {
            turns.charge(0, 1);
            turns.add(0, id(1));
            before += 1;
        }
        assert!((90..110).contains(&before), "{before}");
    }
}
