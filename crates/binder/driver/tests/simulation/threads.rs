//! Threads inside the driver: sending, asking the broker, reading, sleeping.

use crate::party::{After, Party, Sending, Stage};
use crate::program::{Held, Pins};
use crate::wire::{Letter, Subject, other};
use crate::world::World;
use baton_abi::control::{ChannelId, End, Object, ProcessId, Reply, Request, Strength};
use baton_abi::lane::{ChainEntry, Kind, MAX_CHAIN, Message};
use baton_abi::uapi::*;
use baton_state::parcel::Named;
use baton_state::thread::Waiting;
use baton_state::transaction::{Departure, Incoming, LaneId, Refusal, Target};
use baton_state::work::{Completion, Tid};
use baton_state::{Manager, Return};
use rustix::io::Errno;

impl World {
    pub fn run_thread(&mut self, party: &mut Party, tid: Tid) {
        let stage = std::mem::replace(&mut party.thread(tid).stage, Stage::Program);
        match stage {
            Stage::Program => self.act(party, tid),
            Stage::FindManager(after) => self.found_manager(party, tid, after),
            Stage::Route(sending) => self.route(party, tid, sending),
            Stage::OpenChannel(sending) => self.opened(party, tid, sending),
            Stage::Translate(sending) => self.translate(party, tid, sending),
            Stage::Translated(sending) => self.translated(party, tid, sending),
            Stage::Post(sending) => self.post_one(party, tid, sending),
            Stage::Posted(sending) => self.posted(party, tid, sending),
            Stage::BecomeManager { ptr, node } => self.became_manager(party, tid, ptr, node),
            Stage::IsFrozen { handle, cookie } => {
                let frozen = matches!(party.answer(tid), Reply::Frozen { frozen: true });
                party.state.freeze_known(handle, cookie, frozen);
            }
            Stage::Freeze => {
                party.answer(tid);
            }
            Stage::Read { process_work, nonblocking } => {
                self.read(party, tid, process_work, nonblocking);
            }
            Stage::Asleep { process_work, .. } => {
                party.state.set_waiting(tid, Waiting::No);
                party.thread(tid).stage = Stage::Read { process_work, nonblocking: false };
            }
            Stage::CatchUp { process_work, nonblocking, number, before } => {
                self.take_events(party);
                party.thread(tid).stage = if party.has_caught_up(number) {
                    self.end_liars(party, Some(tid), &before);
                    Stage::Read { process_work, nonblocking }
                } else {
                    Stage::CatchUp { process_work, nonblocking, number, before }
                };
            }
        }
        self.carry_out(party);
    }

    // ---- sending ----------------------------------------------------------------------------

    pub fn send(&mut self, party: &mut Party, tid: Tid, sending: Box<Sending>) {
        let unknown = matches!(sending.target, Target::Handle(0)) && party.state.manager.is_none();
        if !unknown {
            return self.depart(party, tid, sending);
        }
        if party.ask(tid, Request::ContextManager) {
            party.thread(tid).stage = Stage::FindManager(After::Send(sending));
        } else {
            party.program.unpin(&sending.pins);
        }
    }

    fn found_manager(&mut self, party: &mut Party, tid: Tid, after: After) {
        let reply = party.answer(tid);
        let mut found = false;
        if let Reply::Ticket { ticket } = reply {
            self.take_events(party);
            let claimed = party.state.set_manager(ticket);
            assert!(claimed.is_some() || ticket.era() != party.era, "a ticket that was promised");
            self.carry_out(party);
            if claimed == Some(Manager::Dead) && party.ask(tid, Request::ContextManager) {
                party.thread(tid).stage = Stage::FindManager(after);
                return;
            }
            found = claimed == Some(Manager::Known);
        }
        match after {
            After::Send(sending) if found => self.depart(party, tid, sending),
            After::Send(sending) => {
                let refusal = match World::errno(&reply) {
                    Some(errno) if errno == Errno::INVAL.raw_os_error() => {
                        Refusal::failed(Errno::INVAL)
                    }
                    _ => Refusal::dead(),
                };
                self.refused(party, tid, sending.pins, refusal, None);
            }
            After::Count(strength) => {
                let handle = party.state.manager.unwrap_or(0);
                if found && party.state.increase_manager(strength) {
                    *party.program.count(handle, strength) += 1;
                }
            }
        }
    }

