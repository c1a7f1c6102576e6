//! Reads requests and answers them.

use crate::clock::{now, processor_time};
use crate::close_reason::CloseReason;
use crate::closing::small_memory;
use crate::connection::{Answer, Connection, Engine, Role, UnsentReply};
use crate::deliver::socket_pair;
use crate::engine_lists::EngineLists;
use crate::ledger::{Addition, Reader};
use crate::limits::Rights;
use crate::outbox::{self, Outbox};
use crate::packet::{self, Files, Received, Sent};
use crate::peer::{self, Credentials};
use crate::poll::{ConnectionId, Source};
use crate::restart_state::Credential;
use crate::run::Broker;
use crate::shortage::is_shortage;
use crate::state::NewProcess;
use crate::status_pages::StatusPages;
use baton_abi::control::{self, Account, ProcessId, Reply, Report, Request, Share, VERSION};
use baton_abi::quota::{Quota, QuotaClass, STRANGER};
use baton_shm::mapping::SealedFile;
use baton_shm::namespaces::is_overflow_uid;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Upper bound of the bytes that one object adds to its ticket and to the event for its owner.
const OBJECT_BYTES: usize = 64;
/// Upper bound of the bytes of an event about a channel.
const CHANNEL_EVENT_BYTES: usize = 256;
/// Number of report entries that cost as much as a plain request.
const ENTRIES_FOR_ONE: usize = 16;

/// Attempts to send a reply to a peer whose queue is full: about a second.
const MOST_FULL: u32 = 100;

/// The descriptors that came with a greeting.
enum Attached {
    None,
    /// Small memory: see [`small_memory`].
    Both([SealedFile; 2]),
    /// Something else.
    Foreign,
    /// The broker had no room for the descriptors.
    Lost,
}

impl Broker {
    /// Queues a connection that has something to read or whose process has ended.
    pub fn enqueue(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get(&id) {
            self.queue.add(connection.credentials.uid, id);
        }
    }

    /// Serves one request of a connection that is not paused. Returns the cost.
    pub fn serve_next_request(&mut self, id: ConnectionId) -> u64 {
        let hurries = self.awaits_engines();
        let Some(connection) = self.connections.get_mut(&id) else { return 1 };
        let user = connection.credentials.uid;
        // A process that has ended needs no reply.
        if connection.unsent.is_some() && connection.exiting.is_none() {
            return 1;
        }
        let is_paced = connection.quota_class() != QuotaClass::Owner && !hurries;
        if is_paced && self.cpu_share.pause_if_over(user, id, now()) {
            return 1;
        }
        let began = is_paced.then(processor_time);
        let mut received = packet::receive(&connection.socket, &mut self.buffer);
        if let Some(left) = &mut connection.exiting {
            match left.checked_sub(1) {
                Some(fewer) if !matches!(received, Received::Nothing) => *left = fewer,
                _ => received = Received::Closed,
            }
        }
        self.cost = 1;
        let handled = match received {
            Received::Packet(bytes) => self.handle(id, bytes, false),
            Received::WithDescriptors(bytes) => self.handle(id, bytes, true),
            Received::Later => Ok(()),
            // The epoll reports when another packet comes.
            Received::Nothing => return 1,
            Received::Closed => Err(CloseReason::Ended),
            Received::Malformed => Err(CloseReason::Malformed),
        };
        match handled {
            Ok(()) => self.enqueue(id),
            Err(why) => self.close(id, why),
        }
        if let Some(began) = began {
            let took = processor_time().saturating_sub(began);
            self.cpu_share.charge(user, took, now());
        }
        self.queue.charge(user, self.cost);
        self.trim_timer.add_work(self.cost);
        self.cost
    }

