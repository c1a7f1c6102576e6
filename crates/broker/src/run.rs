//! The runner: one thread, one epoll, around [`State`].
//!
//! Requests of one connection are handled in order, those of different users in turn. The events
//! that a request causes are in their streams before its reply is sent. What an engine sent before
//! it died counts: its requests are read to the end before it is declared gone.

use crate::clock;
use crate::close::Why;
use crate::connection::Connection;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::memory::Used;
use crate::outbox::Reader;
use crate::pace::Pace;
use crate::packet;
use crate::peer::Credentials;
use crate::policy::Policy;
use crate::poll::{ConnectionId, Poll, Source};
use crate::restart_state::RestartState;
use crate::shortage::is_shortage;
use crate::state::{CONTEXTS, State};
use crate::throttle::Throttle;
use crate::turns::Turns;
use baton_abi::control::{ProcessId, Stamps};
use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long none is accepted after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long nothing is sent to those for whom others have to read first.
const CROWDED_PAUSE: Duration = Duration::from_millis(10);
/// Connections that are accepted, and the cost of turns that are taken, before it is seen who else
/// has come.
const AT_ONCE: usize = 16;
/// Engines of which it is found out at once whether they have read what they were sent.
pub(crate) const SETTLED_AT_ONCE: usize = 256;

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
    /// By user: the highest priority at which real-time callers are served, whatever RLIMIT_RTPRIO
    /// they have. 0 for none.
    pub real_time_limits: BTreeMap<u32, u32>,
    /// The configuration of budgets and of managers.
    pub policy: Policy,
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
            policy: Policy::default(),
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
    let descriptors = raise_descriptor_limit();
    let poll = Poll::new().map_err(RunError::of("epoll_create", &path))?;
    let listener = match config.listener {
        Some(socket) => Listener::inherited(socket, &path)?,
        None => Listener::at(&path)?,
    };
    let restart_state =
        RestartState::take_over(&path).map_err(RunError::of("make a key for", &path))?;
    let named = config.policy.contexts().filter(|name| !CONTEXTS.contains(name));
    let contexts: BTreeSet<&str> =
        named.chain(config.contexts.iter().map(String::as_str)).collect();
    let state = first_state(&restart_state, config.limits, &contexts)?;
    poll.add(listener.socket(), Source::Listener).map_err(RunError::of("epoll_ctl", &path))?;
    if let Some(stop) = &config.stop {
        poll.add(stop, Source::Stop).map_err(RunError::of("epoll_ctl", &path))?;
    }
    let ledger = Ledger::new(&config.limits, descriptors);
    let mut broker = Broker::new(state, restart_state, poll, ledger, config.limits);
    broker.real_time_limits = config.real_time_limits;
    broker.policy = config.policy;
    if !broker.state.is_settled() {
        broker.settles = Instant::now().checked_add(config.grace);
    }
    ready();
    let result = broker.serve(listener, &path, config.until_idle);
    if broker.engines.is_empty() && broker.state.is_settled() {
        broker.restart_state.discard();
    }
    result
}

fn first_state(
    restart_state: &RestartState,
    limits: Limits,
    contexts: &BTreeSet<&str>,
) -> Result<State, RunError> {
    let uid = own_uid();
    let inherited = restart_state.is_inherited();
    let mut state = match inherited {
        true => State::succeed(limits, uid, restart_state.era(), restart_state.rules()),
        false => State::new(limits, uid),
    };
    for name in contexts {
        match state.add_context(0, name) {
            Err(Errno::EXIST) if inherited => {}
            added => added.map_err(|_| RunError::BadContext((*name).to_owned()))?,
        }
    }
    Ok(state)
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// How many descriptors the broker may have. An engine costs four: two sockets, its front page and
/// its pidfd.
fn raise_descriptor_limit() -> u64 {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    // Nobody has asked for no bound at all.
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20)
}

fn timespec(time: Duration) -> Timespec {
    // Rounded up: a wait that ends early would be followed by many of no length.
    let nanoseconds = i64::from(time.subsec_nanos()).min(998_999_999) + 1_000_000;
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: nanoseconds }
}

