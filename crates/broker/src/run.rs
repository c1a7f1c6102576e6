//! The runner: one thread, one epoll, around [`State`].
//!
//! Requests of one connection are handled in order. The events that a request causes are in their
//! streams before its reply is sent. What an engine sent before it died counts: its requests are
//! read to the end before it is declared gone.

use crate::clock;
use crate::close::Why;
use crate::connection::Connection;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::packet;
use crate::poll::{ConnectionId, Poll, Source};
use crate::state::State;
use crate::testament::Testament;
use crate::throttle::Throttle;
use baton_abi::control::{ProcessId, Stamps};
use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long none is accepted after one could not be.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Connections of one user that have not become engines: many engines may start at once.
const GUESTS: usize = 1024;

/// How a broker runs.
#[derive(Debug)]
pub struct Config {
    /// Where to listen. Root's broker serves everybody (directory 0755, socket 0666), another
    /// user's that user (0700, 0600). A path that others could replace is refused.
    pub socket: PathBuf,
    /// A listening SOCK_SEQPACKET socket that somebody else made (systemd), instead of `socket`.
    pub listener: Option<OwnedFd>,
    /// End when the last client is gone, after there was one.
    pub until_idle: bool,
    /// Contexts beside Android's three.
    pub contexts: Vec<String>,
    /// Ends the loop when it becomes readable or its other end is closed.
    pub stop: Option<OwnedFd>,
    /// Bounds.
    pub limits: Limits,
    /// How long the engines of a broker that was here before have to come back.
    pub grace: Duration,
    /// By user: the highest priority at which real-time callers are served, whatever RLIMIT_RTPRIO they
    /// have. 0 for none.
    pub real_time_limits: BTreeMap<u32, u32>,
}

/// For [`Config::grace`]: engines try once a second at least, and a machine may be busy.
pub const GRACE: Duration = Duration::from_secs(5);

impl Config {
    /// One that listens at `socket`, and nothing out of the ordinary.
    pub fn at(socket: impl Into<PathBuf>) -> Config {
        Config {
            socket: socket.into(),
            listener: None,
            until_idle: false,
            contexts: Vec::new(),
            stop: None,
            limits: Limits::default(),
            grace: GRACE,
            real_time_limits: BTreeMap::new(),
        }
    }
}

/// Why a broker could not run: the system's or the configuration's fault. Nothing that a peer
/// does ends a broker.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another broker has the socket.
    #[error("a broker is already listening at {}", .0.display())]
    AlreadyRunning(PathBuf),
    /// A context's name cannot be used.
    #[error("context name {0:?} is invalid or taken")]
    BadContext(String),
    /// A system call failed, or would have done something that must not be.
    #[error("{operation} {}: {errno}", path.display())]
    System {
        /// Which.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// How.
        errno: Errno,
    },
}

impl RunError {
    pub(crate) fn of(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> RunError {
        let path = path.to_owned();
        move |errno| RunError::System { operation, path, errno }
    }
}

/// Serves until it is stopped or idle. `ready` is called once it listens.
pub fn run(config: Config, ready: impl FnOnce()) -> Result<(), RunError> {
    let path = config.socket;
    raise_descriptor_limit();
    let poll = Poll::new().map_err(RunError::of("epoll_create", &path))?;
    let listener = match config.listener {
        Some(socket) => Listener::inherited(socket, &path)?,
        None => Listener::at(&path)?,
    };
    let testament = Testament::take_over(&path).map_err(RunError::of("make a key for", &path))?;
    let state = first_state(&testament, config.limits, &config.contexts)?;
    poll.add(listener.socket(), Source::Listener).map_err(RunError::of("epoll_ctl", &path))?;
    if let Some(stop) = &config.stop {
        poll.add(stop, Source::Stop).map_err(RunError::of("epoll_ctl", &path))?;
    }
    let mut broker = Broker::new(state, testament, poll, config.limits.queued_events);
    broker.real_time_limits = config.real_time_limits;
    if !broker.state.is_settled() {
        broker.settles = Instant::now().checked_add(config.grace);
    }
    ready();
    let result = broker.serve(listener, &path, config.until_idle);
    if broker.engines.is_empty() && broker.state.is_settled() {
        broker.testament.discard();
    }
    result
}

fn first_state(
    testament: &Testament,
    limits: Limits,
    contexts: &[String],
) -> Result<State, RunError> {
    let uid = rustix::process::geteuid().as_raw();
    let inherited = testament.is_inherited();
    let mut state = match inherited {
        true => State::succeed(limits, uid, testament.era(), testament.rules()),
        false => State::new(limits, uid),
    };
    for name in contexts {
        match state.add_context(0, name) {
            Err(Errno::EXIST) if inherited => {}
            added => added.map_err(|_| RunError::BadContext(name.clone()))?,
        }
    }
    Ok(state)
}

/// An engine costs four descriptors: two sockets, its front page and its pidfd.
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

fn time_until(time: Instant) -> Timespec {
    let left = time.saturating_duration_since(Instant::now());
    // Rounded up: a wait that ends early would be followed by many of no length.
    let nanoseconds = i64::from(left.subsec_nanos()).min(998_999_999) + 1_000_000;
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: nanoseconds }
}

