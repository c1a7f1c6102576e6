//! The runner: one thread, one epoll, around [`State`].
//!
//! The broker handles the requests of one connection in order and those of different users in turn.
//! It sends the events that a request causes before the reply. Requests that an engine sent before
//! it died still count: the broker reads them to the end, then declares the engine dead.

use crate::clock::{self, now, processor_time};
use crate::close_reason::CloseReason;
use crate::closing::{self, ForeignFiles, PeerSocket};
use crate::connection::Connection;
use crate::cpu_share::CpuShare;
use crate::fair_queue::FairQueue;
use crate::ledger::{LEAST_DESCRIPTORS, Ledger, Reader};
use crate::limits::Limits;
use crate::listener::Listener;
use crate::packet;
use crate::peer::{Credentials, LastPeer, LastServed};
use crate::policy::Policy;
use crate::poll::{ConnectionId, Poll, Source};
use crate::restart_state::RestartState;
use crate::resting::RestingConnections;
use crate::run_error::RunError;
use crate::shortage::is_shortage;
use crate::state::{CONTEXTS, State};
use crate::throttle::Throttle;
use crate::trim::TrimTimer;
use baton_abi::control::{ProcessId, Stamps};
use baton_abi::quota::{QuotaClass, STRANGER};
use baton_shm::socket::peer_credentials;
use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pause before the broker accepts connections again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Pause before the next attempt to send to engines whose events wait for other engines to read.
const BLOCKED_PAUSE: Duration = Duration::from_millis(10);
/// Pause before the next look at processes that may have ended before they rejoin.
const REJOIN_PAUSE: Duration = Duration::from_millis(100);
/// Connections that the broker accepts, and the cost of requests that it serves, before it polls
/// again.
const AT_ONCE: usize = 16;
/// Outboxes and unsent replies that the broker looks at in one round.
pub(crate) const OUTBOXES_AT_ONCE: usize = 256;

/// The configuration of a broker.
#[derive(Debug)]
pub struct Config {
    /// Path of the socket. The broker of root serves every user (directory 0755, socket 0666), the
    /// broker of another user only that user (0700, 0600). The broker refuses a path that others
    /// could replace.
    pub socket: PathBuf,
    /// A listening SOCK_SEQPACKET socket that systemd or another program made; the broker then
    /// makes none.
    pub listener: Option<OwnedFd>,
    /// Whether the broker ends when its last client is gone.
    pub until_idle: bool,
    /// Names of contexts beside Android's three.
    pub contexts: Vec<String>,
    /// The broker ends when this descriptor becomes readable or its other end is closed.
    pub stop: Option<OwnedFd>,
    /// Limits of what processes and users may have.
    pub limits: Limits,
    /// Time that the engines of a previous broker have to rejoin. It ends when all that live have.
    pub grace: Duration,
    /// By user id: the highest priority at which real-time callers are served, whatever their
    /// RLIMIT_RTPRIO. 0 means none.
    pub real_time_limits: BTreeMap<u32, u32>,
    /// The administrator's rules about users' amounts and context managers.
    pub policy: Policy,
}

/// Default of [`Config::grace`]. Engines try to reconnect at least once a second, and the machine
/// may be busy.
pub const GRACE: Duration = Duration::from_secs(5);