    /// Handles the request in the first bytes of the buffer. If it `has_descriptors`, they are in
    /// the connection's socket still.
    fn handle(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        has_descriptors: bool,
    ) -> Result<(), CloseReason> {
        let packet = &self.buffer[..bytes];
        let request = match control::decode_first(packet).ok_or(CloseReason::Malformed)? {
            // The descriptors are the greeting's.
            (Request::OnBehalf { pid }, rest @ [_, ..]) => {
                let greeting = control::decode(rest).ok_or(CloseReason::Malformed)?;
                self.act_on_behalf(id, pid)?;
                greeting
            }
            (request, _) => request,
        };
        let connection = &self.connections[&id];
        match (&connection.role, has_descriptors) {
            (Role::Ungreeted, false) => self.handle_greeting(id, request, Attached::None),
            (Role::Ungreeted, true) => {
                let attached = self.take_attached(id)?;
                self.handle_greeting(id, request, attached)
            }
            (_, true) => Err(CloseReason::Malformed),
            (Role::Observer, false) => {
                let Credentials { uid, pid_namespace, .. } = connection.credentials;
                let mut effects = Vec::new();
                let lists = EngineLists::of(&self.connections, &self.engines);
                let reply = self.state.observe(uid, pid_namespace, &request, &lists, &mut effects);
                self.cost += lists.cost() + effects.len() as u64;
                let reply = reply.ok_or(CloseReason::NotAnObserver)?;
                self.carry_out(uid, effects, None);
                self.reply(id, reply, None)
            }
            (Role::Engine(engine), false) => {
                let process = engine.process;
                self.handle_engine_request(id, process, request)
            }
        }
    }

    /// Takes the descriptors of a greeting from the connection's socket. If they are no small
    /// memory, they stay there as well, and a thread closes the copies.
    fn take_attached(&mut self, id: ConnectionId) -> Result<Attached, CloseReason> {
        let connection = &self.connections[&id];
        let user = connection.credentials.uid;
        if !self.foreign_files.has_room(user) {
            return Ok(Attached::Lost);
        }
        match packet::look_at_files(&connection.socket) {
            Files::Both(files) => match small_memory(files) {
                Ok(files) => {
                    let taken = packet::discard(&connection.socket);
                    Ok(taken.map_or(Attached::Lost, |()| Attached::Both(files)))
                }
                Err(files) => {
                    self.foreign_files.close(user, files);
                    Ok(Attached::Foreign)
                }
            },
            Files::Others(files) => {
                self.foreign_files.close(user, files);
                Err(CloseReason::Malformed)
            }
            Files::Lost => Ok(Attached::Lost),
        }
    }

    fn handle_greeting(
        &mut self,
        id: ConnectionId,
        request: Request,
        pages: Attached,
    ) -> Result<(), CloseReason> {
        if let Request::OnBehalf { pid } = request {
            return match pages {
                Attached::None => self.act_on_behalf(id, pid),
                _ => Err(CloseReason::Malformed),
            };
        }
        let resumes = matches!(request, Request::Resume { .. });
        let (Request::Hello { version, .. }
        | Request::Resume { version, .. }
        | Request::Observe { version }) = request
        else {
            return Err(CloseReason::NoGreeting);
        };
        self.had_client = true;
        let on_behalf = self.connections[&id].on_behalf.unwrap_or(Ok(()));
        let admitted = match (request, pages) {
            _ if version != VERSION => Err(Errno::PROTONOSUPPORT),
            _ if on_behalf.is_err() => Err(on_behalf.unwrap_err()),
            // Users that the broker cannot tell apart would share an account and their rights.
            _ if is_overflow_uid(self.connections[&id].credentials.uid) => Err(Errno::OVERFLOW),
            (Request::Hello { .. } | Request::Resume { .. }, Attached::Lost) => Err(Errno::MFILE),
            (Request::Hello { context, channels, connection, .. }, Attached::Both(pages)) => {
                self.admit(id, context, channels, (pages, connection))
            }
            (Request::Resume { credential, channels, connection, .. }, Attached::Both(pages)) => {
                self.readmit(id, &credential, channels, (pages, connection))
            }
            (Request::Observe { .. }, Attached::None) => {
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
                // An engine that rejoins cannot go on without a broker, so a shortage makes it try
                // again.
                let errno = if resumes && is_shortage(errno) { Errno::BUSY } else { errno };
                let bytes = control::encode(&Reply::Refused { errno: errno.raw_os_error() });
                let refusal = Some(errno);
                let unsent = UnsentReply { bytes, descriptor: None, refusal, n_full: 0 };
                self.send_reply(id, unsent).map(|_| ())
            }
        }
    }