pub(crate) struct Broker {
    pub state: State,
    pub restart_state: RestartState,
    pub poll: Poll,
    pub connections: BTreeMap<ConnectionId, Connection>,
    pub engines: BTreeMap<ProcessId, ConnectionId>,
    /// Connections that are no engine's, by user, the oldest first.
    pub guests: BTreeMap<u32, BTreeSet<ConnectionId>>,
    pub turns: Turns,
    pub pace: Pace,
    pub ledger: Ledger,
    pub limits: Limits,
    pub policy: Policy,
    /// Engines that wait until others have read.
    pub crowded: BTreeSet<ConnectionId>,
    /// Connections whose reply could not be sent yet.
    pub unanswered: BTreeSet<ConnectionId>,
    /// The cost, so far, of the turn that is being taken.
    pub cost: u64,
    pub used: Used,
    pub buffer: Vec<u8>,
    /// Somebody greeted: the broker has been of use, and may be idle.
    pub had_client: bool,
    pub complaints: Throttle,
    pub stamps: Stamps,
    pub real_time_limits: BTreeMap<u32, u32>,
    pub warned_of_priority: bool,
    accepting: Accepting,
    /// A connection that was accepted when the system lacked what it takes to serve it.
    unwelcomed: Option<OwnedFd>,
    /// When it is known who has not come back.
    settles: Option<Instant>,
    last_connection: u64,
    /// The last engine of which it was found out what it has read.
    last_settled: ProcessId,
    /// The last of `crowded` that was looked at.
    last_crowded: ConnectionId,
}

/// Whether the listener is waited for.
#[derive(PartialEq)]
enum Accepting {
    Now,
    /// There was no descriptor or no memory for another connection.
    Later,
}

impl Broker {
    fn new(
        state: State,
        restart_state: RestartState,
        poll: Poll,
        ledger: Ledger,
        limits: Limits,
    ) -> Broker {
        Broker {
            state,
            restart_state,
            poll,
            ledger,
            limits,
            stamps: clock::stamps(),
            connections: BTreeMap::new(),
            engines: BTreeMap::new(),
            guests: BTreeMap::new(),
            turns: Turns::default(),
            pace: Pace::default(),
            policy: Policy::default(),
            crowded: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            cost: 0,
            used: Used::default(),
            buffer: packet::buffer(),
            had_client: false,
            complaints: Throttle::default(),
            real_time_limits: BTreeMap::new(),
            warned_of_priority: false,
            accepting: Accepting::Now,
            unwelcomed: None,
            settles: None,
            last_connection: 0,
            last_settled: ProcessId::BROKER,
            last_crowded: ConnectionId(0),
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
            let events = self.poll.wait(self.pause().map(timespec).as_ref());
            for (source, hung_up) in events.map_err(RunError::of("epoll_wait", path))? {
                match source {
                    Source::Stop => {
                        if self.connections.is_empty() && self.state.is_settled() {
                            listener.leave_nothing();
                        }
                        return Ok(());
                    }
                    Source::Listener => self.accept(&listener, path, AT_ONCE)?,
                    Source::Requests(id) => self.add_turn(id),
                    Source::Death(id) => self.leaves(id),
                    Source::Events(id) if hung_up => self.leaves(id),
                    Source::Events(id) => self.flush(id),
                }
            }
            if !self.crowded.is_empty() {
                self.flush_crowded();
            }
            self.answer_later();
            for id in self.pace.rested(Instant::now()) {
                self.add_turn(id);
            }
            let mut cost = 0;
            while cost < AT_ONCE as u64 {
                let Some(id) = self.turns.next() else {
                    self.used.give_back(Instant::now());
                    break;
                };
                cost += self.take_turn(id);
            }
            // It is tried again after the next pause.
            if paused && self.poll.add(listener.socket(), Source::Listener).is_ok() {
                self.accepting = Accepting::Now;
                // It is accepted, and the listener knows no more of it.
                if self.unwelcomed.is_some() {
                    self.accept(&listener, path, 1)?;
                }
            }
            if self.settles.is_some_and(|time| time <= Instant::now()) {
                self.settle();
            }
            if until_idle && self.is_idle() {
                // Whoever connects from here on finds nobody and starts a broker of its own, which
                // waits for our lock. Whoever connected before is in the backlog, and is served.
                listener.hide();
                self.accept(&listener, path, usize::MAX)?;
                if self.is_idle() {
                    listener.leave_nothing();
                    return Ok(());
                }
                listener.show()?;
            }
        }
    }