    fn depart(&mut self, party: &mut Party, tid: Tid, mut sending: Box<Sending>) {
        match party.state.depart(tid, sending.target, sending.flags, &sending.sent) {
            Err((refusal, reply_to)) => {
                self.refused(party, tid, sending.pins, refusal, reply_to);
            }
            Ok(departure) => {
                sending.subjects =
                    departure.objects.iter().map(|object| subject(party, object)).collect();
                sending.reply_to = departure.via.filter(|_| departure.kind == Kind::Reply);
                sending.departure = Some(departure);
                party.thread(tid).stage = Stage::Route(sending);
            }
        }
    }

    fn refused(
        &mut self,
        party: &mut Party,
        tid: Tid,
        pins: Pins,
        refusal: Refusal,
        reply_to: Option<LaneId>,
    ) {
        party.thread(tid).underway.push_back(pins);
        match reply_to {
            Some(via) => {
                let posted = self.answer(party, via, refusal.kind(), Some(refusal.errno));
                party.state.reply_refused(tid);
                if !posted {
                    self.caller_has_left(party, tid, via);
                }
            }
            None => {
                party.thread(tid).refused = Some(party.unread_ends(tid));
                party.state.refused(tid, refusal);
            }
        }
    }

    fn turn_back(&mut self, party: &mut Party, tid: Tid, sending: Box<Sending>, refusal: Refusal) {
        let sending = *sending;
        if let (Some(via), None, Kind::Request) =
            (sending.via, departure_via(&sending), kind(&sending))
            && let Some(channel) = self.channels.get_mut(&via.channel)
        {
            channel.ends(End::Client).free |= 1 << via.lane;
        }
        party.state.turn_back(sending.departure.expect("departed"));
        self.refused(party, tid, sending.pins, refusal, sending.reply_to);
    }

    /// A channel and, for a call, a lane.
    fn route(&mut self, party: &mut Party, tid: Tid, mut sending: Box<Sending>) {
        self.do_not_turn_round(party, &mut sending);
        let departure = sending.departure.as_ref().expect("departed");
        let (via, peer, is_call) = (departure.via, departure.peer, departure.kind == Kind::Request);
        if let Some(via) = via {
            if !self.is_channel_open(party.id(), via.channel) {
                return self.turn_back(party, tid, sending, Refusal::dead());
            }
            (sending.via, sending.channel) = (Some(via), via.channel);
            return self.prepare(party, tid, sending);
        }
        let mine: Vec<ChannelId> = self
            .channels
            .values()
            .filter(|c| c.client == party.id() && c.server == peer && c.is_open(End::Client))
            .map(|c| c.id)
            .collect();
        for id in mine {
            let channel = self.channels.get_mut(&id).expect("listed");
            let lane = if is_call { channel.take_lane() } else { None };
            if lane.is_none() && is_call {
                continue;
            }
            sending.via = lane.map(|lane| channel.via(lane));
            sending.channel = id;
            if self.is_frozen(peer) {
                let request = Request::FrozenTouched { target: peer, two_way: is_call };
                party.requests.push_back((request, None));
                if is_call {
                    let refusal = Refusal { command: BR_FROZEN_REPLY, errno: Errno::AGAIN };
                    return self.turn_back(party, tid, sending, refusal);
                }
                sending.completion = Completion::PendingFrozen;
            }
            if !is_call && !self.has_one_way_room(id, &sending) {
                return self.turn_back(party, tid, sending, Refusal::failed(Errno::NOSPC));
            }
            return self.prepare(party, tid, sending);
        }
        party.thread(tid).stage = if party.ask(tid, Request::OpenChannel { target: peer }) {
            Stage::OpenChannel(sending)
        } else {
            Stage::Route(sending)
        };
    }