    /// Gives a connection the identity of the process whose device it serves, or notes the error
    /// for its greeting. From here on the process's user pays for the connection.
    fn act_on_behalf(&mut self, id: ConnectionId, pid: u32) -> Result<(), CloseReason> {
        let connection = &self.connections[&id];
        if connection.on_behalf.is_some() || !matches!(connection.role, Role::Ungreeted) {
            return Err(CloseReason::Malformed);
        }
        let needs_groups = self.policy.names_groups();
        let found =
            peer::on_behalf(&connection.credentials, pid, needs_groups, &mut self.last_served);
        let found = found.and_then(|credentials| {
            let rights = self.policy.rights(&credentials, rustix::process::geteuid().as_raw());
            let class = if rights.reserve { QuotaClass::Owner } else { STRANGER };
            let room =
                self.ledger.descriptors.check(credentials.uid, class, Connection::DESCRIPTORS);
            room.map(|()| (credentials, rights)).map_err(|_| Errno::MFILE)
        });
        let server = connection.credentials.uid;
        let connection = self.connections.get_mut(&id).expect("just read from");
        connection.on_behalf = Some(found.as_ref().map(|_| ()).map_err(|errno| *errno));
        if let Ok((credentials, rights)) = found {
            let user = credentials.uid;
            (connection.credentials, connection.rights) = (credentials, rights);
            self.ledger.descriptors.give_back(server, Connection::DESCRIPTORS);
            self.ledger.descriptors.take(user, Connection::DESCRIPTORS);
            self.remove_non_engine(server, id);
            self.non_engines.entry(user).or_default().insert(id);
        }
        Ok(())
    }

    /// Makes a connection an engine's, which has this number for it. Returns its credential and the
    /// engine's end of its event socket.
    fn admit(
        &mut self,
        id: ConnectionId,
        context: String,
        channels: u32,
        (files, connection): ([SealedFile; 2], u32),
    ) -> Result<(Credential, OwnedFd), Errno> {
        let credentials = self.connections[&id].credentials.clone();
        let Credentials { pid, pid_namespace, uid, security_context, incarnation, .. } =
            credentials;
        let is_served_by_root = credentials.is_served_by_root;
        let rights = self.rights(id, &context);
        let new =
            NewProcess { pid, pid_namespace, uid, security_context, is_served_by_root, rights };
        let (ours, theirs, pages) =
            self.make_engine_parts(id, || StatusPages::map(files, connection))?;
        let identity = self.state.admit(new, &context, channels)?;
        self.become_engine(id, identity.process, ours, pages);
        Ok((Credential { identity, incarnation, context }, theirs))
    }

    /// The rights of a connection's process in a context.
    fn rights(&self, id: ConnectionId, context: &str) -> Rights {
        let Connection { credentials, rights, .. } = &self.connections[&id];
        let owner = rustix::process::geteuid().as_raw();
        let manages = self.policy.may_manage(context, credentials, owner);
        Rights { manages, ..*rights }
    }

    /// Makes both ends of an engine's event socket and maps its pages. `EMFILE` if its user's share
    /// of the broker's descriptors is used up.
    fn make_engine_parts(
        &self,
        id: ConnectionId,
        make_pages: impl FnOnce() -> Result<StatusPages, Errno>,
    ) -> Result<(OwnedFd, OwnedFd, StatusPages), Errno> {
        let Reader { user, quota_class } = self.connections[&id].reader();
        let room = self.ledger.descriptors.check(user, quota_class, Engine::DESCRIPTORS);
        room.map_err(|_| Errno::MFILE)?;
        let pages = make_pages()?;
        let (ours, theirs) = socket_pair()?;
        // The broker reads nothing there, and must not find anything when it closes its end.
        rustix::net::shutdown(&ours, rustix::net::Shutdown::Read)?;
        self.poll.add_hangup(&ours, Source::Events(id))?;
        Ok((ours, theirs, pages))
    }

