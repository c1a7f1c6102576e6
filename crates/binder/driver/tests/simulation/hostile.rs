//! Processes without an engine. A hostile process talks to the broker well enough to get channels,
//! and then writes right, half-right and random bytes wherever it can write, at either end.
//! [`crate::grants`] knows what it was granted.

use crate::grants::HONEST_CODE;
use crate::stranger::{receive, send_with};
use crate::world::World;
use baton_abi::control::*;
use baton_abi::holder_list::*;
use baton_abi::lane::*;
use baton_abi::uapi::*;
use baton_shm::blocking::{before_read, pause};
use baton_shm::mailbox::Mailbox;
use baton_shm::mapping::{self, Access, Mapping, View};
use baton_shm::simulation::relinquish;
use baton_shm::sync::Ordering;
use bytemuck::{bytes_of, bytes_of_mut, cast_slice, cast_slice_mut};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::*;
use std::sync::Arc;
use std::time::Duration;

/// A hostile process uses the lanes below this number.
const MOST_LANES: u64 = 4;
/// Its own nodes are from 1 to this.
const NODES: u64 = 3;
/// In the word of an entry of known nodes: the entry is offered.
const OFFERED: u32 = 1 << 31;
/// Tokens of waiting threads that it remembers.
const MOST_CALLERS: usize = 8;

impl World {
    /// Now and then a hostile process comes or goes.
    pub fn disturb(self: &Arc<World>) {
        let alive = self.hostile.lock().alive.clone();
        match self.machine.below(100) {
            0..20 if alive.len() < 2 => {
                let (number, world) = (self.next_process(), Arc::clone(self));
                self.hostile.lock().alive.push(number);
                self.start(number, "hostile", move || Hostile::live(&world, number));
            }
            20..23 if !alive.is_empty() => self.kill_hostile(alive[0]),
            _ => {}
        }
    }

    /// SIGKILL, as for any process.
    fn kill_hostile(&self, number: u32) {
        self.note_death(number);
        self.machine.kill(number);
        let mut inner = self.hostile.lock();
        inner.alive.retain(|alive| *alive != number);
        for (_, socket) in inner.sockets.extract_if(.., |(process, _)| *process == number) {
            let _ = shutdown(&*socket, Shutdown::Both);
        }
    }

    /// No hostile process is left. Those that live until now have called what they were granted.
    pub fn end_hostile_processes(&self) {
        self.hostile.lock().is_over = true;
        // They hear of grants that their calls may have overtaken.
        pause(Duration::from_millis(100));
        let inner = self.hostile.lock();
        let wrong = inner.called.difference(&inner.granted);
        let wrong: Vec<_> = wrong.filter(|right| inner.alive.contains(&right.0)).collect();
        assert!(wrong.is_empty(), "called without a grant: {wrong:?}");
        let alive = inner.alive.clone();
        drop(inner);
        alive.into_iter().for_each(|number| self.kill_hostile(number));
    }
}

/// The only thread of a hostile process.
struct Hostile {
    world: Arc<World>,
    number: u32,
    /// The sockets for requests and events. `None` once the broker has gone, or has had enough.
    broker: Option<[Arc<OwnedFd>; 2]>,
    id: ProcessId,
    credential: Vec<u8>,
    pages: [OwnedFd; 2],
    status: Mapping<STATUS_BYTES>,
    channels: Vec<Channel>,
    /// What it was granted.
    held: Vec<Held>,
    /// Its list of holders.
    list: Mapping<LIST_BYTES>,
    tickets: Vec<(ProcessId, TicketId)>,
    /// Threads that wait for its answers, or have waited.
    callers: Vec<ChainEntry>,
    /// How many of a hundred acts are wrong on purpose.
    rudeness: u64,
}

/// One grant.
#[derive(Clone, Copy)]
struct Held {
    owner: ProcessId,
    node: NodeId,
    strength: Strength,
    /// The entry in the owner's list. `None` of the broker's grants.
    entry: Option<u32>,
}

/// A channel, at either end.
struct Channel {
    id: ChannelId,
    end: End,
    peer: ProcessId,
    memory: Arc<Mapping<CHANNEL_BYTES>>,
    socket: Arc<OwnedFd>,
    descriptors: Arc<OwnedFd>,
    /// Packets sent by the socket for descriptors.
    packets: u32,
    /// Bytes put into the one-way ring.
    tail: u64,
    /// Bytes put into the ring of returned grants.
    returned: u64,
}