impl Config {
    /// A configuration that listens at `socket` and has defaults for everything else.
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

/// Serves until [`Config::stop`] or idleness ends the broker. Calls `ready` once the broker
/// listens. A successor at this path takes over the engines that are still connected.
pub fn run(config: Config, ready: impl FnOnce()) -> Result<(), RunError> {
    let path = config.socket;
    // An engine costs five: two sockets, its status page, its tally page and its pidfd.
    let descriptors = baton_shm::fd_limit::raise();
    if descriptors < LEAST_DESCRIPTORS {
        return Err(RunError::FewDescriptors { limit: descriptors });
    }
    let poll = Poll::new().map_err(RunError::of("epoll_create", &path))?;
    let mut listener = match config.listener {
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
    if !broker.state.is_rejoin_over() {
        broker.rejoin_deadline = now().checked_add(config.grace);
    }
    ready();
    let result = broker.serve(&mut listener, &path, config.until_idle);
    if broker.engines.is_empty() && broker.state.is_rejoin_over() {
        // Before the path is free: from then on the file is the next broker's.
        broker.restart_state.discard();
    }
    drop(listener);
    result
}

/// The state at the start: empty, or with the contexts that a previous broker left.
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

fn timespec(time: Duration) -> Timespec {
    // Rounded up: a wait that ended early would be followed by many waits of length zero.
    let more = if time.is_zero() { 0 } else { 1_000_000 };
    let nanoseconds = i64::from(time.subsec_nanos()).min(998_999_999) + more;
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: nanoseconds }
}

pub(crate) struct Broker {
    pub state: State,
    pub restart_state: RestartState,
    pub poll: Poll,
    pub connections: BTreeMap<ConnectionId, Connection>,
    pub engines: BTreeMap<ProcessId, ConnectionId>,
    /// Connections that are no engine's, by user; the oldest comes first.
    pub non_engines: BTreeMap<u32, BTreeSet<ConnectionId>>,
    pub queue: FairQueue,
    pub cpu_share: CpuShare,
    pub ledger: Ledger,
    /// Files that are being closed.
    pub foreign_files: ForeignFiles,
    pub limits: Limits,
    pub policy: Policy,
    /// Connections of engines whose events wait until other engines have read theirs.
    pub blocked: BTreeSet<ConnectionId>,
    /// Connections whose reply could not be sent yet.
    pub unanswered: BTreeSet<ConnectionId>,
    /// The cost, so far, of the request that is being served.
    pub cost: u64,
    pub trim_timer: TrimTimer,
    pub buffer: Vec<u8>,
    /// Whether any client has sent a greeting. A broker without clients ends only after that.
    pub had_client: bool,
    pub log_throttle: Throttle,
    pub stamps: Stamps,
    pub real_time_limits: BTreeMap<u32, u32>,
    pub warned_of_priority: bool,
    accepting: Accepting,
    resting: RestingConnections,
    /// An accepted socket that the broker could not serve yet for lack of resources.
    unserved_socket: Option<PeerSocket>,
    /// The time at which engines of the previous broker that have not rejoined count as dead.
    rejoin_deadline: Option<Instant>,
    last_connection: u64,
    last_peer: LastPeer,
    /// The process whose device another one served last.
    pub last_served: LastServed,
    /// The engine whose unread descriptors were counted last.
    last_recounted: ProcessId,
    /// The last entry of `blocked` that was looked at.
    last_blocked: ConnectionId,
}

/// Whether the epoll contains the listening socket.
#[derive(PartialEq)]
enum Accepting {
    Now,
    /// No: descriptors or memory were lacking for the last connection, or many wait to be closed.
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
            non_engines: BTreeMap::new(),
            queue: FairQueue::default(),
            cpu_share: CpuShare::default(),
            foreign_files: ForeignFiles::default(),
            policy: Policy::default(),
            blocked: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            cost: 0,
            trim_timer: TrimTimer::default(),
            buffer: packet::buffer(),
            had_client: false,
            log_throttle: Throttle::default(),
            real_time_limits: BTreeMap::new(),
            warned_of_priority: false,
            accepting: Accepting::Now,
            resting: RestingConnections::default(),
            unserved_socket: None,
            rejoin_deadline: None,
            last_connection: 0,
            last_peer: LastPeer::default(),
            last_served: LastServed::default(),
            last_recounted: ProcessId::BROKER,
            last_blocked: ConnectionId(0),
        }
    }

    fn serve(
        &mut self,
        listener: &mut Listener,
        path: &Path,
        until_idle: bool,
    ) -> Result<(), RunError> {
        loop {
            let paused = self.accepting == Accepting::Later;
            let events = self.poll.wait(self.pause().map(timespec).as_ref());
            for (source, hung_up) in events.map_err(RunError::of("epoll_wait", path))? {
                match source {
                    Source::Stop => {
                        if self.connections.is_empty() && self.state.is_rejoin_over() {
                            listener.remove_devices_at_end();
                        }
                        return Ok(());
                    }
                    Source::Listener => self.accept(listener, path, AT_ONCE)?,
                    Source::Requests(id) => self.enqueue(id),
                    Source::Death(id) => self.process_exited(id),
                    Source::Events(id) if hung_up => self.process_exited(id),
                    Source::Events(id) => self.flush(id),
                }
            }
            if !self.blocked.is_empty() {
                self.flush_blocked();
            }
            self.send_unsent_replies();
            for id in self.cpu_share.take_resumed(now()) {
                self.enqueue(id);
            }
            // A socket that could not be served goes first.
            if self.unserved_socket.is_none() && self.add_rested().is_err() {
                self.pause_accepting(listener, path)?;
            }
            let mut cost = 0;
            while cost < AT_ONCE as u64 {
                let Some(id) = self.queue.next() else {
                    self.trim_timer.trim_if_idle(now());
                    break;
                };
                cost += self.serve_next_request(id);
            }
            // If this fails, the broker tries again after the next pause.
            if paused && self.poll.add(listener.socket(), Source::Listener).is_ok() {
                self.accepting = Accepting::Now;
                // The listener no longer reports a socket that was already accepted.
                if self.unserved_socket.is_some() {
                    self.accept(listener, path, 1)?;
                }
            }
            if self.rejoin_deadline.is_some_and(|time| time <= now() || self.all_are_back()) {
                self.end_rejoin();
            }
            if until_idle && self.is_idle() {
                // A client that connects from here on finds no broker and starts one, which waits
                // for this broker's lock. A client that connected before is in the backlog and is
                // served.
                listener.hide();
                self.accept(listener, path, usize::MAX)?;
                if self.is_idle() {
                    listener.remove_devices_at_end();
                    return Ok(());
                }
                listener.show()?;
            }
        }
    }

    /// The longest time to wait for the next event. `None`: without limit.
    fn pause(&self) -> Option<Duration> {
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let accept = (self.accepting == Accepting::Later).then_some(ACCEPT_PAUSE);
        let waits = !self.blocked.is_empty() || !self.unanswered.is_empty();
        let blocked = waits.then_some(BLOCKED_PAUSE);
        let rejoin_left = |time: Instant| time.saturating_duration_since(now()).min(REJOIN_PAUSE);
        let rejoin_left = self.rejoin_deadline.map(rejoin_left);
        let now = now();
        let (rested, quiet) = (self.cpu_share.next_resume(now), self.trim_timer.due(now));
        let rest_left = |user| self.cpu_share.pause_left(user, now).unwrap_or_default();
        let goes_on = self.resting.users().map(rest_left).min();
        // A shortage lets none of them go on.
        let goes_on = goes_on.filter(|_| self.unserved_socket.is_none());
        [accept, blocked, rejoin_left, rested, goes_on, quiet].into_iter().flatten().min()
    }

    /// Whether engines of the previous broker may still rejoin. Their time is short, so users are
    /// not paused meanwhile.
    pub fn awaits_engines(&self) -> bool {
        self.rejoin_deadline.is_some()
    }

    /// Whether the broker has had clients and nothing is left to do.
    fn is_idle(&self) -> bool {
        let has_none = self.connections.is_empty() && self.resting.users().next().is_none();
        self.had_client && has_none && self.state.is_rejoin_over()
    }

    /// Whether all engines of the previous broker that live have rejoined.
    fn all_are_back(&mut self) -> bool {
        self.restart_state.processes.all_settled(|process| !self.state.is_awaited(process))
    }

    /// Ends the time for rejoining and carries out what follows.
    fn end_rejoin(&mut self) {
        self.rejoin_deadline = None;
        self.restart_state.processes.end_rejoin(|process| self.engines.contains_key(&process));
        let mut effects = Vec::new();
        self.state.end_rejoin(&mut effects);
        self.carry_out(own_uid(), effects, None);
    }

    /// Writes the contexts' rules into the restart state if they have changed.
    pub fn write_rules(&mut self) {
        let Some(rules) = self.state.changed_rules() else { return };
        let (engines, connections) = (&self.engines, &self.connections);
        self.restart_state.set_rules(rules, |rule| {
            let credentials = &connections.get(engines.get(&rule.manager?.0)?)?.credentials;
            Some((credentials.pid, credentials.incarnation?))
        });
    }

    /// Accepts at most `at_most` of the connections that wait.
    fn accept(&mut self, listener: &Listener, path: &Path, at_most: usize) -> Result<(), RunError> {
        for _ in 0..at_most {
            if closing::has_many_unfinished() {
                return self.pause_accepting(listener, path);
            }
            let waiting = self.unserved_socket.take();
            let may_lack = self.ledger.may_lack_descriptors();
            let welcomed =
                waiting.map_or_else(|| listener.accept(may_lack).map(PeerSocket::new), Ok);
            match welcomed.and_then(|socket| self.welcome(socket)) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => (),
                Err(errno) => {
                    // Descriptors or memory are lacking.
                    if let Some(n_unlogged) = self.log_throttle.admit(now()) {
                        tracing::warn!(%errno, n_unlogged, "cannot accept a connection now");
                    }
                    return self.pause_accepting(listener, path);
                }
            }
        }
        Ok(())
    }

    /// Adds an accepted connection, unless its user rests. An error is a shortage of the system.
    fn welcome(&mut self, socket: PeerSocket) -> Result<(), Errno> {
        let user = peer_credentials(&socket)?.uid;
        if !self.awaits_engines() && self.cpu_share.pause_left(user, now()).is_some() {
            self.resting.keep(user, socket, &mut self.ledger);
            return Ok(());
        }
        self.add_and_charge(user, socket)
    }

    /// Adds connections of users who no longer rest. An error is a shortage of the system.
    fn add_rested(&mut self) -> Result<(), Errno> {
        for _ in 0..AT_ONCE {
            let (hurries, cpu_share, now) = (self.awaits_engines(), &self.cpu_share, now());
            let may_go_on = |user| hurries || cpu_share.pause_left(user, now).is_none();
            let Some((user, socket)) = self.resting.take(&mut self.ledger, may_go_on) else {
                return Ok(());
            };
            self.add_and_charge(user, socket)?;
        }
        Ok(())
    }

    /// Adds a connection, and charges its user the time.
    fn add_and_charge(&mut self, user: u32, socket: PeerSocket) -> Result<(), Errno> {
        let began = processor_time();
        let added = self.add_connection(socket);
        let is_excepted = added == Ok(QuotaClass::Owner) || [0, own_uid()].contains(&user);
        if !is_excepted && !self.awaits_engines() {
            let took = processor_time().saturating_sub(began);
            self.cpu_share.charge(user, took, now());
        }
        added.map(drop)
    }

    /// Accepts nothing for [`ACCEPT_PAUSE`]. Level-triggered polling would report the listener all
    /// the time.
    fn pause_accepting(&mut self, listener: &Listener, path: &Path) -> Result<(), RunError> {
        if self.accepting == Accepting::Now {
            self.poll.remove(listener.socket()).map_err(RunError::of("epoll_ctl", path))?;
            self.accepting = Accepting::Later;
        }
        Ok(())
    }

    /// Adds an accepted connection, and returns its class as far as that is known. An error is a
    /// shortage of the system: the socket is then kept for another attempt.
    fn add_connection(&mut self, socket: PeerSocket) -> Result<QuotaClass, Errno> {
        let rights = |who: &Credentials| self.policy.rights(who, own_uid());
        let connection = match Connection::new(socket, &mut self.last_peer, rights) {
            Ok(connection) => connection,
            Err((socket, errno)) if is_shortage(errno) => {
                self.unserved_socket = Some(socket);
                return Err(errno);
            }
            Err((_, errno)) => {
                tracing::debug!(%errno, "a connection ended before it began");
                return Ok(STRANGER);
            }
        };
        let Reader { user, quota_class } = connection.reader();
        let room = |broker: &Broker| {
            broker.ledger.descriptors.check(user, quota_class, Connection::DESCRIPTORS)
        };
        // The user's oldest connection without a greeting makes room for the new one.
        if room(self).is_err()
            && let Some(oldest) = self.non_engines.get(&user).and_then(BTreeSet::first)
        {
            self.close(*oldest, CloseReason::TooManyConnections);
        }
        if room(self).is_err() {
            self.log_close(&connection.credentials, &CloseReason::TooManyConnections);
            return Ok(quota_class);
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
                self.non_engines.entry(user).or_default().insert(id);
                self.ledger.descriptors.take(user, Connection::DESCRIPTORS);
                self.connections.insert(id, connection);
                Ok(quota_class)
            }
            Err(errno) if is_shortage(errno) => {
                // A readiness report for this number means nothing, and the socket must not be in
                // the epoll twice.
                let _ = self.poll.remove(&connection.socket);
                self.unserved_socket = Some(connection.socket);
                Err(errno)
            }
            Err(errno) => {
                tracing::warn!(%errno, "cannot wait for a connection");
                Ok(quota_class)
            }
        }
    }

    /// Sends the events that waited for other engines to read, as far as there is room now.
    fn flush_blocked(&mut self) {
        self.recount_some_unread();
        let after = (Bound::Excluded(self.last_blocked), Bound::Unbounded);
        let next: Vec<_> = self.blocked.range(after).take(OUTBOXES_AT_ONCE).copied().collect();
        self.last_blocked = next.last().copied().unwrap_or(ConnectionId(0));
        for id in next {
            self.flush(id);
        }
    }

    /// Counts what the next few engines have read, in turn.
    fn recount_some_unread(&mut self) {
        let after = (Bound::Excluded(self.last_recounted), Bound::Unbounded);
        let next: Vec<_> = self.engines.range(after).take(OUTBOXES_AT_ONCE).collect();
        self.last_recounted = next.last().map_or(ProcessId::BROKER, |(process, _)| **process);
        for (_, id) in next {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            let reader = connection.reader();
            if let Some(engine) = connection.engine() {
                engine.outbox.recount_unread(reader, &mut self.ledger);
            }
        }
    }
}