pub(crate) struct Broker {
    pub state: State,
    pub testament: Testament,
    pub poll: Poll,
    pub connections: BTreeMap<ConnectionId, Connection>,
    pub engines: BTreeMap<ProcessId, ConnectionId>,
    /// Connections that are no engine's, by user.
    pub guests: BTreeMap<u32, usize>,
    pub buffer: Vec<u8>,
    /// Somebody greeted: the broker has been of use, and may be idle.
    pub had_client: bool,
    pub complaints: Throttle,
    pub queued_events: usize,
    pub stamps: Stamps,
    pub real_time_limits: BTreeMap<u32, u32>,
    pub warned_of_rank: bool,
    accepting: Accepting,
    /// When it is known who has not come back.
    settles: Option<Instant>,
    last_connection: u64,
}

/// Whether the listener is waited for.
#[derive(PartialEq)]
enum Accepting {
    Now,
    /// There was no descriptor or no memory for another connection.
    Later,
}

impl Broker {
    fn new(state: State, testament: Testament, poll: Poll, queued_events: usize) -> Broker {
        Broker {
            state,
            testament,
            poll,
            queued_events,
            stamps: clock::stamps(),
            connections: BTreeMap::new(),
            engines: BTreeMap::new(),
            guests: BTreeMap::new(),
            buffer: packet::buffer(),
            had_client: false,
            complaints: Throttle::default(),
            real_time_limits: BTreeMap::new(),
            warned_of_rank: false,
            accepting: Accepting::Now,
            settles: None,
            last_connection: 0,
        }
    }

    fn serve(
        &mut self,
        mut listener: Listener,
        path: &Path,
        until_idle: bool,
    ) -> Result<(), RunError> {
        loop {
            let paused = self.accepting == Accepting::Later;
            let pause = paused.then_some(ACCEPT_PAUSE);
            let events = self.poll.wait(pause.or(self.settles.map(time_until)).as_ref());
            for (source, hung_up) in events.map_err(RunError::of("epoll_wait", path))? {
                match source {
                    Source::Stop => {
                        if self.connections.is_empty() && self.state.is_settled() {
                            listener.leave_nothing();
                        }
                        return Ok(());
                    }
                    Source::Listener => self.accept(&listener, path)?,
                    Source::Requests(id) => self.read_next(id),
                    Source::Death(id) => self.died(id),
                    Source::Events(id) if hung_up => self.died(id),
                    Source::Events(id) => self.flush(id),
                }
            }
            if paused {
                self.poll
                    .add(listener.socket(), Source::Listener)
                    .map_err(RunError::of("epoll_ctl", path))?;
                self.accepting = Accepting::Now;
            }
            if self.settles.is_some_and(|time| time <= Instant::now()) {
                self.settle();
            }
            if until_idle && self.is_idle() {
                // Whoever connects from here on finds nobody and starts a broker of its own, which
                // waits for our lock. Whoever connected before is in the backlog, and is served.
                listener.hide();
                self.accept(&listener, path)?;
                if self.is_idle() {
                    listener.leave_nothing();
                    return Ok(());
                }
                listener.show()?;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.had_client && self.connections.is_empty() && self.state.is_settled()
    }

    fn settle(&mut self) {
        self.settles = None;
        let mut effects = Vec::new();
        self.state.settle(&mut effects);
        self.carry_out(effects, None);
    }

    /// Keeps the testament up to date.
    pub fn write_rules(&mut self) {
        let Some(rules) = self.state.changed_rules() else { return };
        let (engines, connections) = (&self.engines, &self.connections);
        self.testament.set_rules(rules, |rule| {
            let credentials = &connections.get(engines.get(&rule.manager?.0)?)?.credentials;
            Some((credentials.pid, credentials.started?))
        });
    }

    /// Accepts everybody who waits.
    fn accept(&mut self, listener: &Listener, path: &Path) -> Result<(), RunError> {
        loop {
            match listener.accept() {
                Ok(socket) => self.welcome(socket),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => (),
                Err(errno) => {
                    // Out of descriptors or memory. The listener would be ready all the time.
                    if let Some(unsaid) = self.complaints.admit(Instant::now()) {
                        tracing::warn!(%errno, unsaid, "cannot accept a connection now");
                    }
                    if self.accepting == Accepting::Now {
                        self.poll
                            .remove(listener.socket())
                            .map_err(RunError::of("epoll_ctl", path))?;
                        self.accepting = Accepting::Later;
                    }
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
        let added =
            self.poll.add_in_turn(&connection.socket, Source::Requests(id)).and_then(|()| {
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