impl Hostile {
    /// Joins the broker, and acts until it is killed.
    fn live(world: &Arc<World>, number: u32) {
        let pages = [("status", STATUS_BYTES), ("tally", TALLY_FILE_BYTES)]
            .map(|(name, bytes)| mapping::create(name, bytes).expect("a page"));
        let status = Mapping::new(&pages[0], Access::ReadWrite).expect("a page");
        let list = Mapping::part(&pages[1], TALLY_BYTES, Access::ReadWrite).expect("a list");
        let mut hostile = Hostile {
            world: Arc::clone(world),
            number,
            broker: None,
            id: ProcessId::BROKER,
            credential: Vec::new(),
            pages,
            status,
            channels: Vec::new(),
            held: Vec::new(),
            list,
            tickets: Vec::new(),
            callers: Vec::new(),
            rudeness: [0, 5, 15, 50][world.machine.below(4) as usize],
        };
        hostile.status.word(status::BUFFER_BYTES).store(1 << 20, Ordering::Release);
        hostile.status.word(status::ONE_WAY_FREE).store(1 << 19, Ordering::Release);
        let (version, context) = (VERSION, "binder".to_owned());
        // There may be no broker at this moment.
        if hostile
            .greet(&Request::Hello { version, context, channels: 64, connection: 0 })
            .is_some()
        {
            hostile.act();
        }
    }

    fn act(mut self) {
        loop {
            self.hear();
            if self.world.hostile.lock().is_over {
                pause(Duration::from_millis(1));
                continue;
            }
            match self.dice(100) {
                0..15 => self.request(),
                15..40 => self.call(),
                40..60 => self.serve(),
                60..68 => self.send_one_way(),
                68..72 => self.read_socket(),
                72..80 if self.is_rude() => self.poke(),
                80..86 if self.is_rude() => self.write_socket(),
                86..88 if self.is_rude() => {
                    let word = self.status.word(4 * self.dice(64) as usize);
                    word.store(self.number() as u32, Ordering::Release);
                }
                88 if self.is_rude() && !self.channels.is_empty() => {
                    let channel = self.pick(self.channels.len());
                    let _ = shutdown(&*self.channels.remove(channel).socket, Shutdown::Both);
                }
                89 if self.broker.is_none() => self.resume(),
                _ => pause(Duration::from_micros(self.dice(1_000))),
            }
        }
    }

    fn dice(&self, bound: u64) -> u64 {
        self.world.machine.below(bound)
    }

    fn pick(&self, from: usize) -> usize {
        self.dice(from as u64) as usize
    }

    fn is_rude(&self) -> bool {
        self.dice(100) < self.rudeness
    }

    /// A number, mostly a small one. Never [`HONEST_CODE`].
    fn number(&self) -> u64 {
        match self.dice(20) {
            0 => u64::MAX - self.dice(4),
            1 => self.dice(u64::MAX),
            2 => 1 << self.dice(64),
            3..9 => 4 * self.dice(20),
            _ => self.dice(HONEST_CODE.into()),
        }
    }

    // ---- the broker -------------------------------------------------------------------------

