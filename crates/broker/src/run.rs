//! The broker's loop: one thread, one epoll, no waiting for anybody.

use crate::client::{self, Engine, Sent};
use crate::limits::Limits;
use crate::state::{Effect, State};
use baton_abi::control::*;
use baton_abi::lane::{CHANNEL_BYTES, front};
use baton_shm::mapping;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::PidfdFlags;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// How a broker runs.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub socket: PathBuf,
    /// A listening socket that somebody else made (systemd), instead of `socket`.
    pub listener: Option<OwnedFd>,
    /// End when the last client is gone, after there was one.
    pub until_idle: bool,
    /// Contexts beside Android's three.
    pub contexts: Vec<String>,
    /// Ends the loop when it becomes readable (a signalfd, an eventfd, a pipe).
    pub stop: Option<OwnedFd>,
    /// Bounds.
    pub limits: Limits,
}

/// Why a broker could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another broker has the socket.
    #[error("a broker is already listening at {0}")]
    AlreadyRunning(PathBuf),
    /// A context's name cannot be used.
    #[error("context name {0:?} is invalid or taken")]
    BadContext(String),
    /// A system call failed.
    #[error("{operation} {path}: {errno}")]
    System {
        /// Which.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// How.
        errno: Errno,
    },
}

/// Serves until it is stopped or idle. `ready` is called once it listens.
pub fn run(config: Config, ready: impl FnOnce()) -> Result<(), RunError> {
    let fail = |operation, path: &Path| {
        let path = path.to_owned();
        move |errno| RunError::System { operation, path, errno }
    };
    let uid = rustix::process::geteuid().as_raw();
    let mut state = State::new(config.limits, uid);
    for name in &config.contexts {
        state.add_context(0, name).map_err(|_| RunError::BadContext(name.clone()))?;
    }
    let (listener, place) = match config.listener {
        Some(listener) => (listener, None),
        None => {
            let (listener, place) = Place::take(&config.socket)?;
            (listener, Some(place))
        }
    };
    let epoll =
        epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail("epoll_create", &config.socket))?;
    let mut broker = Broker {
        state,
        limits: config.limits,
        epoll,
        listener,
        connections: BTreeMap::new(),
        engines: HashMap::new(),
        next: FIRST_CONNECTION,
        packet: vec![0; MAX_PACKET_BYTES],
        had_client: false,
    };
    broker
        .watch_input(broker.listener.as_fd(), LISTENER)
        .map_err(fail("epoll_ctl", &config.socket))?;
    if let Some(stop) = &config.stop {
        broker.watch_input(stop.as_fd(), STOP).map_err(fail("epoll_ctl", &config.socket))?;
    }
    ready();
    broker.serve(config.until_idle, place).map_err(fail("epoll_wait", &config.socket))
}

/// The path that a broker has taken. The lock file beside it stays: it is the lock's name.
struct Place {
    socket: PathBuf,
    _lock: OwnedFd,
}

