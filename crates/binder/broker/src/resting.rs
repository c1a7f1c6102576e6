//! Connections that were accepted and not looked at, because their users rest: see
//! [`crate::cpu_share`].

use crate::closing::PeerSocket;
use crate::ledger::Ledger;
use baton_abi::quota::STRANGER;
use std::collections::{BTreeMap, VecDeque};

/// Most such connections of one user: as many as the kernel keeps for all of them.
const MAX_OF_USER: usize = 1024;

/// The connections by user, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct RestingConnections {
    users: BTreeMap<u32, VecDeque<PeerSocket>>,
}

impl RestingConnections {
    /// Keeps a connection, or ends it if its user has too many.
    pub fn keep(&mut self, user: u32, socket: PeerSocket, ledger: &mut Ledger) {
        let of_user = self.users.entry(user).or_default();
        if of_user.len() < MAX_OF_USER && ledger.descriptors.check(user, STRANGER, 1).is_ok() {
            ledger.descriptors.take(user, 1);
            of_user.push_back(socket);
        }
        if of_user.is_empty() {
            self.users.remove(&user);
        }
    }

    /// Takes the oldest connection of the first user for whom `may_go_on` is true.
    pub fn take(
        &mut self,
        ledger: &mut Ledger,
        may_go_on: impl Fn(u32) -> bool,
    ) -> Option<(u32, PeerSocket)> {
        let user = self.users().find(|user| may_go_on(*user))?;
        let of_user = self.users.get_mut(&user)?;
        let socket = of_user.pop_front()?;
        ledger.descriptors.give_back(user, 1);
        if of_user.is_empty() {
            self.users.remove(&user);
        }
        Some((user, socket))
    }

    /// The users who have such connections.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        self.users.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::socket_pair;
    use crate::limits::Limits;

    #[test]
    fn a_user_has_a_bounded_number_of_resting_connections() {
        baton_shm::fd_limit::raise();
        let mut ledger = Ledger::new(&Limits::default(), 1 << 16);
        let mut resting = RestingConnections::default();
        let (one, _other) = socket_pair().unwrap();
        let new = || PeerSocket::new(rustix::io::fcntl_dupfd_cloexec(&one, 0).unwrap());
        for _ in 0..MAX_OF_USER {
            resting.keep(1000, new(), &mut ledger);
        }
        assert_eq!(ledger.descriptors.of(1000), MAX_OF_USER as u64);
        resting.keep(1000, new(), &mut ledger);
        resting.keep(1001, new(), &mut ledger);
        assert_eq!(ledger.descriptors.taken(), MAX_OF_USER as u64 + 1);
        assert!(resting.take(&mut ledger, |user| user == 1001).is_some());
        assert!(resting.take(&mut ledger, |user| user == 1001).is_none());
        assert!(resting.users().eq([1000]));
        while resting.take(&mut ledger, |_| true).is_some() {}
        assert_eq!((resting.users().next(), ledger.descriptors.taken()), (None, 0));
    }
}
