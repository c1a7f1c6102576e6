//! Descriptors that peers have sent, and sockets in which such descriptors may lie.
//!
//! Whoever closes the last descriptor of a file may wait for as long as its sender likes: a TCP
//! socket with SO_LINGER waits for its peer, and a file of FUSE for its server. Such descriptors
//! may also lie in a socket that is closed, and in a packet that is received without room for them.
//!
//! **Invariant**: no thread of the engine closes a descriptor that a peer has chosen, unless its
//! program frees a buffer with an array. [`PeerFiles`] and [`PeerSocket`] go to a [`UserCloser`]
//! when they are dropped. A stranger's packet with descriptors is received when copies of them are
//! here; that of any other process, which may harm this one anyway, at once.
//!
//! Each user has a closer, with a thread while something is to be closed. The number of descriptors
//! that wait there is on the user's account ([`Resource::Closing`]). Beyond its share, the engine
//! reads no more descriptors of the user's processes and takes up no channel to them.
//!
//! A child of fork closes its copies itself: no close there is the last one.

use baton_shm::closer::Closer;
use baton_shm::forks::ForkGeneration;
use baton_shm::lock::Lock;
use baton_shm::socket::has_unread;
use baton_state::account::{Account, Held, Resource};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// Descriptors that wait to be closed, and then their share.
type Waiting = (Vec<OwnedFd>, Held);

/// The closers of all users.
#[derive(Debug, Default)]
pub(crate) struct UserClosers(Lock<BTreeMap<u32, UserCloser>>);

impl UserClosers {
    /// The closer of a user, whose account this is.
    pub fn of(&self, uid: u32, account: &Account) -> UserCloser {
        let mut closers = self.0.lock();
        closers.retain(|_, closer| closer.is_used());
        closers.entry(uid).or_insert_with(|| UserCloser::new(account.clone())).clone()
    }
}

/// Closes descriptors of one user's processes.
#[derive(Clone, Debug)]
pub struct UserCloser(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    account: Account,
    closer: Closer<Waiting>,
    generation: ForkGeneration,
}

impl UserCloser {
    /// The closer of the user with this account.
    pub fn new(account: Account) -> UserCloser {
        let closer = Closer::new("baton-close", drop);
        UserCloser(Arc::new(Parts { account, closer, generation: ForkGeneration::current() }))
    }

    /// The user's account.
    pub fn account(&self) -> &Account {
        &self.0.account
    }

    /// Whether the engine may take more descriptors of the user's processes.
    pub fn has_room(&self) -> bool {
        self.0.account.has_room(Resource::Closing)
    }

    /// Closes descriptors, without a wait.
    pub fn close(&self, fds: Vec<OwnedFd>) {
        if !fds.is_empty() && self.0.generation.is_current() {
            let held = self.0.account.owe(Resource::Closing, fds.len());
            self.0.closer.close((fds, held));
        }
    }

    /// Whether no descriptor waits and no close is under way.
    pub fn is_idle(&self) -> bool {
        self.0.closer.is_idle()
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1 || !self.is_idle()
    }
}

/// Descriptors of a peer. Dropped, they are closed by the closer of its user.
#[derive(Debug)]
pub struct PeerFiles {
    fds: Vec<OwnedFd>,
    closer: UserCloser,
}

impl PeerFiles {
    /// Descriptors of a process of the closer's user.
    pub fn new(fds: Vec<OwnedFd>, closer: &UserCloser) -> PeerFiles {
        PeerFiles { fds, closer: closer.clone() }
    }

    /// The descriptors, which are the program's from now on.
    pub fn keep(mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }
}

impl Deref for PeerFiles {
    type Target = [OwnedFd];

    fn deref(&self) -> &[OwnedFd] {
        &self.fds
    }
}

impl Drop for PeerFiles {
    fn drop(&mut self) {
        self.closer.close(std::mem::take(&mut self.fds));
    }
}

/// A socket by which a peer sends. Dropped, it is closed by the closer of the peer's user, unless
/// it is empty and [shut down](PeerSocket::shut_down).
#[derive(Debug)]
pub struct PeerSocket {
    fd: Option<OwnedFd>,
    closer: UserCloser,
}

impl PeerSocket {
    /// A socket whose other end a process of the closer's user has.
    pub fn new(socket: OwnedFd, closer: &UserCloser) -> PeerSocket {
        PeerSocket { fd: Some(socket), closer: closer.clone() }
    }

    /// The closer of the peer's user.
    pub fn closer(&self) -> &UserCloser {
        &self.closer
    }

    /// Ends the conversation: both ends see it, and neither can send more.
    pub fn shut_down(&self) {
        let _ = shutdown(self, Shutdown::Both);
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        self.closer.close(self.fd.take_if(|fd| has_unread(fd)).into_iter().collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::lingering::lingering;
    use crate::sys::packet;
    use baton_state::account::Accounts;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

    const STRANGER: u32 = 1000;

    fn await_idle(closer: &UserCloser) {
        while !closer.is_idle() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_close_that_waits_holds_up_no_other_user() {
        let (accounts, closers) = (Accounts::default(), UserClosers::default());
        accounts.set_owner(0, 64);
        let of = |uid| closers.of(uid, &accounts.of(uid));
        let (stranger, other) = (of(STRANGER), of(STRANGER + 1));
        assert!(Arc::ptr_eq(&stranger.0, &of(STRANGER).0));
        let (file, end) = lingering();
        drop(PeerFiles::new(vec![file], &stranger));
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(PeerFiles::new(vec![write], &other));
        assert_eq!(rustix::io::read(&read, &mut [0]), Ok(0));
        assert!(!stranger.is_idle(), "the other user has not waited for it");
        drop(stranger);
        let same = of(STRANGER);
        assert!(!same.is_idle(), "it is kept until it is done");
        drop(end);
        await_idle(&same);
        drop((same, other));
        drop(of(STRANGER + 2));
        assert_eq!(closers.0.lock().len(), 1);
    }

    /// The kernel closes what lies in a socket with it.
    #[test]
    fn a_socket_with_descriptors_in_it_is_closed_elsewhere() {
        let (file, end) = lingering();
        let pair = || {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
        };
        let closer = UserCloser::new(Accounts::default().of(STRANGER));
        let (ours, theirs) = pair();
        let socket = PeerSocket::new(ours, &closer);
        packet::send(&theirs, &[1], &[file.as_fd()], SendFlags::empty()).unwrap();
        drop((file, theirs));
        drop(socket);
        assert!(!closer.is_idle());
        drop(end);
        await_idle(&closer);
        let (ours, _theirs) = pair();
        let socket = PeerSocket::new(ours, &closer);
        socket.shut_down();
        drop(socket);
        assert!(closer.is_idle(), "it was empty");
    }
}