    /// Makes a connection the engine's that a previous broker admitted. The credential says who the
    /// engine is: the process may have given up rights since, which its device has kept. The kernel
    /// says whether the credential belongs to this process. `EKEYREJECTED` if it does not.
    fn readmit(
        &mut self,
        id: ConnectionId,
        credential: &[u8],
        channels: u32,
        (files, connection): ([SealedFile; 2], u32),
    ) -> Result<(Credential, OwnedFd), Errno> {
        let credential = self.restart_state.verify(credential).ok_or(Errno::KEYREJECTED)?;
        let who = &self.connections[&id].credentials;
        let &Credentials { pid, pid_namespace, is_served_by_root, .. } = who;
        let before = &credential.identity;
        let claimed = credential.incarnation.ok_or(Errno::KEYREJECTED)?;
        let is_same = (pid, is_served_by_root) == (before.pid, before.is_served_by_root)
            && peer::has_incarnation(who, claimed)?;
        if !is_same {
            return Err(Errno::KEYREJECTED);
        }
        let rights = self.rights(id, &credential.context);
        let (ours, theirs, pages) =
            self.make_engine_parts(id, || StatusPages::map_sealed(files, connection))?;
        let (identity, frozen) = (credential.identity.clone(), pages.is_frozen());
        let context = &credential.context;
        self.state.readmit(identity, pid_namespace, rights, context, channels, frozen)?;
        self.become_engine(id, credential.identity.process, ours, pages);
        Ok((credential, theirs))
    }

    fn become_engine(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        events: OwnedFd,
        pages: StatusPages,
    ) {
        let connection = self.connections.get_mut(&id).expect("just read from");
        let engine = Engine::new(process, Outbox::new(events), pages);
        connection.role = Role::Engine(Box::new(engine));
        let Credentials { pid, uid: user, incarnation, .. } = connection.credentials;
        self.restart_state.processes.add(process, pid, incarnation);
        self.ledger.descriptors.take(user, Engine::DESCRIPTORS);
        self.engines.insert(process, id);
        self.remove_non_engine(user, id);
    }

    /// Handles an engine's request: first the effects, then the reply.
    fn handle_engine_request(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        request: Request,
    ) -> Result<(), CloseReason> {
        let pid = match request {
            Request::Freeze { pid, .. } | Request::FrozenInfo { pid } => Some(pid),
            _ => None,
        };
        if let Some(errno) = self.check_backlogs(process, &request)? {
            return self.reply(id, Reply::Refused { errno: errno.raw_os_error() }, None);
        }
        let real_time_reply = match request {
            Request::RealTime { channel, lane, tid } => {
                Some(self.grant_real_time_lane(id, process, (channel, lane), tid))
            }
            Request::RealTimeLooper { channel, lane, tid } => {
                Some(self.promote_looper(id, process, (channel, lane), tid))
            }
            Request::StandbyLooper { tid } => Some(self.set_standby_looper(id, process, tid)),
            _ => None,
        };
        if !self.connections.contains_key(&id) {
            return Ok(()); // Disconnected for it.
        }
        if let Some(reply) = real_time_reply {
            let refused = |errno: Errno| Reply::Refused { errno: errno.raw_os_error() };
            return self.reply(id, reply.unwrap_or_else(refused), None);
        }
        if matches!(request, Request::BecomeContextManager { .. }) {
            self.release_context_of(process);
        }
        let asked_of = match request {
            Request::IsFrozen { target } => Some(target),
            _ => None,
        };
        let opens_channel = matches!(request, Request::ContextManager)
            && self.has_room_for_channel_to_manager(process);
        let mut effects = Vec::new();
        let lists = EngineLists::of(&self.connections, &self.engines);
        let reply = self.state.request(process, request, &lists, &mut effects);
        if opens_channel && matches!(reply, Some(Reply::Ticket { .. })) {
            self.state.prepare_channel_to_manager(process, &lists, &mut effects);
        }
        self.cost += lists.cost();
        let failed = self.carry_out(self.connections[&id].credentials.uid, effects, None);
        if !self.connections.contains_key(&id) {
            return Ok(()); // Disconnected for it.
        }
        let reply = match (reply, failed) {
            (None, _) => return Ok(()),
            // The process has its ticket. If its channel could not be made, it asks for one.
            (Some(reply @ Reply::Ticket { .. }), _) => reply,
            (Some(_), Some(errno)) => Reply::Refused { errno: errno.raw_os_error() },
            // The number of open transactions means something only once FROZEN is set.
            (Some(Reply::Freeze { two_way_received, one_way_received, .. }), None) => {
                let outstanding = self.outstanding(process, pid.unwrap_or_default());
                Reply::Freeze { outstanding, two_way_received, one_way_received }
            }
            // A process that has just ended counts as dead for whoever asks, though its last
            // requests are still to be read.
            (Some(Reply::Frozen { .. }), None) if self.has_hung_up(asked_of) => {
                Reply::Refused { errno: Errno::SRCH.raw_os_error() }
            }
            (Some(reply), None) => reply,
        };
        self.reply(id, reply, None)
    }