    /// A lane whose caller has left leads nowhere: the call takes another one.
    fn do_not_turn_round(&mut self, party: &Party, sending: &mut Sending) {
        let departure = sending.departure.as_mut().expect("departed");
        let Some(via) = departure.via.filter(|_| departure.kind == Kind::Request) else { return };
        let Some(channel) = self.channels.get_mut(&via.channel) else { return };
        let reader = other(channel.end_of(party.id()));
        if channel.inbox(reader, via.lane as usize).closed {
            departure.via = None;
        }
    }

    fn opened(&mut self, party: &mut Party, tid: Tid, sending: Box<Sending>) {
        match party.answer(tid) {
            Reply::Done => {
                self.take_events(party);
                let peer = sending.departure.as_ref().expect("departed").peer;
                let open = self
                    .channels
                    .values()
                    .any(|c| c.client == party.id() && c.server == peer && c.is_open(End::Client));
                if !open {
                    return self.turn_back(party, tid, sending, Refusal::dead());
                }
                party.thread(tid).stage = Stage::Route(sending);
            }
            reply => {
                let errno = World::errno(&reply).expect("done or refused");
                let errno = Errno::from_raw_os_error(errno);
                assert!(errno == Errno::SRCH || self.is_between_brokers(errno), "a channel due");
                let gone = errno == Errno::SRCH;
                let refusal = if gone { Refusal::dead() } else { Refusal::failed(errno) };
                self.turn_back(party, tid, sending, refusal);
            }
        }
    }

    fn is_channel_open(&self, of: ProcessId, id: ChannelId) -> bool {
        self.channels.get(&id).is_some_and(|channel| channel.is_open(channel.end_of(of)))
    }

    fn is_frozen(&self, peer: ProcessId) -> bool {
        self.parties.get(&peer).is_some_and(|party| party.frozen)
    }

    fn has_one_way_room(&self, id: ChannelId, sending: &Sending) -> bool {
        let channel = &self.channels[&id];
        let Some(server) = self.parties.get(&channel.server) else { return true };
        let waiting: usize =
            channel.ring.iter().map(|letter| letter.message.data_bytes as usize + 64).sum();
        waiting + sending.data_bytes as usize + 64 <= server.state.buffers.one_way_free()
    }

    fn prepare(&mut self, party: &mut Party, tid: Tid, mut sending: Box<Sending>) {
        let departure = sending.departure.as_ref().expect("departed");
        if departure.kind == Kind::Request {
            let us = party.id().0;
            sending.token = party.state.next_number() ^ us << 32;
            let mut chain = vec![ChainEntry { process: us, token: sending.token }];
            chain.extend(departure.chain.iter().filter(|entry| entry.process != us));
            chain.truncate(MAX_CHAIN);
            sending.chain = chain;
        }
        party.thread(tid).stage = Stage::Translate(sending);
    }

    fn translate(&mut self, party: &mut Party, tid: Tid, sending: Box<Sending>) {
        let departure = sending.departure.as_ref().expect("departed");
        let (target, objects) = (departure.peer, departure.objects.clone());
        party.thread(tid).stage = if objects.is_empty() {
            Stage::Post(sending)
        } else if party.ask(tid, Request::Translate { target, objects }) {
            Stage::Translated(sending)
        } else {
            Stage::Translate(sending)
        };
    }

    fn translated(&mut self, party: &mut Party, tid: Tid, mut sending: Box<Sending>) {
        match party.answer(tid) {
            Reply::Ticket { ticket } => {
                sending.ticket = Some(ticket);
                self.take_events(party);
                party.thread(tid).stage = Stage::Post(sending);
            }
            reply => {
                let errno = World::errno(&reply).expect("a ticket or refused");
                let gone = errno == Errno::SRCH.raw_os_error();
                // A channel that the broker knows to be over is one with a dead peer.
                let errno = Errno::from_raw_os_error(errno);
                let target = sending.departure.as_ref().expect("departed").peer;
                let dead = !self.parties.contains_key(&target);
                let between = self.is_between_brokers(errno);
                assert!(gone || dead || between, "refused {errno} what it has a right to");
                let refusal = if gone { Refusal::dead() } else { Refusal::failed(errno) };
                self.turn_back(party, tid, sending, refusal);
            }
        }
    }