impl Place {
    fn take(socket: &Path) -> Result<(OwnedFd, Place), RunError> {
        let fail = |operation| {
            let path = socket.to_owned();
            move |errno| RunError::System { operation, path, errno }
        };
        let root = rustix::process::geteuid().is_root();
        if let Some(directory) =
            socket.parent().filter(|directory| !directory.as_os_str().is_empty())
        {
            use std::os::unix::fs::DirBuilderExt;
            let mode = if root { 0o755 } else { 0o700 };
            let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(directory);
            made.map_err(|error| fail("mkdir")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        }
        let lock = lock_file(socket).map_err(|errno| match errno {
            Errno::WOULDBLOCK => RunError::AlreadyRunning(socket.to_owned()),
            errno => fail("lock")(errno),
        })?;
        // Ours by the lock: what stands there is of a broker that has died.
        let _ = std::fs::remove_file(socket);
        let address = SocketAddrUnix::new(socket).map_err(fail("the path"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .map_err(fail("socket"))?;
        rustix::net::bind(&listener, &address).map_err(fail("bind"))?;
        // A system-wide broker is for everybody, a user's for that user.
        let mode = if root { 0o666 } else { 0o600 };
        rustix::fs::chmod(socket, rustix::fs::Mode::from_raw_mode(mode)).map_err(fail("chmod"))?;
        rustix::net::listen(&listener, 128).map_err(fail("listen"))?;
        Ok((listener, Place { socket: socket.to_owned(), _lock: lock }))
    }

    fn unlink(&self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn lock_file(socket: &Path) -> Result<OwnedFd, Errno> {
    use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(Path::new(&name), flags, Mode::RUSR | Mode::WUSR)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST_CONNECTION: u64 = 16;
/// A connection's descriptors in epoll: its number times four, plus which.
const REQUESTS: u64 = 0;
const DEATH: u64 = 1;
const EVENTS: u64 = 2;

/// What a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It has not said yet.
    New,
    /// An observer.
    Observer,
    /// An admitted process.
    Process(ProcessId),
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Readable when the process is dead. Absent where the kernel has none.
    pidfd: Option<OwnedFd>,
    pid: u32,
    uid: u32,
    role: Role,
}

struct Broker {
    state: State,
    limits: Limits,
    epoll: OwnedFd,
    listener: OwnedFd,
    connections: BTreeMap<u64, Connection>,
    /// Admitted processes, with the numbers of their connections.
    engines: HashMap<ProcessId, (u64, Engine)>,
    next: u64,
    packet: Vec<u8>,
    had_client: bool,
}

impl Broker {
    fn watch_input(&self, fd: impl AsFd, name: u64) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, EventData::new_u64(name), EventFlags::IN)
    }

    fn serve(&mut self, until_idle: bool, place: Option<Place>) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(64);
        loop {
            if until_idle && self.had_client && self.connections.is_empty() {
                if let Some(place) = &place {
                    place.unlink();
                }
                // Whoever connected before the path went still gets its broker.
                self.accept();
                if self.connections.is_empty() {
                    return Ok(());
                }
                // The path is gone: these are the last ones.
            }
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    STOP => {
                        if let Some(place) = &place {
                            place.unlink();
                        }
                        return Ok(());
                    }
                    name => self.visit(name / 4, name % 4),
                }
            }
        }
    }

