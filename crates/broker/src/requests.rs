//! Reading requests and answering them.

use crate::close::Why;
use crate::connection::{Engine, Role};
use crate::deliver::socket_pair;
use crate::front::Front;
use crate::outbox::Outbox;
use crate::packet::{self, Received, Sent};
use crate::peer::Credentials;
use crate::poll::{ConnectionId, Source};
use crate::run::Broker;
use crate::testament::Card;
use baton_abi::control::{self, MAX_PACKET_BYTES, ProcessId, Reply, Report, Request, VERSION};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// Tickets that a sender may have cancelled before their target reads of it. Tickets for a target
/// that reads nothing are refused long before, so that no correct engine gets here.
const WAITING_CANCELS: usize = 1024;

impl Broker {
    /// Handles one request of a connection. Requests of all are handled in the order in which
    /// they came: what one process has asked for, another that hears of it finds done.
    pub fn read_next(&mut self, id: ConnectionId) {
        self.read(id, 1);
        if let Some(connection) = self.connections.get(&id)
            && let Err(errno) = self.poll.next_turn(&connection.socket, Source::Requests(id))
        {
            tracing::warn!(%errno, "cannot wait for a connection");
            self.close(id, Why::Ended);
        }
    }

    /// Handles requests of a connection, at most so many.
    pub fn read(&mut self, id: ConnectionId, at_most: usize) {
        for _ in 0..at_most {
            let Some(connection) = self.connections.get(&id) else { return };
            let handled = match packet::receive(&connection.socket, &mut self.buffer) {
                Received::Packet(bytes, pages) => {
                    match control::decode::<Request>(&self.buffer[..bytes]) {
                        Some(request) => self.handle(id, request, pages),
                        None => Err(Why::Malformed),
                    }
                }
                Received::Nothing => return,
                Received::Closed => Err(Why::Ended),
                Received::Malformed => Err(Why::Malformed),
            };
            if let Err(why) = handled {
                return self.close(id, why);
            }
        }
    }

    fn handle(
        &mut self,
        id: ConnectionId,
        request: Request,
        pages: Option<[OwnedFd; 2]>,
    ) -> Result<(), Why> {
        let connection = &self.connections[&id];
        match (&connection.role, pages) {
            (Role::Stranger, pages) => self.greet(id, request, pages),
            (_, Some(_)) => Err(Why::Malformed),
            (Role::Observer, None) => {
                let uid = connection.credentials.uid;
                let reply = self.state.observe(uid, &request).ok_or(Why::NotAnObserver)?;
                self.reply(id, reply, None)
            }
            (Role::Engine(engine), None) => {
                let process = engine.process;
                self.ask(id, process, request)
            }
        }
    }

    fn greet(
        &mut self,
        id: ConnectionId,
        request: Request,
        pages: Option<[OwnedFd; 2]>,
    ) -> Result<(), Why> {
        let (Request::Hello { version, .. }
        | Request::Resume { version, .. }
        | Request::Observe { version }) = request
        else {
            return Err(Why::NotGreeted);
        };
        self.had_client = true;
        let admitted = match (request, pages) {
            _ if version != VERSION => Err(Errno::PROTONOSUPPORT),
            (Request::Hello { context, .. }, Some(pages)) => self.admit(id, context, pages),
            (Request::Resume { card, .. }, Some(pages)) => self.readmit(id, &card, pages),
            (Request::Observe { .. }, None) => {
                self.connections.get_mut(&id).expect("just read from").role = Role::Observer;
                return self.reply(id, Reply::Done, None);
            }
            _ => Err(Errno::INVAL),
        };
        match admitted {
            Ok((card, events)) => {
                let (era, signed) = (self.state.era(), self.testament.sign(&card));
                let stamps = self.stamps;
                let welcome = Reply::Welcome { identity: card.identity, era, card: signed, stamps };
                self.reply(id, welcome, Some(events.as_fd()))
            }
            Err(errno) => {
                let refused = Reply::Refused { errno: errno.raw_os_error() };
                self.reply(id, refused, None)?;
                Err(Why::Refused(errno))
            }
        }
    }

    /// Makes a connection an engine's; its card, and the engine's end of its event socket.
    fn admit(
        &mut self,
        id: ConnectionId,
        context: String,
        pages: [OwnedFd; 2],
    ) -> Result<(Card, OwnedFd), Errno> {
        let front = Front::adopt(pages)?;
        let Credentials { pid, uid, security_context, started } =
            self.connections[&id].credentials.clone();
        let (ours, theirs) = socket_pair()?;
        self.poll.add_hangup(&ours, Source::Events(id))?;
        let identity = self.state.admit(pid, uid, security_context, &context)?;
        self.become_engine(id, identity.process, ours, front);
        Ok((Card { identity, started, context }, theirs))
    }