    fn cancel(&self, party: &mut Party, sending: &Sending) {
        let target = sending.departure.as_ref().expect("departed").peer;
        if let Some(ticket) = sending.ticket.filter(|ticket| ticket.era() == party.era) {
            party.requests.push_back((Request::CancelTicket { target, ticket }, None));
        }
    }

    /// For a call the last section before its letter is out, for others the letter.
    fn post_one(&mut self, party: &mut Party, tid: Tid, mut sending: Box<Sending>) {
        let peer = sending.departure.as_ref().expect("departed").peer;
        if !sending.sent.fds.is_empty() && !self.parties.contains_key(&peer) {
            self.cancel(party, &sending);
            return self.turn_back(party, tid, sending, Refusal::failed(Errno::PIPE));
        }
        match kind(&sending) {
            Kind::Request => {
                let via = sending.via.expect("routed");
                self.departed(party, tid, &mut sending, via);
                party.thread(tid).calls += 1;
            }
            Kind::Reply => {
                let letter = self.letter(party.identity.pid, &sending);
                let via = sending.via.expect("a reply has its lane");
                sending.posted = self.post_answer(party, via, letter);
                if !sending.posted {
                    self.cancel(party, &sending);
                }
            }
            _ => {
                let letter = self.letter(party.identity.pid, &sending);
                let id = sending.channel;
                self.channels.get_mut(&id).expect("routed").ring.push_back(letter);
                self.announce(id, false);
            }
        }
        party.thread(tid).stage = Stage::Posted(sending);
    }

    fn departed(&mut self, party: &mut Party, tid: Tid, sending: &mut Sending, via: LaneId) {
        let pins = std::mem::take(&mut sending.pins);
        party.thread(tid).underway.push_back(pins);
        // The parts that posting still needs.
        let departure = sending.departure.clone().expect("departed");
        party.state.departed(tid, departure, via, sending.token, sending.completion);
    }

    fn posted(&mut self, party: &mut Party, tid: Tid, mut sending: Box<Sending>) {
        if kind(&sending) != Kind::Request {
            let via = sending.via.unwrap_or(LaneId { channel: ChannelId(0), lane: 0 });
            self.departed(party, tid, &mut sending, via);
            if kind(&sending) == Kind::Reply && !sending.posted {
                self.caller_has_left(party, tid, via);
            }
            return;
        }
        let via = sending.via.expect("routed");
        let letter = self.letter(party.identity.pid, &sending);
        let departure = sending.departure.as_ref().expect("departed");
        let (peer, nested) = (departure.peer, departure.via.is_some());
        let named = sending.chain[1..].iter().any(|entry| entry.process == peer.0);
        if !self.is_channel_open(party.id(), via.channel) {
            // Its memory is still mapped; nobody reads there.
            return;
        }
        let taken = self.post(party.id(), via, letter);
        if !taken {
            // Who waited on the lane has left.
            self.cancel(party, &sending);
            party.state.answered_with(tid, Kind::Dead, 0);
        } else if !nested {
            self.channels.get_mut(&via.channel).expect("routed").ready |= 1 << via.lane;
            self.announce(via.channel, named);
        }
    }

    fn letter(&mut self, sender: u32, sending: &Sending) -> Letter {
        self.clock += 1;
        let departure = sending.departure.as_ref().expect("departed");
        // A number in the sender's order, but for those that replace one another.
        let update = sending.flags & TF_UPDATE_TXN != 0;
        let code = if update { 1 } else { sender << 20 | self.clock as u32 };
        let message = Message {
            kind: departure.kind as u32,
            node: departure.node.0,
            code,
            flags: sending.flags,
            data_bytes: sending.data_bytes,
            offsets_bytes: 8 * (sending.subjects.len() + sending.sent.fds.len()) as u32,
            fds: sending.sent.fds.len() as u16,
            chain: sending.chain.len() as u16,
            ticket: sending.ticket.map_or(0, |ticket| ticket.0),
            stamp: self.clock,
            ..Message::default()
        };
        let objects = sending.subjects.clone();
        Letter { message, chain: sending.chain.clone(), objects }
    }