    /// Connects to the broker.
    fn greet(&mut self, greeting: &Request) -> Option<()> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let requests = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        connect(&requests, &SocketAddrUnix::new(&self.world.broker.socket).expect("short")).ok()?;
        self.world.machine.note_connection();
        let requests = self.keep(requests);
        send_with(&requests, &encode(greeting), &self.pages.each_ref().map(AsFd::as_fd)).ok()?;
        before_read(&requests);
        let (packet, fds) = receive(&requests, RecvFlags::DONTWAIT)?;
        let Some(Reply::Welcome { identity, credential, .. }) = decode(&packet) else {
            return None;
        };
        let events = self.keep(fds.into_iter().next()?);
        (self.id, self.credential) = (identity.process, credential);
        self.broker = Some([requests, events]);
        self.world.hostile.lock().processes.insert(self.id, self.number);
        Some(())
    }

    fn keep(&self, socket: OwnedFd) -> Arc<OwnedFd> {
        let socket = Arc::new(socket);
        self.world.hostile.lock().sockets.push((self.number, Arc::clone(&socket)));
        socket
    }

    fn tell(&mut self, request: &Request) {
        let Some([requests, _]) = &self.broker else { return };
        if send_with(requests, &encode(request), &[]).is_err() {
            self.broker = None;
        }
    }

    fn ask(&mut self, request: &Request) -> Option<Reply> {
        self.tell(request);
        let [requests, _] = self.broker.as_ref()?;
        before_read(requests);
        let reply = receive(requests, RecvFlags::DONTWAIT);
        let reply = reply.and_then(|(packet, _)| decode(&packet));
        if reply.is_none() {
            self.broker = None;
        }
        reply
    }

    /// The next broker gets its credential, and no claims.
    fn resume(&mut self) {
        let (version, credential) = (VERSION, self.credential.clone());
        if self
            .greet(&Request::Resume { version, credential, channels: 64, connection: 0 })
            .is_some()
        {
            self.held.retain(|held| held.entry.is_some());
            self.tell(&Request::Rejoin { manages: Vec::new() });
        }
    }

    /// Takes all events that have come.
    fn hear(&mut self) {
        while let Some([_, events]) = &self.broker
            && let Some((packet, fds)) = receive(events, RecvFlags::DONTWAIT)
        {
            match decode(&packet) {
                Some(Event::Ticket { objects, .. }) => {
                    let mut hostile = self.world.hostile.lock();
                    for Granted { owner, node, strength, .. } in objects {
                        hostile.granted.insert((self.number, owner, node));
                        self.held.push(Held { owner, node, strength, entry: None });
                    }
                }
                Some(Event::Channel { channel: id, end, peer }) => {
                    let mut fds = fds.into_iter();
                    let (Some(file), Some(socket), Some(descriptors)) =
                        (fds.next(), fds.next(), fds.next())
                    else {
                        continue;
                    };
                    let memory = Mapping::new(&file, Access::ReadWrite).expect("its memory");
                    let memory = Arc::new(memory);
                    let (socket, descriptors) = (self.keep(socket), self.keep(descriptors));
                    if end == End::Server && self.dice(4) > 0 {
                        let page = mapping::create("bell", BELL_BYTES).expect("a page");
                        let _ = send_with(&socket, bytes_of(&[0u32, 0]), &[page.as_fd()]);
                    }
                    self.channels.push(Channel {
                        id,
                        end,
                        peer: peer.process,
                        memory,
                        socket,
                        descriptors,
                        packets: 0,
                        tail: 0,
                        returned: 0,
                    });
                }
                _ => {}
            }
        }
    }

    fn request(&mut self) {
        let held = (!self.held.is_empty()).then(|| self.held[self.pick(self.held.len())]);
        let target = held.map_or(ProcessId(self.dice(8)), |held| held.owner);
        let entry = held.and_then(|held| held.entry);
        let has_channel = self.channels.iter().any(|channel| channel.peer == target);
        match self.dice(20) {
            _ if held.is_none() && self.dice(4) > 0 => drop(self.ask(&Request::ContextManager)),
            0..12 if held.is_some() && !has_channel => {
                self.ask(&Request::OpenChannel { target, entry });
            }
            0..12 => {
                let manager = Request::BecomeContextManager { node: NodeId(1), flags: 0x100 };
                let (open, ask) =
                    (Request::OpenChannel { target, entry }, Request::IsFrozen { target });
                let asked = [open, ask, manager, Request::ContextManager];
                self.ask(&asked[self.pick(asked.len())]);
            }
            12 if !self.tickets.is_empty() => {
                let (target, ticket) = self.tickets[self.pick(self.tickets.len())];
                self.tell(&Request::CancelTicket { target, ticket });
            }
            13 | 14 => {
                let Some(Held { owner, node, .. }) = held else { return };
                let is_it = |it: &mut Held| (it.owner, it.node) == (owner, node);
                let given: Vec<_> = self.held.extract_if(.., is_it).collect();
                let counts = |given: &mut dyn Iterator<Item = &Held>| {
                    let given: Vec<_> = given.collect();
                    let strong = given.iter().filter(|it| it.strength == Strength::Strong).count();
                    (strong as u32, given.len() as u32)
                };
                let (strong, grants) = counts(&mut given.iter().filter(|it| it.entry.is_none()));
                if grants > 0 {
                    self.tell(&release(owner, node, strong, grants));
                }
                let (strong, all) = counts(&mut given.iter().filter(|it| it.entry.is_some()));
                if all > 0 {
                    self.give_back(owner, ReturnedGrants { node: node.0, strong, all });
                }
            }
            15 if self.is_rude() => {
                let [node, strong, all] = [(); 3].map(|()| self.number());
                let (strong, all) = (strong as u32, all as u32);
                if self.dice(2) == 0 {
                    let (owner, node, grants) = (target, NodeId(node), all);
                    self.tell(&release(owner, node, strong, grants));
                } else {
                    // No node that it may have been granted in a message that it has not read.
                    let known = held.map(|held| held.node.0).filter(|_| self.dice(2) == 0);
                    let node = known.unwrap_or(node | 1 << 20);
                    self.give_back(target, ReturnedGrants { node, strong, all });
                }
            }
            16 if !self.channels.is_empty() && self.is_rude() => {
                let channel = self.channels[self.pick(self.channels.len())].id;
                self.tell(&Request::CloseChannel { channel });
            }
            17 => self.tell(&Request::Barrier { number: self.number() }),
            _ => self.tell(&Request::FrozenTouched { target, two_way: self.dice(2) == 0 }),
        }
    }

    /// Returns grants to their owner, if there is a channel with it.
    fn give_back(&mut self, owner: ProcessId, record: ReturnedGrants) {
        let Some(channel) = self.channels.iter_mut().find(|it| it.peer == owner) else { return };
        let (at, tail) = match channel.end {
            End::Client => (0, header::CLIENT_RETURNS_TAIL),
            End::Server => (RETURNS_BYTES, header::SERVER_RETURNS_TAIL),
        };
        let at = RETURNS_AT + at + channel.returned as usize % RETURNS_BYTES;
        channel.memory.view().write(at, bytes_of(&record));
        channel.returned += size_of::<ReturnedGrants>() as u64;
        channel.memory.double_word(tail).store(channel.returned, Ordering::Release);
        channel.ring();
    }

    /// Notes what a message has granted to this process.
    fn note_granted(&mut self, peer: ProcessId, at: View<'_>, message: &Message) {
        let Some(parts) = message.parts() else { return };
        for nth in 0..usize::from(message.objects) {
            let mut carried = Carried::default();
            at.read(parts.objects_at + nth * size_of::<Carried>(), bytes_of_mut(&mut carried));
            if carried.origin() == Some(Origin::Sender) {
                let (owner, node, strength) = (peer, NodeId(carried.node), carried.strength());
                self.world.hostile.lock().granted.insert((self.number, owner, node));
                self.held.push(Held { owner, node, strength, entry: Some(carried.entry) });
            }
        }
    }

    /// A node that the other end of a channel offers, and its entry. A use of it has been counted,
    /// or not.
    fn use_known(&self, channel: usize) -> Option<(u8, ProcessId, NodeId)> {
        let Channel { end, memory, .. } = &self.channels[channel];
        let keeper = if *end == End::Client { End::Server } else { End::Client };
        let uses = |entry: u8| memory.word(known_at(keeper, entry) + known::USES);
        let is_offered = |entry: &u8| uses(*entry).load(Ordering::SeqCst) > OFFERED;
        let entry = (0..=u8::MAX).find(is_offered)?;
        if !self.is_rude() {
            uses(entry).fetch_add(1, Ordering::SeqCst);
        }
        let [owner, node] = [known::OWNER, known::NODE]
            .map(|word| memory.double_word(known_at(keeper, entry) + word).load(Ordering::SeqCst));
        Some((entry, ProcessId(owner), NodeId(node)))
    }

    /// What objects for a message on a channel are, and the ticket for those of third processes.
    fn objects(&mut self, channel: usize) -> (Vec<Carried>, u64) {
        let target = self.channels[channel].peer;
        let (mut objects, mut introduced, mut announced) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..1 + self.dice(3) {
            let strong = u32::from(self.dice(3) > 0);
            let strength = if strong == 1 { Strength::Strong } else { Strength::Weak };
            if self.dice(2) == 0
                && let Some((entry, owner, node)) = self.use_known(channel)
            {
                objects.push(Carried::of_known(node, entry));
                announced.push((owner, node, true));
                continue;
            }
            if self.dice(2) == 0 || self.held.is_empty() {
                let (node, entry) = (1 + self.dice(NODES), self.dice(8) as u32);
                if !self.is_rude() {
                    let node = NodeId(node);
                    let holding = Holding { holder: target, node, flags: 0x100, strength };
                    let at = entry as usize * size_of::<Entry>();
                    self.list.view().write(at, bytes_of(&Entry::of(holding)));
                }
                let origin = Origin::Sender as u32;
                objects.push(Carried { node, entry, flags: 0x100, origin, strong });
                continue;
            }
            let Held { owner, node, entry, .. } = self.held[self.pick(self.held.len())];
            let origin = if owner == target { Origin::Receiver } else { Origin::Third } as u32;
            if owner != target {
                introduced.push(HeldNode { owner, node, strength, entry });
                announced.push((owner, node, strength == Strength::Strong));
            }
            objects.push(Carried { node: node.0, origin, strong, ..Carried::default() });
        }
        if announced.is_empty() {
            return (objects, 0);
        }
        // Before the broker has it: the ticket may be claimed by a message that lies there already.
        let note = (target, announced);
        self.world.hostile.lock().announced.push(note.clone());
        if introduced.is_empty() {
            return (objects, 0);
        }
        match self.ask(&Request::Introduce { target, objects: introduced }) {
            Some(Reply::Ticket { ticket }) => {
                self.tickets.push((target, ticket));
                (objects, ticket.0)
            }
            // An answer that is lost with its broker says nothing of its event.
            None => (objects, 0),
            Some(_) => {
                self.world.hostile.lock().forget(&note);
                (Vec::new(), 0)
            }
        }
    }

    // ---- channels ---------------------------------------------------------------------------

    fn channel(&self) -> Option<usize> {
        (!self.channels.is_empty()).then(|| self.pick(self.channels.len()))
    }

    /// A message for the other end of a channel, and what lies behind its header: right, unless
    /// the process is rude.
    fn message(&mut self, channel: usize, kind: Kind) -> (Message, Vec<u8>) {
        let peer = self.channels[channel].peer;
        let has_objects = self.dice(3) == 0;
        let (mut objects, mut ticket) =
            if has_objects { self.objects(channel) } else { Default::default() };
        let mut data = vec![0; 8 * self.dice(20) as usize];
        let mut offsets = Vec::new();
        let mut put = |kind: u32, binder: u64| {
            offsets.push(data.len() as u64);
            data.extend(bytes_of(&FlatObject { kind, flags: 0, binder, cookie: 0 }));
        };
        for object in &objects {
            put(BINDER_TYPE_HANDLE, object.node);
        }
        let mut sent = None;
        if self.dice(10) == 0
            && let Some(number) = self.send_descriptor(channel)
        {
            put(BINDER_TYPE_FD, 0);
            sent = Some(number);
        }
        let mut chain = Vec::new();
        if !self.callers.is_empty() && self.dice(2) == 0 {
            chain.push(self.callers[self.pick(self.callers.len())]);
        }
        let nodes = self.held.iter().filter(|held| held.owner == peer);
        let nodes: Vec<NodeId> = nodes.map(|held| held.node).collect();
        let mut node = match nodes.len() {
            0 => NodeId(self.dice(6)),
            found => nodes[self.pick(found)],
        };
        let fault = if self.is_rude() { self.dice(10) } else { u64::MAX };
        match fault {
            // A ticket that is used up, another one's, or none.
            0 if !self.tickets.is_empty() => {
                ticket = self.tickets[self.pick(self.tickets.len())].1.0;
            }
            1 => ticket = ticket.wrapping_add(self.number()),
            2 => ticket = 0,
            // An object without a grant, none, and two that are one.
            3 => put(BINDER_TYPE_HANDLE, self.dice(6)),
            4 => offsets.push(self.number()),
            5 => {
                let first = offsets.first().copied();
                offsets.fill(first.unwrap_or(0));
            }
            6 => chain.push(ChainEntry { process: peer.0, token: self.number() }),
            7 => node = NodeId(self.dice(16)),
            // A node that it does not hold, and words that mean nothing.
            8 => {
                let (node, origin, strong) = (self.dice(16), Origin::Receiver as u32, 1);
                objects.push(Carried { node, origin, strong, ..Carried::default() });
                put(BINDER_TYPE_BINDER, node);
            }
            9 if !objects.is_empty() => {
                let word = self.number() as u32;
                cast_slice_mut::<Carried, u32>(&mut objects)[self.pick(6)] = word;
            }
            _ => {}
        }
        let mut message = Message {
            word: 0,
            kind: kind as u32,
            node: node.0,
            code: 100 + self.dice(1_000) as u32,
            flags: if self.dice(2) == 0 { TF_ACCEPT_FDS } else { 0 },
            data_bytes: data.len() as u32,
            offsets_bytes: size_of_val(&offsets[..]) as u32,
            buffers_bytes: 0,
            fds: u8::from(sent.is_some()),
            chain: chain.len() as u8,
            objects: objects.len() as u16,
            fds_number: sent.unwrap_or_default(),
            param: -(self.dice(40) as i32),
            ticket,
            stamp: self.dice(1 << 40),
        };
        if kind == Kind::Failed {
            message.code = self.dice(2) as u32;
        }
        if self.is_rude() {
            // One word of the header.
            let at = 1 + self.pick(15);
            cast_slice_mut::<Message, u32>(std::slice::from_mut(&mut message))[at] =
                self.number() as u32;
        }
        let objects = cast_slice(&objects);
        (message, [cast_slice(&chain), objects, &data, cast_slice(&offsets)].concat())
    }

    /// Writes a message at an offset of the channel's memory, but for the first word.
    fn write(&self, channel: &Channel, at: usize, (message, body): &(Message, Vec<u8>)) {
        let view = channel.memory.view();
        view.write(at + 4, &bytes_of(message)[4..]);
        if self.dice(8) == 0 {
            relinquish();
        }
        view.write(at + size_of::<Message>(), body);
    }

    /// Posts a message to the other end, and says so in each way that there is.
    fn post(&self, channel: &Channel, lane: usize, message: &(Message, Vec<u8>)) {
        let at = area_at(lane, channel.other_end());
        self.write(channel, at, message);
        Mailbox::new(channel.memory.word(at)).post();
        if channel.end == End::Client {
            channel.memory.double_word(header::READY).fetch_or(1 << lane, Ordering::SeqCst);
        }
        channel.ring();
    }

    /// As the client: a call.
    fn call(&mut self) {
        let Some(number) = self.channel() else { return };
        let channel = &self.channels[number];
        let lane = self.dice(MOST_LANES) as usize;
        let is_free = Mailbox::new(channel.memory.word(area_at(lane, End::Server))).is_empty();
        if channel.end == End::Client && (is_free || self.is_rude()) {
            let message = self.message(number, Kind::Request);
            self.post(&self.channels[number], lane, &message);
        }
    }

    /// Takes what lies in its inboxes, and answers, or does not.
    fn serve(&mut self) {
        let Some(number) = self.channel() else { return };
        for lane in 0..MOST_LANES as usize {
            let channel = &self.channels[number];
            let (memory, peer) = (Arc::clone(&channel.memory), channel.peer);
            let at = area_at(lane, channel.end);
            let inbox = Mailbox::new(memory.word(at));
            if inbox.is_empty() || self.dice(5) == 0 {
                continue;
            }
            let (mut request, mut caller) = (Message::default(), ChainEntry::default());
            memory.view().read(at, bytes_of_mut(&mut request));
            memory.view().read(at + size_of::<Message>(), bytes_of_mut(&mut caller));
            self.note_granted(peer, memory.part_at::<AREA_BYTES>(at).view(), &request);
            inbox.clear();
            if request.kind != Kind::Request as u32 {
                continue;
            }
            self.callers.push(caller);
            if self.callers.len() > MOST_CALLERS {
                self.callers.remove(0);
            }
            let kind = match self.dice(20) {
                // The caller waits, and may be called back by its token.
                0..3 => continue,
                3 | 4 => Kind::Request,
                5 => Kind::Failed,
                6 => Kind::Dead,
                7 => Kind::Frozen,
                8 if self.is_rude() => continue,
                _ => Kind::Reply,
            };
            let message = self.message(number, kind);
            self.post(&self.channels[number], lane, &message);
        }
    }

    fn send_one_way(&mut self) {
        let Some(number) = self.channel() else { return };
        if self.channels[number].end == End::Server && !self.is_rude() {
            return;
        }
        let message = self.message(number, Kind::OneWay);
        let bytes = (size_of::<Message>() + message.1.len()).next_multiple_of(64);
        let from = self.channels[number].tail as usize % RING_BYTES;
        if from + bytes > RING_BYTES {
            return;
        }
        self.channels[number].tail += bytes as u64;
        let channel = &self.channels[number];
        let size = if self.is_rude() { self.number() as u32 } else { bytes as u32 };
        channel.memory.view().write(RING_AT + from, bytes_of(&size));
        self.write(channel, RING_AT + from, &message);
        let is_rude = self.dice(400) < self.rudeness;
        let tail = if is_rude { self.number() } else { channel.tail };
        channel.memory.double_word(header::RING_TAIL).store(tail, Ordering::Release);
        channel.ring();
    }

    /// A random word in the header, at the ring's start, or in an area.
    fn poke(&self) {
        let Some(number) = self.channel() else { return };
        let memory = &self.channels[number].memory;
        let end = if self.dice(2) == 0 { End::Client } else { End::Server };
        let at = match self.dice(5) {
            // An offer of its own: the node may be anybody's.
            4 => {
                let at = known_at(end, self.dice(KNOWN as u64) as u8);
                memory.double_word(at + known::OWNER).store(self.dice(8), Ordering::SeqCst);
                memory.double_word(at + known::NODE).store(self.dice(8), Ordering::SeqCst);
                let word = memory.word(at + known::USES);
                return word.store(OFFERED | self.dice(4) as u32, Ordering::SeqCst);
            }
            0 => header::READY + 4 * self.pick(400),
            1 => RING_AT + 4 * self.pick(128),
            2 => area_at(self.pick(MOST_LANES as usize), end) + 4 * self.pick(64),
            // The mailbox's flags.
            _ => {
                let word = memory.word(area_at(self.pick(MOST_LANES as usize), end));
                word.fetch_xor(1 << self.dice(9), Ordering::SeqCst);
                return;
            }
        };
        memory.word(at).store(self.number() as u32, Ordering::SeqCst);
    }

    /// Sends a descriptor ahead of a message, and returns its number.
    fn send_descriptor(&mut self, channel: usize) -> Option<u32> {
        let file = mapping::create("sent", 4096).expect("a file");
        let channel = &mut self.channels[channel];
        let packet = [channel.packets, 1];
        send_with(&channel.descriptors, bytes_of(&packet), &[file.as_fd()]).ok()?;
        channel.packets += 1;
        Some(packet[0])
    }

    /// Reads one socket of a channel, or says that some message will not come.
    fn read_socket(&self) {
        let Some(number) = self.channel() else { return };
        let channel = &self.channels[number];
        if channel.packets > 0 && self.dice(2) == 0 {
            let cancelled = self.dice(u64::from(channel.packets) + 2) as u32;
            let _ = send_with(&channel.socket, bytes_of(&[1, cancelled]), &[]);
        }
        let socket = if self.dice(2) == 0 { &channel.socket } else { &channel.descriptors };
        while receive(socket, RecvFlags::DONTWAIT).is_some() {}
    }

    /// Descriptors that are not announced, announced ones that do not come, and no messages at all.
    fn write_socket(&self) {
        let Some(number) = self.channel() else { return };
        let file = mapping::create("sent", 4096).expect("a file");
        let files: Vec<BorrowedFd<'_>> = (0..self.dice(4)).map(|_| file.as_fd()).collect();
        let count = if self.dice(2) == 0 { files.len() as u32 } else { self.number() as u32 };
        let channel = &self.channels[number];
        let (socket, number) = match self.dice(2) {
            0 => (&channel.socket, self.dice(4) as u32),
            _ => (&channel.descriptors, channel.packets),
        };
        let bytes = [8, 8, 8, 4, 0][self.pick(5)];
        let _ = send_with(socket, &bytes_of(&[number, count])[..bytes], &files);
    }
}

impl Channel {
    fn other_end(&self) -> End {
        match self.end {
            End::Server => End::Client,
            End::Client => End::Server,
        }
    }

    /// The doorbell; a full queue wakes, too.
    fn ring(&self) {
        let _ = send_with(&self.socket, bytes_of(&[0u32, 0]), &[]);
    }
}

/// The request that returns grants of the broker's on one node.
fn release(owner: ProcessId, node: NodeId, strong: u32, grants: u32) -> Request {
    Request::Release { released: vec![Released { owner, node, strong, grants }] }
}
