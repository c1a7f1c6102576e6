//! An epoll whose entries are named by [`Source`].

use baton_shm::blocking::epoll_wait;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Number of one accepted connection. The broker never reuses a number, so a late report about a
/// closed connection finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub u64);

/// The origin of a readiness report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The listening socket.
    Listener,
    /// The descriptor of [`Config::stop`](crate::Config::stop).
    Stop,
    /// The socket of a connection has a request or was closed.
    Requests(ConnectionId),
    /// The process of a connection ended.
    Death(ConnectionId),
    /// An event socket has room, or its other end was closed.
    Events(ConnectionId),
}

impl Source {
    fn token(self) -> u64 {
        match self {
            Source::Listener => 0,
            Source::Stop => 1,
            Source::Requests(id) => id.0 << 2 | 1,
            Source::Death(id) => id.0 << 2 | 2,
            Source::Events(id) => id.0 << 2 | 3,
        }
    }

    /// Connection numbers begin with 1, so no token is ambiguous.
    fn from_token(token: u64) -> Source {
        let id = ConnectionId(token >> 2);
        match (token, token & 3) {
            (0, _) => Source::Listener,
            (1, _) => Source::Stop,
            (_, 1) => Source::Requests(id),
            (_, 2) => Source::Death(id),
            _ => Source::Events(id),
        }
    }
}

pub(crate) struct Poll {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
}

impl Poll {
    pub fn new() -> Result<Poll, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Poll { epoll, ready: Vec::with_capacity(64) })
    }

    /// Reports, level-triggered, that a descriptor is readable or closed by its other end.
    pub fn add(&self, descriptor: impl AsFd, source: Source) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(source.token()), EventFlags::IN)
    }

    /// Reports, edge-triggered, that a descriptor becomes readable, receives more, or is closed by
    /// its other end.
    pub fn add_edges(&self, descriptor: impl AsFd, source: Source) -> Result<(), Errno> {
        let data = EventData::new_u64(source.token());
        epoll::add(&self.epoll, descriptor, data, EventFlags::IN | EventFlags::ET)
    }

    /// Reports once that the other end was closed.
    pub fn add_hangup(&self, descriptor: impl AsFd, source: Source) -> Result<(), Errno> {
        let data = EventData::new_u64(source.token());
        epoll::add(&self.epoll, descriptor, data, EventFlags::ET)
    }

    /// Decides whether a descriptor of [`Poll::add_hangup`] is also reported when it has room and
    /// each time its other end has read.
    pub fn wait_for_room(
        &self,
        descriptor: impl AsFd,
        source: Source,
        wanted: bool,
    ) -> Result<(), Errno> {
        let room = if wanted { EventFlags::OUT } else { EventFlags::empty() };
        let data = EventData::new_u64(source.token());
        epoll::modify(&self.epoll, descriptor, data, room | EventFlags::ET)
    }

    pub fn remove(&self, descriptor: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, descriptor)
    }

    /// Waits for readiness for at most `at_most`. Returns the ready sources in the kernel's order,
    /// each with whether it hung up. An interrupted wait returns none.
    pub fn wait(&mut self, at_most: Option<&Timespec>) -> Result<Vec<(Source, bool)>, Errno> {
        self.ready.clear();
        match epoll_wait(&self.epoll, &mut self.ready, at_most) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
        let hung_up = EventFlags::HUP | EventFlags::ERR;
        Ok(self
            .ready
            .iter()
            .map(|event| {
                let (data, flags) = (event.data, event.flags);
                (Source::from_token(data.u64()), flags.intersects(hung_up))
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_encode_every_source() {
        let id = ConnectionId(7);
        for source in [
            Source::Listener,
            Source::Stop,
            Source::Requests(ConnectionId(1)),
            Source::Requests(id),
            Source::Death(id),
            Source::Events(id),
        ] {
            assert_eq!(Source::from_token(source.token()), source);
        }
    }
}