    /// How long to wait for what comes next. `None`: until it comes.
    fn pause(&self) -> Option<Duration> {
        if !self.turns.is_empty() {
            return Some(Duration::ZERO);
        }
        let accept = (self.accepting == Accepting::Later).then_some(ACCEPT_PAUSE);
        let waits = !self.crowded.is_empty() || !self.unanswered.is_empty();
        let crowded = waits.then_some(CROWDED_PAUSE);
        let settles = self.settles.map(|time| time.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        let (rested, quiet) = (self.pace.next(now), self.used.due(now));
        [accept, crowded, settles, rested, quiet].into_iter().flatten().min()
    }

    /// Whether engines of the broker before may still come back: they have little time.
    pub fn awaits_engines(&self) -> bool {
        self.settles.is_some()
    }

    fn is_idle(&self) -> bool {
        self.had_client && self.connections.is_empty() && self.state.is_settled()
    }

    fn settle(&mut self) {
        self.settles = None;
        let mut effects = Vec::new();
        self.state.settle(&mut effects);
        self.carry_out(own_uid(), effects, None);
    }

    /// Keeps the restart_state up to date.
    pub fn write_rules(&mut self) {
        let Some(rules) = self.state.changed_rules() else { return };
        let (engines, connections) = (&self.engines, &self.connections);
        self.restart_state.set_rules(rules, |rule| {
            let credentials = &connections.get(engines.get(&rule.manager?.0)?)?.credentials;
            Some((credentials.pid, credentials.started?))
        });
    }

    /// Accepts those who wait, so many at the most.
    fn accept(&mut self, listener: &Listener, path: &Path, at_most: usize) -> Result<(), RunError> {
        for _ in 0..at_most {
            let waiting = self.unwelcomed.take();
            let welcomed = waiting.map_or_else(|| listener.accept(), Ok);
            match welcomed.and_then(|socket| self.welcome(socket)) {
                Ok(()) => {}
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
        Ok(())
    }

    /// An error is the system's shortage, and the connection is kept until it is tried again.
    fn welcome(&mut self, socket: OwnedFd) -> Result<(), Errno> {
        let rights = |who: &Credentials| self.policy.rights(who, own_uid());
        let connection = match Connection::new(socket, rights) {
            Ok(connection) => connection,
            Err((socket, errno)) if is_shortage(errno) => {
                self.unwelcomed = Some(socket);
                return Err(errno);
            }
            Err((_, errno)) => {
                tracing::debug!(%errno, "a connection ended before it began");
                return Ok(());
            }
        };
        let Reader { user, standing } = connection.reader();
        let room = |broker: &Broker| {
            broker.ledger.descriptors.check(user, standing, Connection::DESCRIPTORS)
        };
        // Whoever has been here longest without a word makes room for the user's next one.
        if room(self).is_err()
            && let Some(oldest) = self.guests.get(&user).and_then(BTreeSet::first)
        {
            self.close(*oldest, Why::Crowd);
        }
        if room(self).is_err() {
            self.complain(&connection.credentials, &Why::Crowd);
            return Ok(());
        }
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        let added = self.poll.add_edges(&connection.socket, Source::Requests(id)).and_then(|()| {
            connection
                .pidfd
                .as_ref()
                .map_or(Ok(()), |fd| self.poll.add_edges(fd, Source::Death(id)))
        });
        match added {
            Ok(()) => {
                self.guests.entry(user).or_default().insert(id);
                self.ledger.descriptors.take(user, Connection::DESCRIPTORS);
                self.connections.insert(id, connection);
                Ok(())
            }
            Err(errno) if is_shortage(errno) => {
                // In the epoll its number means nothing, and it is not to be in there twice.
                let _ = self.poll.remove(&connection.socket);
                self.unwelcomed = Some(connection.socket);
                Err(errno)
            }
            Err(errno) => {
                tracing::warn!(%errno, "cannot wait for a connection");
                Ok(())
            }
        }
    }

    /// Sends what waits for others to read, as far as they have.
    fn flush_crowded(&mut self) {
        self.settle_some();
        let after = (Bound::Excluded(self.last_crowded), Bound::Unbounded);
        let next: Vec<_> = self.crowded.range(after).take(SETTLED_AT_ONCE).copied().collect();
        self.last_crowded = next.last().copied().unwrap_or(ConnectionId(0));
        for id in next {
            self.flush(id);
        }
    }

    /// Finds out what some engines have read, the next ones each time.
    fn settle_some(&mut self) {
        let after = (Bound::Excluded(self.last_settled), Bound::Unbounded);
        let next: Vec<_> = self.engines.range(after).take(SETTLED_AT_ONCE).collect();
        self.last_settled = next.last().map_or(ProcessId::BROKER, |(process, _)| **process);
        for (_, id) in next {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            let reader = connection.reader();
            if let Some(engine) = connection.engine() {
                engine.outbox.settle(reader, &mut self.ledger);
            }
        }
    }
}
