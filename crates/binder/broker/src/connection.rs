//! One accepted connection. Its first message, the greeting, decides whether it becomes an engine's
//! or an observer's.

use crate::closing::PeerSocket;
use crate::ledger::Reader;
use crate::limits::Rights;
use crate::outbox::Outbox;
use crate::peer::{self, Credentials, LastPeer};
use crate::status_pages::StatusPages;
use crate::throttle::Throttle;
use baton_abi::control::ProcessId;
use baton_abi::quota::{QuotaClass, STRANGER};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

pub(crate) struct Connection {
    pub socket: PeerSocket,
    /// Readable once the process that connected has ended, even if another process holds the
    /// socket. `None` where the kernel has no pidfds.
    pub pidfd: Option<OwnedFd>,
    pub credentials: Credentials,
    /// The process whose threads make the calls: the one that connected, whomever it serves.
    pub server_pid: u32,
    /// Rights that the configuration gives to the process.
    pub rights: Rights,
    pub role: Role,
    /// Whether the peer may serve another process, once it has asked.
    pub on_behalf: Option<Result<(), Errno>>,
    /// Set once the process has exited: the number of its requests that the broker still reads.
    pub exiting: Option<u32>,
    /// A reply that the broker could not send yet. The broker reads no further request before it is
    /// sent.
    pub unsent: Option<UnsentReply>,
}

/// A reply that waits until the peer's socket has room or a shortage has passed.
pub(crate) struct UnsentReply {
    pub bytes: Vec<u8>,
    pub descriptor: Option<OwnedFd>,
    /// The errno of a refused greeting: the broker closes the connection after the reply.
    pub refusal: Option<Errno>,
    /// Number of attempts that found the peer's receive queue full.
    pub n_full: u32,
}

/// The role of a connection, which its greeting decides.
pub(crate) enum Role {
    /// No greeting has come yet.
    Ungreeted,
    /// An observer, which only asks for reports.
    Observer,
    /// The engine of one opened device.
    Engine(Box<Engine>),
}

pub(crate) struct Engine {
    pub process: ProcessId,
    pub outbox: Outbox,
    pub pages: StatusPages,
    /// Limits how often this engine may have a thread looked up: for a real-time lane, or for a
    /// looper.
    pub thread_requests: Throttle,
    /// Whether the epoll reports when the event socket has room.
    pub waits_for_room: bool,
}

impl Engine {
    /// Threads that an engine may have looked up per second: room for half as many real-time lanes
    /// that begin at once, each of which has a looper and a next standby looper at a server.
    const MAX_THREAD_REQUESTS: u32 = 512;
    /// Descriptors of the broker that an engine needs beside its connection's: the event socket,
    /// the status page, and the file with the tally page and the holder list.
    pub const DESCRIPTORS: u64 = 3;

    pub fn new(process: ProcessId, outbox: Outbox, pages: StatusPages) -> Engine {
        let thread_requests = Throttle::of(Engine::MAX_THREAD_REQUESTS);
        Engine { process, outbox, pages, thread_requests, waits_for_room: false }
    }
}

impl Connection {
    /// Descriptors of the broker that every connection needs: the socket and the pidfd.
    pub const DESCRIPTORS: u64 = 2;

    /// Whether the peer has closed the connection or its process has ended. The broker may have
    /// requests of it to read.
    pub fn has_hung_up(&self) -> bool {
        let mut waits = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let _ = poll(&mut waits, Some(&Timespec::default()));
        self.exiting.is_some() || !waits[0].revents().is_empty()
    }

    /// Looks up who connected. `ESRCH` if that process has already ended; other errors are
    /// shortages of the system. An error returns the socket with it.
    pub fn new(
        socket: PeerSocket,
        last_peer: &mut LastPeer,
        rights: impl FnOnce(&Credentials) -> Rights,
    ) -> Result<Connection, (PeerSocket, Errno)> {
        let (credentials, pidfd) = match peer::identify(&socket, last_peer) {
            Ok(peer) => peer,
            Err(errno) => return Err((socket, errno)),
        };
        let rights = rights(&credentials);
        let role = Role::Ungreeted;
        let (on_behalf, exiting, unsent) = (None, None, None);
        let server_pid = credentials.pid;
        Ok(Connection {
            socket,
            pidfd,
            credentials,
            server_pid,
            rights,
            role,
            on_behalf,
            exiting,
            unsent,
        })
    }

    pub fn engine(&mut self) -> Option<&mut Engine> {
        match &mut self.role {
            Role::Engine(engine) => Some(engine),
            Role::Ungreeted | Role::Observer => None,
        }
    }

    /// The class in which the connection's user takes from the broker's shared amounts.
    pub fn quota_class(&self) -> QuotaClass {
        if self.rights.reserve { QuotaClass::Owner } else { STRANGER }
    }

    pub fn reader(&self) -> Reader {
        Reader { user: self.credentials.uid, quota_class: self.quota_class() }
    }

    /// Number of the broker's descriptors that this connection holds, without those in its outbox.
    pub fn descriptors(&self) -> u64 {
        match self.role {
            Role::Engine(_) => Connection::DESCRIPTORS + Engine::DESCRIPTORS,
            Role::Ungreeted | Role::Observer => Connection::DESCRIPTORS,
        }
    }
}

/// The fate of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Sent,
    /// The broker sends the reply later and reads no request before that.
    Waits,
}
