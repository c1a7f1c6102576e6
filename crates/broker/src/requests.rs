//! Reading requests and answering them.

use crate::clock;
use crate::close::Why;
use crate::connection::{Connection, Engine, Role, Unsent};
use crate::deliver::socket_pair;
use crate::front::Front;
use crate::ledger::More;
use crate::limits::Rights;
use crate::outbox::{self, Outbox, Reader};
use crate::packet::{self, Received, Sent};
use crate::peer::Credentials;
use crate::poll::{ConnectionId, Source};
use crate::restart_state::Credential;
use crate::run::Broker;
use crate::shortage::is_shortage;
use crate::state::Newcomer;
use baton_abi::control::{self, Account, ProcessId, Reply, Report, Request, Share, VERSION};
use baton_abi::quota::{Quota, STRANGER, Standing};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::time::Instant;

/// What an object of a transaction adds to its ticket, and to what its owner is told, at the most.
const OBJECT_BYTES: usize = 64;
/// What tells of a channel.
const CHANNEL_EVENT_BYTES: usize = 256;
/// Entries of a report that cost as much as a plain request.
const ENTRIES_FOR_ONE: usize = 16;

/// How often a reply is tried that its peer leaves no room for: about a second.
const MOST_FULL: u32 = 100;

/// What came with a request.
enum Pages {
    None,
    Both([OwnedFd; 2]),
    /// Descriptors that this process had no room for.
    Lost,
}

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Given,
    /// It is sent later, and no request is read before.
    Waits,
}

impl Broker {
    /// A connection has something to be read, or its process has ended.
    pub fn add_turn(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get(&id) {
            self.turns.add(connection.credentials.uid, id);
        }
    }

    /// Handles one request of a connection, if it does not rest. What that has cost.
    pub fn take_turn(&mut self, id: ConnectionId) -> u64 {
        let hurries = self.awaits_engines();
        let Some(connection) = self.connections.get_mut(&id) else { return 1 };
        let user = connection.credentials.uid;
        // Whoever has ended needs no reply.
        if connection.unsent.is_some() && connection.leaving.is_none() {
            return 1;
        }
        let is_paced = connection.standing() != Standing::Owner && !hurries;
        if is_paced && self.pace.rests(user, id, Instant::now()) {
            return 1;
        }
        let began = clock::processor_time();
        let mut received = packet::receive(&connection.socket, &mut self.buffer);
        if let Some(left) = &mut connection.leaving {
            match left.checked_sub(1) {
                Some(fewer) if !matches!(received, Received::Nothing) => *left = fewer,
                _ => received = Received::Closed,
            }
        }
        self.cost = 1;
        let handled = match received {
            Received::Packet(bytes, pages) => {
                match control::decode::<Request>(&self.buffer[..bytes]) {
                    Some(request) => {
                        self.handle(id, request, pages.map_or(Pages::None, Pages::Both))
                    }
                    None => Err(Why::Malformed),
                }
            }
            Received::Stripped(bytes) => match control::decode::<Request>(&self.buffer[..bytes]) {
                Some(request) => self.handle(id, request, Pages::Lost),
                None => Err(Why::Malformed),
            },
            Received::Later => Ok(()),
            // It is said when more comes.
            Received::Nothing => return 1,
            Received::Closed => Err(Why::Ended),
            Received::Malformed => Err(Why::Malformed),
        };
        match handled {
            Ok(()) => self.add_turn(id),
            Err(why) => self.close(id, why),
        }
        if is_paced {
            let took = clock::processor_time().saturating_sub(began);
            self.pace.charge(user, took, Instant::now());
        }
        self.turns.charge(user, self.cost);
        self.used.add(self.cost);
        self.cost
    }

    fn handle(&mut self, id: ConnectionId, request: Request, pages: Pages) -> Result<(), Why> {
        let connection = &self.connections[&id];
        match (&connection.role, pages) {
            (Role::Stranger, pages) => self.greet(id, request, pages),
            (_, Pages::Both(_) | Pages::Lost) => Err(Why::Malformed),
            (Role::Observer, Pages::None) => {
                let uid = connection.credentials.uid;
                let reply = self.state.observe(uid, &request).ok_or(Why::NotAnObserver)?;
                self.reply(id, reply, None)
            }
            (Role::Engine(engine), Pages::None) => {
                let process = engine.process;
                self.ask(id, process, request)
            }
        }
    }

