//! The runner: one thread, one epoll, around [`State`].
//!
//! Requests of one connection are handled in order. The events that a request causes are in their
//! streams before its reply is sent. What an engine sent before it died counts: its requests are
//! read to the end before it is declared gone.

use crate::close::Why;
use crate::config::{Config, Lifetime, Stop};
use crate::connection::Connection;
use crate::error::Error;
use crate::listener::Listener;
use crate::packet;
use crate::poll::{ConnectionId, Poll, Source};
use crate::signals::Signals;
use crate::state::{Limits, State};
use crate::throttle::Throttle;
use baton_abi::control::ProcessId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Requests of one connection before the others get their turn.
const BURST: usize = 32;
/// Connections of one user that have not become engines: many engines may start at once.
const GUESTS: usize = 1024;

/// Serves until it is stopped, or idle if the configuration says so.
///
/// An error is the system's or the configuration's fault; nothing that an engine does ends it.
pub fn run(config: Config) -> Result<(), Error> {
    let Config { listen, lifetime, stop, limits, ready } = config;
    raise_descriptor_limit();
    let signals;
    let stop = match &stop {
        Stop::Readable(descriptor) => descriptor.as_fd(),
        Stop::Signals => {
            signals = Signals::catch()?;
            signals.readable.as_fd()
        }
    };
    let poll = Poll::new().map_err(Error::system("epoll_create"))?;
    let listener = Listener::open(listen)?;
    poll.add(stop, Source::Stop).map_err(Error::system("epoll_ctl"))?;
    poll.add(listener.socket(), Source::Listener).map_err(Error::system("epoll_ctl"))?;
    let mut broker = Broker::new(poll, limits);
    ready();
    broker.serve(listener, lifetime)
}

/// An engine costs four descriptors: two sockets, its front page and its pidfd.
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

pub(crate) struct Broker {
    pub state: State,
    pub poll: Poll,
    pub connections: BTreeMap<ConnectionId, Connection>,
    pub engines: BTreeMap<ProcessId, ConnectionId>,
    /// Connections that are no engine's, by user.
    pub guests: BTreeMap<u32, usize>,
    pub buffer: Vec<u8>,
    /// Somebody greeted: the broker has been of use, and may be idle.
    pub had_client: bool,
    pub complaints: Throttle,
    accepting: Accepting,
    last_connection: u64,
}

/// Whether the listener is waited for.
#[derive(PartialEq)]
enum Accepting {
    Yes,
    /// Not until a connection closes: there is no descriptor for another.
    Exhausted,
}

impl Broker {
    fn new(poll: Poll, limits: Limits) -> Broker {
        Broker {
            state: State::new(rustix::process::geteuid().as_raw(), limits),
            poll,
            connections: BTreeMap::new(),
            engines: BTreeMap::new(),
            guests: BTreeMap::new(),
            buffer: packet::buffer(),
            had_client: false,
            complaints: Throttle::default(),
            accepting: Accepting::Yes,
            last_connection: 0,
        }
    }

    fn serve(&mut self, mut listener: Listener, lifetime: Lifetime) -> Result<(), Error> {
        loop {
            let connections = self.connections.len();
            for (source, hung_up) in self.poll.wait().map_err(Error::system("epoll_wait"))? {
                match source {
                    Source::Stop => return Ok(()),
                    Source::Listener => self.accept(&listener)?,
                    Source::Requests(id) => self.read(id, BURST),
                    Source::Death(id) => self.died(id),
                    Source::Events(id) if hung_up => self.died(id),
                    Source::Events(id) => self.flush(id),
                }
            }
            if self.accepting == Accepting::Exhausted && self.connections.len() < connections {
                self.poll
                    .add(listener.socket(), Source::Listener)
                    .map_err(Error::system("epoll_ctl"))?;
                self.accepting = Accepting::Yes;
            }
            if lifetime == Lifetime::UntilIdle && self.is_idle() {
                // Whoever connects from here on finds nobody and starts a broker of its own, which
                // waits for our lock. Whoever connected before is in the backlog, and is served.
                listener.hide();
                self.accept(&listener)?;
                if self.is_idle() {
                    return Ok(());
                }
                listener.show()?;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.had_client && self.connections.is_empty()
    }

    /// Accepts everybody who waits.
    fn accept(&mut self, listener: &Listener) -> Result<(), Error> {
        loop {
            match listener.accept() {
                Ok(socket) => self.welcome(socket),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => (),
                Err(errno) => {
                    // Out of descriptors or memory: the listener would be ready all the time.
                    tracing::warn!(%errno, "cannot accept a connection until one closes");
                    self.poll.remove(listener.socket()).map_err(Error::system("epoll_ctl"))?;
                    self.accepting = Accepting::Exhausted;
                    return Ok(());
                }
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let connection = match Connection::new(socket) {
            Ok(connection) => connection,
            Err(errno) => return tracing::debug!(%errno, "a connection ended before it began"),
        };
        let guests = self.guests.entry(connection.credentials.uid).or_default();
        if *guests >= GUESTS {
            return self.complain(&connection.credentials, &Why::Crowd);
        }
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        let added = self.poll.add(&connection.socket, Source::Requests(id)).and_then(|()| {
            connection.pidfd.as_ref().map_or(Ok(()), |fd| self.poll.add(fd, Source::Death(id)))
        });
        match added {
            Ok(()) => {
                *guests += 1;
                self.connections.insert(id, connection);
            }
            Err(errno) => tracing::warn!(%errno, "cannot wait for a connection"),
        }
    }
}