    fn accept(&mut self) {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => {
                    if let Err(errno) = self.add(socket) {
                        tracing::warn!("a connection could not be taken: {errno}");
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    tracing::warn!("accept: {errno}");
                    return;
                }
            }
        }
    }

    fn add(&mut self, socket: OwnedFd) -> Result<(), Errno> {
        let credentials = sockopt::socket_peercred(&socket)?;
        let pidfd = rustix::process::pidfd_open(credentials.pid, PidfdFlags::empty()).ok();
        let number = self.next;
        self.next += 1;
        self.watch_input(&socket, number * 4 + REQUESTS)?;
        if let Some(pidfd) = &pidfd {
            self.watch_input(pidfd, number * 4 + DEATH)?;
        }
        let pid = credentials.pid.as_raw_nonzero().get() as u32;
        let uid = credentials.uid.as_raw();
        self.connections.insert(number, Connection { socket, pidfd, pid, uid, role: Role::New });
        self.had_client = true;
        Ok(())
    }

    fn visit(&mut self, number: u64, which: u64) {
        match which {
            REQUESTS => self.read(number),
            DEATH => self.end(number, "the process is dead"),
            _ => self.flush(number),
        }
    }

    fn flush(&mut self, number: u64) {
        let Some(Connection { role: Role::Process(id), .. }) = self.connections.get(&number) else {
            return;
        };
        if let Some((_, engine)) = self.engines.get_mut(id)
            && engine.flush()
        {
            let _ = epoll::delete(&self.epoll, &engine.events);
        }
    }

    /// Reads one packet at a time, so that no connection keeps the others waiting.
    fn read(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        match client::receive::<Request>(&connection.socket, &mut self.packet) {
            Ok(None) => {}
            Ok(Some((request, fds))) => self.request(number, request, fds),
            Err(Errno::CONNRESET) => self.end(number, "it has hung up"),
            Err(errno) => {
                tracing::warn!("pid {}: bad message: {errno}", connection.pid);
                self.end(number, "it sent what is no message");
            }
        }
    }

    fn request(&mut self, number: u64, request: Request, fds: Vec<OwnedFd>) {
        let role = self.connections[&number].role;
        let mut effects = Vec::new();
        let (reply, carried) = match (role, request) {
            (Role::New, Request::Hello { version, context }) => {
                match self.hello(number, version, &context, fds) {
                    Ok((identity, events)) => (Some(Reply::Welcome { identity }), vec![events]),
                    Err(errno) => (Some(refused(errno)), Vec::new()),
                }
            }
            (Role::New, Request::Observe { version }) => {
                (Some(self.observe(number, version)), Vec::new())
            }
            (Role::Observer, request) => (Some(self.observed(number, request)), Vec::new()),
            (Role::Process(_), Request::Report) => (Some(self.report()), Vec::new()),
            (Role::Process(id), request) => {
                let pid = match request {
                    Request::Freeze { pid, .. } | Request::FrozenInfo { pid } => Some(pid),
                    _ => None,
                };
                let reply = self.state.request(id, request, &mut effects);
                (reply.map(|reply| self.with_outstanding(reply, pid)), Vec::new())
            }
            (Role::New, _) => (Some(refused(Errno::PROTO)), Vec::new()),
        };
        // Events before the answer: what the answer promises has been sent.
        self.carry_out(effects);
        let Some(connection) = self.connections.get(&number) else { return };
        if let Some(reply) = reply {
            let sent =
                client::send(&connection.socket, &encode(&reply), &carried, SendFlags::DONTWAIT);
            if sent.is_err() {
                self.end(number, "it does not read its answers");
            }
        }
    }

    fn hello(
        &mut self,
        number: u64,
        version: u32,
        context: &str,
        mut fds: Vec<OwnedFd>,
    ) -> Result<(Identity, OwnedFd), Errno> {
        if version != VERSION {
            return Err(Errno::PROTONOSUPPORT);
        }
        let page = fds.pop().filter(|_| fds.is_empty()).ok_or(Errno::INVAL)?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let connection = &self.connections[&number];
        let label = security_label(connection.pid);
        let identity = self.state.admit(connection.pid, connection.uid, label, context)?;
        let engine = Engine::new(identity.clone(), ours, page).inspect_err(|_| {
            self.state.gone(identity.process, &mut Vec::new());
        })?;
        self.engines.insert(identity.process, (number, engine));
        self.connections.get_mut(&number).expect("just read").role =
            Role::Process(identity.process);
        Ok((identity, theirs))
    }

    fn observe(&mut self, number: u64, version: u32) -> Reply {
        if version != VERSION {
            return refused(Errno::PROTONOSUPPORT);
        }
        self.connections.get_mut(&number).expect("just read").role = Role::Observer;
        Reply::Done
    }

    fn observed(&mut self, number: u64, request: Request) -> Reply {
        match request {
            Request::Report => self.report(),
            Request::Contexts => self.state.context_names(),
            Request::AddContext { name } => {
                let uid = self.connections[&number].uid;
                self.state.add_context(uid, &name).unwrap_or_else(refused)
            }
            _ => refused(Errno::PROTO),
        }
    }

    fn report(&self) -> Reply {
        let mut report = self.state.report(|id| self.engines.get(&id).map(|(_, engine)| engine));
        // One packet: what does not fit is left out from the longest lists.
        while encode(&report).len() > MAX_PACKET_BYTES - 64 {
            let processes = report.contexts.iter_mut().flat_map(|context| &mut context.processes);
            for process in processes {
                process.handles.truncate(process.handles.len() / 2);
                process.nodes.truncate(process.nodes.len() / 2);
                process.channels.truncate(process.channels.len() / 2);
            }
        }
        Reply::Report(report)
    }

    fn with_outstanding(&self, reply: Reply, pid: Option<u32>) -> Reply {
        let (Reply::Freeze { two_way_received, one_way_received, .. }, Some(pid)) = (&reply, pid)
        else {
            return reply;
        };
        let words = self.state.pids(pid).filter_map(|id| self.engines.get(&id));
        let outstanding = words
            .fold(0u32, |sum, (_, engine)| sum.saturating_add(engine.word(front::OUTSTANDING)));
        Reply::Freeze {
            outstanding,
            two_way_received: *two_way_received,
            one_way_received: *one_way_received,
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Event { to, event } => self.send(to, &event, Vec::new()),
                Effect::SetFrozen { process, frozen } => {
                    if let Some((_, engine)) = self.engines.get(&process) {
                        engine.set_frozen(frozen);
                    }
                }
                Effect::OpenChannel { channel, client, server } => {
                    if let Err(errno) = self.open_channel(channel, client, server) {
                        tracing::warn!("channel from {client:?} to {server:?}: {errno}");
                    }
                }
                Effect::Disconnect { process, why } => {
                    if let Some(&(number, _)) = self.engines.get(&process) {
                        tracing::warn!("pid {}: {why}", self.connections[&number].pid);
                        self.end(number, why);
                    }
                }
            }
        }
    }

    fn send(&mut self, to: ProcessId, event: &Event, fds: Vec<OwnedFd>) {
        let Some((number, engine)) = self.engines.get_mut(&to) else { return };
        let number = *number;
        let waited = engine.queued() > 0;
        // A process that is gone is noticed by its own descriptors.
        if engine.send(event, fds) != Sent::Queued {
            return;
        }
        if engine.queued() > self.limits.queued_events {
            self.end(number, "it does not read its events");
        } else if !waited {
            let name = EventData::new_u64(number * 4 + EVENTS);
            let _ = epoll::add(&self.epoll, &engine.events, name, EventFlags::OUT);
        }
    }

    fn open_channel(
        &mut self,
        channel: ChannelId,
        client: ProcessId,
        server: ProcessId,
    ) -> Result<(), Errno> {
        let file = mapping::create("baton-channel", CHANNEL_BYTES)?;
        mapping::freeze_seals(&file)?;
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        let (_, called) = self.engines.get(&server).ok_or(Errno::SRCH)?;
        let (_, caller) = self.engines.get(&client).ok_or(Errno::SRCH)?;
        let (server_identity, client_identity) = (called.identity.clone(), caller.identity.clone());
        let to_client = vec![copy(&file)?, ours, copy(&called.page)?];
        let event = Event::Channel { channel, end: End::Server, peer: client_identity };
        self.send(server, &event, vec![file, theirs]);
        let event = Event::Channel { channel, end: End::Client, peer: server_identity };
        self.send(client, &event, to_client);
        Ok(())
    }

    fn end(&mut self, number: u64, why: &str) {
        let Some(connection) = self.connections.remove(&number) else { return };
        tracing::debug!("pid {} leaves: {why}", connection.pid);
        let _ = epoll::delete(&self.epoll, &connection.socket);
        if let Some(pidfd) = &connection.pidfd {
            let _ = epoll::delete(&self.epoll, pidfd);
        }
        let Role::Process(id) = connection.role else { return };
        if let Some((_, engine)) = self.engines.remove(&id) {
            let _ = epoll::delete(&self.epoll, &engine.events);
        }
        let mut effects = Vec::new();
        self.state.gone(id, &mut effects);
        self.carry_out(effects);
    }
}

fn refused(errno: Errno) -> Reply {
    Reply::Refused { errno: errno.raw_os_error() }
}

/// The label that a receiver may ask for with each transaction. rustix has no SO_PEERSEC; the label
/// of the process's main thread is what that option gives for a connecting process.
fn security_label(pid: u32) -> String {
    let label = std::fs::read_to_string(format!("/proc/{pid}/attr/current")).unwrap_or_default();
    let label = label.trim_end_matches(['\0', '\n']);
    if label.is_empty() { "unconfined".to_owned() } else { label.chars().take(256).collect() }
}