    /// The same for an engine that another broker had admitted. Who it is, is what its card says:
    /// it may have given up rights since, which its device has kept. That the card is its own, is
    /// what the system says.
    fn readmit(
        &mut self,
        id: ConnectionId,
        card: &[u8],
        pages: [OwnedFd; 2],
    ) -> Result<(Card, OwnedFd), Errno> {
        let card = self.testament.verify(card).ok_or(Errno::KEYREJECTED)?;
        let Credentials { pid, started, .. } = self.connections[&id].credentials;
        if started.is_none() || (pid, started) != (card.identity.pid, card.started) {
            return Err(Errno::KEYREJECTED);
        }
        let front = Front::readopt(pages)?;
        let (ours, theirs) = socket_pair()?;
        self.poll.add_hangup(&ours, Source::Events(id))?;
        self.state.readmit(card.identity.clone(), &card.context, front.is_frozen())?;
        self.become_engine(id, card.identity.process, ours, front);
        Ok((card, theirs))
    }

    fn become_engine(
        &mut self,
        id: ConnectionId,
        process: ProcessId,
        events: OwnedFd,
        front: Front,
    ) {
        let outbox = Outbox::new(events, self.queued_events);
        let connection = self.connections.get_mut(&id).expect("just read from");
        connection.role = Role::Engine(Box::new(Engine::new(process, outbox, front)));
        let uid = connection.credentials.uid;
        self.engines.insert(process, id);
        self.dismiss_guest(uid);
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
            Request::SpareLooper { tid } => Some(self.set_spare(id, process, tid)),
            _ => None,
        };
        if let Some(reply) = of_system.filter(|_| self.connections.contains_key(&id)) {
            let refused = |errno: Errno| Reply::Refused { errno: errno.raw_os_error() };
            return self.reply(id, reply.unwrap_or_else(refused), None);
        }
        let mut effects = Vec::new();
        let reply = self.state.request(process, request, &mut effects);
        let failed = self.carry_out(effects, None);
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

    /// Why a request is refused that would add to the events of somebody who does not read them.
    fn crowd(&mut self, from: ProcessId, request: &Request) -> Result<Option<Errno>, Why> {
        let errno = match request {
            Request::Translate { .. } | Request::ContextManager => Errno::NOSPC,
            Request::OpenChannel { .. } => Errno::MFILE,
            Request::RealTime { .. } => Errno::AGAIN,
            Request::CancelTicket { target, .. } => {
                let waiting = self.engine(*target).map(|engine| engine.outbox.cancels_of(from));
                return match waiting {
                    Some(WAITING_CANCELS..) => Err(Why::Flood),
                    _ => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        let told = self.state.told_by(from, request);
        let crowded = told
            .into_iter()
            .any(|process| self.engine(process).is_some_and(|engine| engine.outbox.is_crowded()));
        Ok(crowded.then_some(errno))
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
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), Why> {
        // Before anybody hears that it is so.
        self.write_rules();
        if let Reply::Report(report) = &mut reply {
            self.fill(report);
            shorten(report);
        }
        let socket = &self.connections[&id].socket;
        match packet::send(socket, &control::encode(&reply), descriptor.as_slice()) {
            Ok(Sent::Now | Sent::Closed) => Ok(()),
            Ok(Sent::Full) => Err(Why::Unread),
            Err(errno) => Err(Why::Reply(errno)),
        }
    }

    /// Adds what only the front pages say.
    fn fill(&mut self, report: &mut Report) {
        for process in report.contexts.iter_mut().flat_map(|context| &mut context.processes) {
            if let Some(engine) = self.engine(ProcessId(process.process)) {
                process.engine = engine.front.report();
            }
        }
    }
}

/// Leaves out what does not fit a packet, the most detailed first.
fn shorten(report: &mut Report) {
    let fits = |report: &Report| {
        // The packet's first byte says which reply it is.
        control::encode(report).len() < MAX_PACKET_BYTES
    };
    let processes = |report: &mut Report, cut: fn(&mut control::ProcessReport)| {
        report.contexts.iter_mut().flat_map(|context| &mut context.processes).for_each(cut);
    };
    let cuts: [fn(&mut control::ProcessReport); 3] = [
        |process| process.handles.clear(),
        |process| process.nodes.clear(),
        |process| process.channels.clear(),
    ];
    for cut in cuts {
        if fits(report) {
            return;
        }
        processes(report, cut);
    }
    while !fits(report) {
        let longest = report.contexts.iter_mut().max_by_key(|context| context.processes.len());
        let Some(context) = longest else { return };
        if context.processes.is_empty() {
            return;
        }
        context.processes.truncate(context.processes.len() / 2);
    }
}