    // ---- other questions --------------------------------------------------------------------

    fn became_manager(
        &mut self,
        party: &mut Party,
        tid: Tid,
        ptr: u64,
        node: baton_abi::control::NodeId,
    ) {
        let (reply, era) = match party.asking {
            Some((asker, _)) if asker == tid => party.answer_of(tid),
            _ => (Reply::Refused { errno: Errno::CONNREFUSED.raw_os_error() }, u32::MAX),
        };
        let gone = World::errno(&reply) == Some(Errno::CONNREFUSED.raw_os_error());
        if gone && !party.state.is_of(era) {
            // The broker that was asked may have agreed, and the one after it knows.
            let flags = FLAT_BINDER_FLAG_ACCEPTS_FDS;
            party.ask(tid, Request::BecomeContextManager { node, flags });
            party.thread(tid).stage = Stage::BecomeManager { ptr, node };
            return;
        }
        let done = reply == Reply::Done;
        let object = party.program.objects.get_mut(&ptr).expect("kept by the program");
        if done {
            // The kernel tells of no reference to a manager's node: its program has them all.
            (object.manager, object.strong, object.weak) = (true, true, true);
        } else {
            object.asks_to_manage = false;
            party.state.not_context_manager(node);
            party.program.tidy(ptr);
        }
    }

    // ---- reading ----------------------------------------------------------------------------

    fn read(&mut self, party: &mut Party, tid: Tid, process_work: bool, nonblocking: bool) {
        // A front end's threads have made their first ioctl.
        party.state.thread(tid).return_once = false;
        let mut blocked: Vec<_> = self.accept_answer(party, tid).into_iter().collect();
        if process_work {
            blocked.extend(self.accept(party, None));
        }
        self.carry_out(party);
        if party.state.has_work(tid, process_work) {
            let any = self.collect(party, tid, process_work);
            let once = std::mem::take(&mut party.state.thread(tid).return_once);
            if !any && !once && !nonblocking {
                party.thread(tid).stage = Stage::Read { process_work, nonblocking };
            }
            return;
        }
        if !blocked.is_empty() {
            let (number, before) = (self.ask_barrier(party), blocked);
            party.thread(tid).stage = Stage::CatchUp { process_work, nonblocking, number, before };
        } else if !nonblocking {
            self.sleep(party, tid, process_work);
        }
    }

    fn sleep(&mut self, party: &mut Party, tid: Tid, process_work: bool) {
        let (waiting, awake) = match party.state.thread(tid).calls_on() {
            Some(calling) => (Waiting::Lane(calling.via), false),
            None if process_work => {
                let news = self
                    .channels
                    .values()
                    .any(|c| c.server == party.id() && c.is_open(End::Server) && c.has_news());
                (Waiting::Bell, news)
            }
            None => (Waiting::Own, false),
        };
        party.state.set_waiting(tid, waiting);
        party.thread(tid).stage = Stage::Asleep { process_work, waiting, awake };
    }

    /// Takes what there is, as much as the program's buffer holds. False if it came to nothing.
    fn collect(&mut self, party: &mut Party, tid: Tid, process_work: bool) -> bool {
        let mut room = 1 + self.rng.below(4);
        let mut any = false;
        while room > 0 {
            let Some(item) = party.state.next_return(tid, process_work) else { break };
            room -= 1;
            any |= !matches!(item, Return::Nothing);
            if self.trace {
                println!("      {:?}.{tid} <- {item:?}", party.id());
            }
            if self.take(party, tid, item) {
                break;
            }
        }
        any
    }