    fn has_hung_up(&self, process: Option<ProcessId>) -> bool {
        let connection = process.and_then(|process| self.engines.get(&process));
        connection.is_some_and(|id| self.connections[id].has_hung_up())
    }

    /// Gives up the awaited manager of a process's context if it has ended.
    fn release_context_of(&mut self, process: ProcessId) {
        let awaited = self.state.awaited_manager(process);
        if awaited.is_some_and(|manager| self.restart_state.processes.has_ended(manager)) {
            self.state.forget_awaited_manager(process);
        }
    }

    /// Checks whether the events that a request would cause may wait for readers that do not read.
    /// Returns the errno of a refusal: the asker's user has used up its share there.
    fn check_backlogs(
        &mut self,
        from: ProcessId,
        request: &Request,
    ) -> Result<Option<Errno>, CloseReason> {
        let (errno, bytes, descriptors) = match request {
            Request::Introduce { objects, .. } => {
                self.cost += objects.len() as u64;
                (Errno::NOSPC, outbox::cost(objects.len() * OBJECT_BYTES), 0)
            }
            Request::ContextManager => (Errno::AGAIN, outbox::cost(OBJECT_BYTES), 0),
            Request::OpenChannel { .. } => (Errno::AGAIN, outbox::cost(CHANNEL_EVENT_BYTES), 4),
            Request::RealTime { .. } => (Errno::AGAIN, outbox::cost(OBJECT_BYTES), 0),
            Request::CancelTicket { target, .. } => {
                let waiting = self.engine(*target).map(|engine| engine.outbox.cancels_of(from));
                let over = waiting.is_some_and(|waiting| waiting >= self.limits.queued_cancels);
                return if over { Err(CloseReason::CancelFlood) } else { Ok(None) };
            }
            Request::Barrier { .. } => {
                let waiting = self.engine(from).map(|engine| engine.outbox.barriers());
                let over = waiting.is_some_and(|waiting| waiting >= self.limits.queued_barriers);
                return if over { Err(CloseReason::UnreadBarriers) } else { Ok(None) };
            }
            _ => return Ok(None),
        };
        let told = self.state.notified_by(from, request);
        let more = (bytes, descriptors);
        let has_room = told.into_iter().all(|reader| self.has_room(from, reader, more));
        Ok((!has_room).then_some(errno))
    }

    /// Whether the events of a channel between a process and its context's manager may wait for
    /// both.
    fn has_room_for_channel_to_manager(&self, from: ProcessId) -> bool {
        let told = self.state.notified_by(from, &Request::ContextManager);
        let more = (outbox::cost(CHANNEL_EVENT_BYTES), 3);
        told.into_iter().chain([from]).all(|reader| self.has_room(from, reader, more))
    }

