//! One accepted connection: a stranger until its first message says what it is.

use crate::front::Front;
use crate::limits::Rights;
use crate::outbox::{Outbox, Reader};
use crate::peer::{self, Credentials};
use crate::throttle::Throttle;
use baton_abi::control::ProcessId;
use baton_abi::quota::{STRANGER, Standing};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

pub(crate) struct Connection {
    pub socket: OwnedFd,
    /// Readable when the process that connected has ended, even if another holds the socket.
    pub pidfd: Option<OwnedFd>,
    pub credentials: Credentials,
    /// The configuration's word on the process.
    pub rights: Rights,
    pub role: Role,
    /// Its process has ended: so many more requests are read that it may have left.
    pub leaving: Option<u32>,
    /// A reply that could not be sent yet. Until it is, no request is read.
    pub unsent: Option<Unsent>,
}

pub(crate) struct Unsent {
    pub bytes: Vec<u8>,
    pub descriptor: Option<OwnedFd>,
    /// The connection ends with it.
    pub refusal: Option<Errno>,
    /// How often its peer's queue was full.
    pub n_full: u32,
}

pub(crate) enum Role {
    /// Has said nothing yet.
    Stranger,
    /// Only looks.
    Observer,
    /// An opened device.
    Engine(Box<Engine>),
}

pub(crate) struct Engine {
    pub process: ProcessId,
    pub outbox: Outbox,
    pub front: Front,
    /// Real-time lanes that it has asked for.
    pub priorities_asked: Throttle,
    /// The broker waits for room in the event socket.
    pub waits_for_room: bool,
}

impl Engine {
    /// Real-time lanes that it may ask for in a second: as many threads may start at once.
    const MOST_PRIORITIES: u32 = 256;
    /// Of the broker's descriptors, besides its connection's: its event socket and its front page.
    pub const DESCRIPTORS: u64 = 2;

    pub fn new(process: ProcessId, outbox: Outbox, front: Front) -> Engine {
        let priorities_asked = Throttle::of(Engine::MOST_PRIORITIES);
        Engine { process, outbox, front, priorities_asked, waits_for_room: false }
    }
}

impl Connection {
    /// Of the broker's descriptors: the socket and the pidfd.
    pub const DESCRIPTORS: u64 = 2;

    /// `ESRCH` if the process that connected is gone already. The socket comes back with an error.
    pub fn new(
        socket: OwnedFd,
        rights: impl FnOnce(&Credentials) -> Rights,
    ) -> Result<Connection, (OwnedFd, Errno)> {
        let peer = peer::credentials(&socket).and_then(|credentials| {
            let pidfd = peer::pidfd(&socket, &credentials)?;
            Ok((credentials, pidfd))
        });
        let (credentials, pidfd) = match peer {
            Ok(peer) => peer,
            Err(errno) => return Err((socket, errno)),
        };
        let rights = rights(&credentials);
        let (role, leaving, unsent) = (Role::Stranger, None, None);
        Ok(Connection { socket, pidfd, credentials, rights, role, leaving, unsent })
    }

    pub fn engine(&mut self) -> Option<&mut Engine> {
        match &mut self.role {
            Role::Engine(engine) => Some(engine),
            Role::Stranger | Role::Observer => None,
        }
    }

    /// Where its user stands that takes of what the broker shares out.
    pub fn standing(&self) -> Standing {
        if self.rights.reserve { Standing::Owner } else { STRANGER }
    }

    pub fn reader(&self) -> Reader {
        Reader { user: self.credentials.uid, standing: self.standing() }
    }

    /// How many of the broker's descriptors it has, besides those that wait in its outbox.
    pub fn descriptors(&self) -> u64 {
        match self.role {
            Role::Engine(_) => Connection::DESCRIPTORS + Engine::DESCRIPTORS,
            Role::Stranger | Role::Observer => Connection::DESCRIPTORS,
        }
    }
}