    /// One return, to the program. True if it ends the read.
    fn take(&mut self, party: &mut Party, tid: Tid, item: Return) -> bool {
        match item {
            Return::Nothing => {}
            Return::Node(news) => party.program.node_news(&news),
            Return::Transaction(incoming, subject) => {
                let node = incoming.node.expect("a transaction has a node");
                let (ptr, cookie) = subject;
                let object = party.program.objects.get(&ptr);
                let object = object.unwrap_or_else(|| panic!("a call to {ptr:x}, which is gone"));
                assert!(object.cookie == cookie && object.is_alive(), "a call to a dead object");
                assert!(party.state.nodes.get(node).is_some_and(|node| node.ptr == ptr));
                let one_way = incoming.serving.is_none().then_some(ptr);
                if one_way.is_some() {
                    party.program.one_way(ptr, cookie, incoming.code);
                }
                keep(party, &incoming, one_way);
                return true;
            }
            Return::Reply(incoming) => {
                self.call_ended(party, tid);
                keep(party, &incoming, None);
                return true;
            }
            Return::Bare(BR_FAILED_REPLY | BR_DEAD_REPLY | BR_FROZEN_REPLY) => {
                if party.thread(tid).refused == Some(0) {
                    party.thread(tid).refused = None;
                    self.completed(party, tid);
                } else {
                    self.call_ended(party, tid);
                }
            }
            Return::Bare(_) => self.completed(party, tid),
            Return::Cookie(BR_DEAD_BINDER, cookie) => {
                check_dead(party, cookie);
                party.program.dead(cookie);
                return true;
            }
            Return::Cookie(BR_CLEAR_DEATH_NOTIFICATION_DONE, cookie) => {
                party.program.death_cleared(cookie);
            }
            Return::Cookie(_, cookie) => party.program.freeze_cleared(cookie),
            Return::Frozen(cookie, frozen) => party.program.frozen(cookie, frozen),
        }
        false
    }

    fn call_ended(&mut self, party: &mut Party, tid: Tid) {
        let thread = party.thread(tid);
        thread.calls = thread.calls.checked_sub(1).expect("the end of a call");
        thread.refused = thread.refused.map(|before| before - 1);
    }

    fn completed(&mut self, party: &mut Party, tid: Tid) {
        let pins = party.thread(tid).underway.pop_front().expect("completed what was sent");
        party.program.unpin(&pins);
    }
}

fn kind(sending: &Sending) -> Kind {
    sending.departure.as_ref().expect("departed").kind
}

fn departure_via(sending: &Sending) -> Option<LaneId> {
    sending.departure.as_ref().and_then(|departure: &Departure| departure.via)
}

fn subject(party: &Party, object: &Object) -> Subject {
    match *object {
        Object::Node { node, strength, .. } => Subject { owner: party.id(), node, strength },
        Object::Handle { handle, strength } => {
            let reference = party.state.references.get(handle).expect("departed with it");
            Subject { owner: reference.owner, node: reference.node, strength }
        }
    }
}

/// The buffer is the program's.
fn keep(party: &mut Party, incoming: &Incoming, one_way: Option<u64>) {
    let granted = party.state.contents[&incoming.buffer].held.clone();
    let fds = party.arrived.remove(&incoming.buffer).unwrap_or_default();
    let before = party.program.buffers.insert(incoming.buffer, Held { granted, fds, one_way });
    assert!(before.is_none(), "a buffer handed out twice");
}

fn check_dead(party: &Party, cookie: u64) {
    let notice = party.program.deaths.get(&cookie).expect("BR_DEAD_BINDER nobody asked for");
    let listens = party
        .state
        .references
        .get(notice.handle)
        .and_then(|reference| reference.death)
        .is_some_and(|death| death.cookie == cookie);
    assert!(listens || notice.cleared, "BR_DEAD_BINDER for a handle that was dropped");
}

/// What the program names in a transaction.
pub fn named(ptr: u64, cookie: u64, strength: Strength) -> Named {
    Named::Binder { ptr, cookie, flags: FLAT_BINDER_FLAG_ACCEPTS_FDS, strength }
}
