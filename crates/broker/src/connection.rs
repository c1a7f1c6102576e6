//! One accepted connection: a stranger until its first message says what it is.

use crate::front::Front;
use crate::outbox::Outbox;
use crate::peer::{self, Credentials};
use crate::throttle::Throttle;
use baton_abi::control::ProcessId;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

pub(crate) struct Connection {
    pub socket: OwnedFd,
    /// Readable when the process that connected has ended, even if another holds the socket.
    pub pidfd: Option<OwnedFd>,
    pub credentials: Credentials,
    pub role: Role,
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
    pub ranks_asked: Throttle,
}

impl Engine {
    /// Real-time lanes that it may ask for in a second: as many threads may start at once.
    const MOST_RANKS: u32 = 256;

    pub fn new(process: ProcessId, outbox: Outbox, front: Front) -> Engine {
        Engine { process, outbox, front, ranks_asked: Throttle::of(Engine::MOST_RANKS) }
    }
}

impl Connection {
    /// `ESRCH` if the process that connected is gone already.
    pub fn new(socket: OwnedFd) -> Result<Connection, Errno> {
        let credentials = peer::credentials(&socket)?;
        // None where the kernel has none: then only the socket tells of its end.
        let pid = Pid::from_raw(credentials.pid.cast_signed());
        let pidfd = match pid.map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(pidfd)) => Some(pidfd),
            Some(Err(Errno::NOSYS | Errno::PERM | Errno::INVAL)) | None => None,
            Some(Err(errno)) => return Err(errno),
        };
        Ok(Connection { socket, pidfd, credentials, role: Role::Stranger })
    }

    pub fn engine(&mut self) -> Option<&mut Engine> {
        match &mut self.role {
            Role::Engine(engine) => Some(engine),
            Role::Stranger | Role::Observer => None,
        }
    }
}