    /// Whether the user of `from` may have `bytes` and `descriptors` more wait for the process
    /// `to`.
    fn has_room(&self, from: ProcessId, to: ProcessId, (bytes, descriptors): (u64, u64)) -> bool {
        let connection = |process| self.connections.get(self.engines.get(&process)?);
        let (Some(cause), Some(reader)) = (connection(from), connection(to)) else { return true };
        let Role::Engine(engine) = &reader.role else { return true };
        let waiting = engine.outbox.waiting();
        if waiting.is_empty() && descriptors == 0 {
            return true;
        }
        let (user, its) = (cause.credentials.uid, reader.credentials.uid);
        let quota_class = if user == its { QuotaClass::Owner } else { cause.quota_class() };
        let more = Addition { cause: (user, quota_class), bytes, descriptors };
        self.ledger.check_queue(reader.reader(), waiting, more).is_ok()
    }

    /// Two-way transactions that the processes with this pid have received and not answered.
    fn outstanding(&mut self, asker: ProcessId, pid: u32) -> u32 {
        self.state
            .with_pid(asker, pid)
            .into_iter()
            .filter_map(|process| self.engine(process).map(|engine| engine.pages.outstanding()))
            .fold(0, u32::saturating_add)
    }

    fn reply(
        &mut self,
        id: ConnectionId,
        mut reply: Reply,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), CloseReason> {
        // The next broker must know a rule before any process hears of it.
        self.write_rules();
        match &mut reply {
            Reply::Report { page, .. } => self.add_engine_reports(page),
            Reply::Accounts { accounts, .. } => self.add_shares(accounts),
            _ => {}
        }
        let bytes = control::encode(&reply);
        self.send_reply(id, UnsentReply { bytes, descriptor, refusal: None, n_full: 0 }).map(|_| ())
    }

    /// Sends a reply, or keeps it until it can be sent. Every request is answered while its
    /// connection lasts.
    pub fn send_reply(
        &mut self,
        id: ConnectionId,
        mut unsent: UnsentReply,
    ) -> Result<Answer, CloseReason> {
        let connection = self.connections.get_mut(&id).expect("its request was just carried out");
        let descriptor = unsent.descriptor.as_ref().map(AsFd::as_fd);
        match packet::send(&connection.socket, &unsent.bytes, descriptor.as_slice()) {
            Ok(Sent::Now | Sent::Closed) => match unsent.refusal {
                Some(errno) => return Err(CloseReason::Refused(errno)),
                None => return Ok(Answer::Sent),
            },
            Ok(Sent::Full) if unsent.n_full >= MOST_FULL => return Err(CloseReason::UnreadReplies),
            Ok(Sent::Full) => unsent.n_full += 1,
            Err(errno) if is_shortage(errno) => {}
            Err(errno) => return Err(CloseReason::Reply(errno)),
        }
        connection.unsent = Some(unsent);
        self.unanswered.insert(id);
        Ok(Answer::Waits)
    }

    /// Adds the figures that only the engines' status pages contain.
    fn add_engine_reports(&mut self, report: &mut Report) {
        let mut entries = 0;
        for process in report.contexts.iter_mut().flat_map(|context| &mut context.processes) {
            entries += 1 + process.holdings.len() + process.channels.len();
            if let Some(engine) = self.engine(ProcessId(process.process)) {
                process.engine = engine.pages.report();
            }
        }
        self.cost += (entries / ENTRIES_FOR_ONE) as u64;
    }

    /// Adds the users' shares of the runner's amounts.
    fn add_shares(&mut self, accounts: &mut [Account]) {
        self.cost += accounts.len() as u64;
        for Account { uid, reserve, shares } in accounts {
            let quota_class = if *reserve { QuotaClass::Owner } else { STRANGER };
            let share = |(name, quota): (&str, &Quota)| Share {
                name: name.to_owned(),
                taken: quota.of(*uid),
                left: quota.left_for(*uid, quota_class),
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