    fn greet(&mut self, id: ConnectionId, request: Request, pages: Pages) -> Result<(), Why> {
        let resumes = matches!(request, Request::Resume { .. });
        let (Request::Hello { version, .. }
        | Request::Resume { version, .. }
        | Request::Observe { version }) = request
        else {
            return Err(Why::NotGreeted);
        };
        self.had_client = true;
        let admitted = match (request, pages) {
            _ if version != VERSION => Err(Errno::PROTONOSUPPORT),
            (Request::Hello { .. } | Request::Resume { .. }, Pages::Lost) => Err(Errno::MFILE),
            (Request::Hello { context, channels, .. }, Pages::Both(pages)) => {
                self.admit(id, context, channels, pages)
            }
            (Request::Resume { credential, channels, .. }, Pages::Both(pages)) => {
                self.readmit(id, &credential, channels, pages)
            }
            (Request::Observe { .. }, Pages::None) => {
                self.connections.get_mut(&id).expect("just read from").role = Role::Observer;
                return self.reply(id, Reply::Done, None);
            }
            _ => Err(Errno::INVAL),
        };
        match admitted {
            Ok((credential, events)) => {
                let (era, signed) = (self.state.era(), self.restart_state.sign(&credential));
                let stamps = self.stamps;
                let welcome = Reply::Welcome {
                    identity: credential.identity,
                    era,
                    credential: signed,
                    stamps,
                };
                self.reply(id, welcome, Some(events))
            }
            Err(errno) => {
                // Whoever comes back is to try again: without a broker it cannot go on.
                let errno = if resumes && is_shortage(errno) { Errno::BUSY } else { errno };
                let bytes = control::encode(&Reply::Refused { errno: errno.raw_os_error() });
                let refusal = Some(errno);
                let unsent = Unsent { bytes, descriptor: None, refusal, n_full: 0 };
                self.send_reply(id, unsent).map(|_| ())
            }
        }
    }

    /// Makes a connection an engine's; its credential, and the engine's end of its event socket.
    fn admit(
        &mut self,
        id: ConnectionId,
        context: String,
        channels: u32,
        pages: [OwnedFd; 2],
    ) -> Result<(Credential, OwnedFd), Errno> {
        let Credentials { pid, uid, security_context, started, .. } =
            self.connections[&id].credentials.clone();
        let newcomer = Newcomer { pid, uid, security_context, rights: self.rights(id, &context) };
        let (ours, theirs, front) = self.adopt(id, || Front::adopt(pages))?;
        let identity = self.state.admit(newcomer, &context, channels)?;
        self.become_engine(id, identity.process, ours, front);
        Ok((Credential { identity, started, context }, theirs))
    }

    /// The rights of a connection in a context.
    fn rights(&self, id: ConnectionId, context: &str) -> Rights {
        let Connection { credentials, rights, .. } = &self.connections[&id];
        let owner = rustix::process::geteuid().as_raw();
        let manages = self.policy.may_manage(context, credentials, owner);
        Rights { manages, ..*rights }
    }

    /// The parts of an engine: both ends of its event socket, and its pages. `EMFILE` if its
    /// user has its share of the broker's descriptors.
    fn adopt(
        &self,
        id: ConnectionId,
        front: impl FnOnce() -> Result<Front, Errno>,
    ) -> Result<(OwnedFd, OwnedFd, Front), Errno> {
        let Reader { user, standing } = self.connections[&id].reader();
        let room = self.ledger.descriptors.check(user, standing, Engine::DESCRIPTORS);
        room.map_err(|_| Errno::MFILE)?;
        let front = front()?;
        let (ours, theirs) = socket_pair()?;
        self.poll.add_hangup(&ours, Source::Events(id))?;
        Ok((ours, theirs, front))
    }

    /// Takes back an engine that another broker had admitted. Who it is, is what its credential
    /// says: it may have given up rights since, which its device has kept. That the credential is
    /// its own, is what the system says.
    fn readmit(
        &mut self,
        id: ConnectionId,
        credential: &[u8],
        channels: u32,
        pages: [OwnedFd; 2],
    ) -> Result<(Credential, OwnedFd), Errno> {
        let credential = self.restart_state.verify(credential).ok_or(Errno::KEYREJECTED)?;
        let Credentials { pid, started, .. } = self.connections[&id].credentials;
        if started.is_none() || (pid, started) != (credential.identity.pid, credential.started) {
            return Err(Errno::KEYREJECTED);
        }
        let rights = self.rights(id, &credential.context);
        let (ours, theirs, front) = self.adopt(id, || Front::readopt(pages))?;
        let (identity, frozen) = (credential.identity.clone(), front.is_frozen());
        self.state.readmit(identity, rights, &credential.context, channels, frozen)?;
        self.become_engine(id, credential.identity.process, ours, front);
        Ok((credential, theirs))
    }

    fn become_engine(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        events: OwnedFd,
        front: Front,
    ) {
        let connection = self.connections.get_mut(&id).expect("just read from");
        let engine = Engine::new(process, Outbox::new(events), front);
        connection.role = Role::Engine(Box::new(engine));
        let user = connection.credentials.uid;
        self.ledger.descriptors.take(user, Engine::DESCRIPTORS);
        self.engines.insert(process, id);
        self.dismiss_guest(user, id);
    }

    /// An engine's request: its effects first, then its answer.
    fn ask(&mut self, id: ConnectionId, process: ProcessId, request: Request) -> Result<(), Why> {
        let pid = match request {
            Request::Freeze { pid, .. } | Request::FrozenInfo { pid } => Some(pid),
            _ => None,
        };
        if let Some(errno) = self.crowd(process, &request)? {
            return self.reply(id, Reply::Refused { errno: errno.raw_os_error() }, None);
        }
        let of_system = match request {
            Request::RealTime { channel, lane, tid } => {
                Some(self.real_time(id, process, (channel, lane), tid))
            }
            Request::RealTimeLooper { channel, lane, tid } => {
                Some(self.promote_looper(id, process, (channel, lane), tid))
            }
            Request::StandbyLooper { tid } => Some(self.set_spare(id, process, tid)),
            _ => None,
        };
        if !self.connections.contains_key(&id) {
            return Ok(()); // Disconnected for it.
        }
        if let Some(reply) = of_system {
            let refused = |errno: Errno| Reply::Refused { errno: errno.raw_os_error() };
            return self.reply(id, reply.unwrap_or_else(refused), None);
        }
        let mut effects = Vec::new();
        let reply = self.state.request(process, request, &mut effects);
        let failed = self.carry_out(self.connections[&id].credentials.uid, effects, None);
        if !self.connections.contains_key(&id) {
            return Ok(()); // Disconnected for it.
        }
        let reply = match (reply, failed) {
            (None, _) => return Ok(()),
            (Some(_), Some(errno)) => Reply::Refused { errno: errno.raw_os_error() },
            // Only now, with FROZEN set, does the number of open transactions mean anything.
            (Some(Reply::Freeze { two_way_received, one_way_received, .. }), None) => {
                let outstanding = self.outstanding(process, pid.unwrap_or_default());
                Reply::Freeze { outstanding, two_way_received, one_way_received }
            }
            (Some(reply), None) => reply,
        };
        self.reply(id, reply, None)
    }

    /// Why a request is refused that would add to the events of somebody who does not read them:
    /// its user has its share of what waits there.
    fn crowd(&mut self, from: ProcessId, request: &Request) -> Result<Option<Errno>, Why> {
        let (errno, bytes, descriptors) = match request {
            Request::Translate { objects, .. } => {
                self.cost += objects.len() as u64;
                (Errno::NOSPC, outbox::cost(objects.len() * OBJECT_BYTES), 0)
            }
            Request::ContextManager => (Errno::AGAIN, outbox::cost(OBJECT_BYTES), 0),
            Request::OpenChannel { .. } => (Errno::AGAIN, outbox::cost(CHANNEL_EVENT_BYTES), 3),
            Request::RealTime { .. } => (Errno::AGAIN, outbox::cost(OBJECT_BYTES), 0),
            Request::CancelTicket { target, .. } => {
                let waiting = self.engine(*target).map(|engine| engine.outbox.cancels_of(from));
                let over = waiting.is_some_and(|waiting| waiting >= self.limits.queued_cancels);
                return if over { Err(Why::Flood) } else { Ok(None) };
            }
            Request::Barrier { .. } => {
                let waiting = self.engine(from).map(|engine| engine.outbox.barriers());
                let over = waiting.is_some_and(|waiting| waiting >= self.limits.queued_barriers);
                return if over { Err(Why::Deaf) } else { Ok(None) };
            }
            _ => return Ok(None),
        };
        let told = self.state.told_by(from, request);
        let more = (bytes, descriptors);
        let has_room = told.into_iter().all(|reader| self.has_room(from, reader, more));
        Ok((!has_room).then_some(errno))
    }

    /// Whether a process's user may have so much more wait for another one's process.
    fn has_room(&self, from: ProcessId, to: ProcessId, (bytes, descriptors): (u64, u64)) -> bool {
        let connection = |process| self.connections.get(self.engines.get(&process)?);
        let (Some(cause), Some(reader)) = (connection(from), connection(to)) else { return true };
        let Role::Engine(engine) = &reader.role else { return true };
        let waiting = engine.outbox.waiting();
        if waiting.is_empty() && descriptors == 0 {
            return true;
        }
        let (user, its) = (cause.credentials.uid, reader.credentials.uid);
        let standing = if user == its { Standing::Owner } else { cause.standing() };
        let more = More { cause: (user, standing), bytes, descriptors };
        self.ledger.check_queue(reader.reader(), waiting, more).is_ok()
    }

    fn outstanding(&mut self, asker: ProcessId, pid: u32) -> u32 {
        self.state
            .with_pid(asker, pid)
            .into_iter()
            .filter_map(|process| self.engine(process).map(|engine| engine.front.outstanding()))
            .fold(0, u32::saturating_add)
    }

    fn reply(
        &mut self,
        id: ConnectionId,
        mut reply: Reply,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), Why> {
        // Before anybody hears that it is so.
        self.write_rules();
        match &mut reply {
            Reply::Report { page, .. } => self.fill(page),
            Reply::Accounts { accounts, .. } => self.add_shares(accounts),
            _ => {}
        }
        let bytes = control::encode(&reply);
        self.send_reply(id, Unsent { bytes, descriptor, refusal: None, n_full: 0 }).map(|_| ())
    }

    /// Sends a reply, or keeps it until it can be sent: a request is answered as long as its
    /// connection is there.
    pub fn send_reply(&mut self, id: ConnectionId, mut unsent: Unsent) -> Result<Answer, Why> {
        let connection = self.connections.get_mut(&id).expect("its request was just carried out");
        let descriptor = unsent.descriptor.as_ref().map(AsFd::as_fd);
        match packet::send(&connection.socket, &unsent.bytes, descriptor.as_slice()) {
            Ok(Sent::Now | Sent::Closed) => match unsent.refusal {
                Some(errno) => return Err(Why::Refused(errno)),
                None => return Ok(Answer::Given),
            },
            Ok(Sent::Full) if unsent.n_full >= MOST_FULL => return Err(Why::Unread),
            Ok(Sent::Full) => unsent.n_full += 1,
            Err(errno) if is_shortage(errno) => {}
            Err(errno) => return Err(Why::Reply(errno)),
        }
        connection.unsent = Some(unsent);
        self.unanswered.insert(id);
        Ok(Answer::Waits)
    }

    /// Adds what only the front pages say.
    fn fill(&mut self, report: &mut Report) {
        let mut entries = 0;
        for process in report.contexts.iter_mut().flat_map(|context| &mut context.processes) {
            entries += 1 + process.nodes.len() + process.handles.len() + process.channels.len();
            if let Some(engine) = self.engine(ProcessId(process.process)) {
                process.engine = engine.front.report();
            }
        }
        self.cost += (entries / ENTRIES_FOR_ONE) as u64;
    }

    /// Adds what the runner shares out.
    fn add_shares(&mut self, accounts: &mut [Account]) {
        self.cost += accounts.len() as u64;
        for Account { uid, reserve, shares } in accounts {
            let standing = if *reserve { Standing::Owner } else { STRANGER };
            let share = |(name, quota): (&str, &Quota)| Share {
                name: name.to_owned(),
                taken: quota.of(*uid),
                left: quota.left_for(*uid, standing),
                limit: quota.limit(),
            };
            let (held, unread) = (&self.ledger.descriptors, &self.ledger.unread);
            shares.extend([("descriptors", held), ("descriptors unread", unread)].map(share));
            let (taken, limit) = (self.ledger.queued_for(*uid), self.ledger.queue_limit());
            let name = "bytes of events unread".to_owned();
            shares.push(Share { name, taken, left: limit.saturating_sub(taken), limit });
        }
    }
}
