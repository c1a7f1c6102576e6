//! What the engine's runner does around its state, critical section by critical section: events
//! before messages that rest on them, messages before the events that take their ground away.

use crate::party::{Party, Stage};
use crate::wire::{Channel, Inbox, Letter, Subject, other};
use crate::world::World;
use baton_abi::control::{ChannelId, End, Event, Granted, ProcessId, Request, TicketId};
use baton_abi::lane::{Kind, Message};
use baton_abi::uapi::TF_UPDATE_TXN;
use baton_state::Effect;
use baton_state::thread::{FrameKind, Waiting};
use baton_state::transaction::{Arrival, LaneId, Received, Recipient, Room, Verdict};
use baton_state::work::Tid;
use rustix::io::Errno;

/// What lies first on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    Lane(usize),
    OneWay,
}

/// A message that waits for an event of the broker: its channel, and when it was posted.
pub type Blocked = (ChannelId, u64);

/// What became of a message.
enum Taken {
    In,
    Told(Kind, Errno),
    Later,
    NoRoom,
}

impl World {
    // ---- effects ----------------------------------------------------------------------------

    pub fn carry_out(&mut self, party: &mut Party) {
        self.carry_out_effects(party);
        while party.state.take_made_room() {
            self.made_room(party);
            self.carry_out_effects(party);
        }
    }

    fn carry_out_effects(&mut self, party: &mut Party) {
        while party.state.has_effects() {
            for effect in party.state.take_effects() {
                if self.trace && !matches!(effect, Effect::WakeLooper | Effect::Wake(..)) {
                    println!("      {:?}: {effect:?}", party.id());
                }
                self.carry_out_one(party, effect);
            }
        }
    }

    fn carry_out_one(&mut self, party: &mut Party, effect: Effect) {
        match effect {
            Effect::Wake(_, Waiting::No)
            | Effect::Account(_)
            | Effect::EndSending(_)
            | Effect::Forgotten(_) => {}
            Effect::Wake(_, Waiting::Bell) | Effect::WakeLooper => {
                party.wake(|waiting| waiting == Waiting::Bell);
            }
            Effect::Wake(tid, waiting) => {
                if let Some(thread) = party.threads.get_mut(&tid)
                    && let Stage::Asleep { waiting: on, awake, .. } = &mut thread.stage
                {
                    assert_eq!(*on, waiting, "woken where it does not sleep");
                    *awake = true;
                }
            }
            Effect::Tell(request) => party.requests.push_back((request, None)),
            Effect::Leave(via, open) => self.leave_lane(party, via, &open),
            Effect::Close(fds) => {
                for fd in fds {
                    assert!(party.fds.remove(&fd), "descriptor {fd} closed twice");
                }
            }
            // No lane here is a real-time caller's.
            Effect::Relieved(..) | Effect::LookAfter(_) | Effect::Watchdog => {
                unreachable!("nobody is on dedicated")
            }
            Effect::Complain(line) => {
                assert!(line.starts_with("BC_ACQUIRE tried"), "a rule kept, yet: {line}");
            }
        }
    }

    /// A thread has left with this open on a lane, innermost first.
    fn leave_lane(&mut self, party: &mut Party, via: LaneId, mut open: &[FrameKind]) {
        let id = party.id();
        let Some(channel) = self.open_channel(id, via.channel) else { return };
        let (end, peer, lane) = (channel.end_of(id), channel.peer_of(id), via.lane as usize);
        let mut owes = open[0] == FrameKind::Serving;
        let inbox = channel.inbox(end, lane);
        if open.contains(&FrameKind::Calling) {
            inbox.closed = true;
            if let Some(letter) = inbox.letter.take() {
                party.state.drop_ticket(peer, TicketId(letter.message.ticket));
                if letter.message.kind == Kind::Request as u32 {
                    owes = true;
                } else {
                    open = &open[1..];
                    owes = !open.is_empty();
                }
            }
        }
        let waits = open.contains(&FrameKind::Calling);
        if !waits {
            *inbox = Inbox::default();
        }
        let left_too = owes && !self.answer(party, via, Kind::Dead, None);
        let channel = self.channels.get_mut(&via.channel).expect("open");
        match end {
            End::Server => {
                channel.ends(end).serving &= !(1 << lane);
                channel.inbox(End::Client, lane).given_back |= left_too;
            }
            End::Client if left_too || !waits => channel.renew_lane(lane),
            End::Client => channel.ends(end).abandoned |= 1 << lane,
        }
    }

    /// An answer of this thread has found nobody on its lane.
    pub fn caller_has_left(&mut self, party: &mut Party, tid: Tid, via: LaneId) {
        let Some(channel) = self.open_channel(party.id(), via.channel) else { return };
        let calling =
            party.state.thread(tid).calls_on().filter(|calling| calling.via == via).copied();
        if let Some(calling) = calling {
            party.state.answered_with(tid, Kind::Dead, 0);
            if calling.owns_lane {
                channel.renew_lane(via.lane as usize);
            }
        } else {
            channel.inbox(End::Client, via.lane as usize).given_back = true;
        }
    }

    fn open_channel(&mut self, of: ProcessId, id: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(&id).filter(|channel| channel.is_open(channel.end_of(of)))
    }

    // ---- posting ----------------------------------------------------------------------------

    pub fn answer(
        &mut self,
        party: &mut Party,
        via: LaneId,
        kind: Kind,
        errno: Option<Errno>,
    ) -> bool {
        let param = errno.map_or(0, |errno| -errno.raw_os_error());
        let message = Message { kind: kind as u32, param, ..Message::default() };
        self.post_answer(party, via, Letter { message, ..Letter::default() })
    }

    /// False if the caller has left.
    pub fn post_answer(&mut self, party: &mut Party, via: LaneId, letter: Letter) -> bool {
        let id = party.id();
        let Some(channel) = self.channels.get_mut(&via.channel) else { return false };
        let end = channel.end_of(id);
        if !channel.is_open(end) {
            return false;
        }
        if end == End::Server {
            channel.ends(end).serving &= !(1 << via.lane);
        }
        self.post(id, via, letter)
    }

    /// Puts a letter into the other end's area of a lane, and wakes who sleeps there.
    pub fn post(&mut self, from: ProcessId, via: LaneId, letter: Letter) -> bool {
        let channel = self.channels.get_mut(&via.channel).expect("posted on an open channel");
        let end = other(channel.end_of(from));
        let reader = channel.peer_of(from);
        let inbox = channel.inbox(end, via.lane as usize);
        if inbox.closed {
            return false;
        }
        assert!(inbox.letter.is_none(), "a message over one that was not taken");
        inbox.letter = Some(letter);
        if let Some(reader) = self.parties.get_mut(&reader) {
            reader.wake(|waiting| waiting == Waiting::Lane(via));
        }
        true
    }

    /// The client's knock: the bell if a looper sleeps, the socket if nobody may come by.
    pub fn announce(&mut self, id: ChannelId, must_look: bool) {
        let channel = self.channels.get_mut(&id).expect("posted on an open channel");
        let Some(server) = self.parties.get_mut(&channel.server) else { return };
        let attended = server.state.pool.there > 0;
        let sleepers = server
            .threads
            .values()
            .any(|thread| matches!(thread.stage, Stage::Asleep { waiting: Waiting::Bell, .. }));
        let woken = server.wake(|waiting| waiting == Waiting::Bell);
        let seen = attended && (woken || !sleepers && !must_look);
        if !seen {
            channel.ends(End::Server).rung = true;
        }
    }

    // ---- coming in --------------------------------------------------------------------------

    /// Takes in what there is; what is left has to wait for an event of the broker.
    pub fn accept(&mut self, party: &mut Party, only: Option<ProcessId>) -> Option<Blocked> {
        while let Some((stamp, id, what)) = self.oldest(party, only) {
            let taken = match what {
                Candidate::Lane(lane) => self.accept_lane(party, id, lane),
                Candidate::OneWay => self.accept_one_way(party, id),
            };
            match taken {
                Taken::In | Taken::Told(..) => {}
                Taken::Later => return Some((id, stamp)),
                Taken::NoRoom => {
                    let channel = self.channels.get_mut(&id).expect("listed");
                    channel.ends(End::Server).full = true;
                }
            }
        }
        None
    }

    /// A buffer has been freed: one-way transactions that waited for room come in.
    fn made_room(&mut self, party: &mut Party) {
        let mut waited = false;
        for channel in self.channels.values_mut().filter(|c| c.server == party.id()) {
            waited |= std::mem::take(&mut channel.ends(End::Server).full);
        }
        if waited {
            self.accept(party, None);
        }
    }

    fn oldest(
        &mut self,
        party: &Party,
        only: Option<ProcessId>,
    ) -> Option<(u64, ChannelId, Candidate)> {
        let mut candidates = Vec::new();
        for (&id, channel) in &mut self.channels {
            let wanted =
                channel.server == party.id() && only.is_none_or(|peer| channel.client == peer);
            if !wanted || !channel.is_open(End::Server) {
                continue;
            }
            let (ready, full) = (channel.ready_lanes(), channel.end(End::Server).full);
            for lane in (0..crate::wire::LANES).filter(|lane| ready >> lane & 1 == 1) {
                let letter = channel.inbox(End::Server, lane).letter.as_ref();
                let letter = letter.expect("a ready lane has a request");
                candidates.push((letter.message.stamp, id, Candidate::Lane(lane)));
            }
            if let Some(letter) = channel.ring.front().filter(|_| !full) {
                candidates.push((letter.message.stamp, id, Candidate::OneWay));
            }
        }
        candidates.into_iter().min_by_key(|&(stamp, ..)| stamp)
    }

    fn accept_lane(&mut self, party: &mut Party, id: ChannelId, lane: usize) -> Taken {
        let channel = self.channels.get_mut(&id).expect("listed");
        let bit = 1 << lane;
        assert_eq!(channel.ends(End::Server).serving & bit, 0, "a second request on a lane");
        let letter = channel.inbox(End::Server, lane).letter.clone().expect("listed");
        let via = channel.via(lane);
        let taken = self.take_in(party, id, &letter, via, None);
        if let Taken::In | Taken::Told(..) = taken {
            let channel = self.channels.get_mut(&id).expect("listed");
            let ends = channel.ends(End::Server);
            ends.ready &= !bit;
            ends.serving |= bit;
            channel.inbox(End::Server, lane).letter = None;
        }
        if let Taken::Told(kind, errno) = taken
            && !self.answer(party, via, kind, Some(errno))
        {
            let channel = self.channels.get_mut(&id).expect("listed");
            channel.inbox(End::Client, lane).given_back = true;
        }
        taken
    }

    fn accept_one_way(&mut self, party: &mut Party, id: ChannelId) -> Taken {
        let channel = self.channels.get_mut(&id).expect("listed");
        let letter = channel.ring.front().cloned().expect("listed");
        let via = channel.via(0);
        let taken = self.take_in(party, id, &letter, via, None);
        if let Taken::In | Taken::Told(..) = taken {
            self.channels.get_mut(&id).expect("listed").ring.pop_front();
        }
        taken
    }

    fn take_in(
        &mut self,
        party: &mut Party,
        id: ChannelId,
        letter: &Letter,
        via: LaneId,
        on: Option<Tid>,
    ) -> Taken {
        let peer = self.channels[&id].peer_of(party.id());
        let message = &letter.message;
        let arrival = Arrival { via, peer, message, chain: letter.chain.clone() };
        if message.flags & TF_UPDATE_TXN != 0 && party.frozen {
            let node = baton_abi::control::NodeId(message.node);
            party.state.supersede(peer, node, message.code, message.flags);
        }
        let room = match party.state.admit(&arrival) {
            Ok(room) => room,
            Err(Verdict::NotYet) => return Taken::Later,
            Err(Verdict::NoRoom) => return Taken::NoRoom,
            Err(Verdict::Refused(kind, errno)) => {
                party.state.drop_claim(&arrival);
                return Taken::Told(kind, errno);
            }
        };
        match self.unload(party, &arrival, letter, room) {
            Ok(contents) => {
                let recipient = on.map_or(Recipient::Pool, Recipient::Waiting);
                party.state.deliver(recipient, arrival, room, contents);
            }
            Err(errno) => return Taken::Told(Kind::Failed, errno),
        }
        Taken::In
    }

    /// The objects in place of bytes. Now and then there is no descriptor left to install.
    fn unload(
        &mut self,
        party: &mut Party,
        arrival: &Arrival<'_>,
        letter: &Letter,
        room: Room,
    ) -> Result<Received, Errno> {
        let held = party.state.claim(arrival);
        if letter.message.fds > 0 && self.rng.percent(5) {
            party.state.reject(room, held, Vec::new());
            return Err(Errno::MFILE);
        }
        let fds: Vec<i32> = (0..letter.message.fds).map(|_| party.install_fd()).collect();
        check_translation(party, &held, &letter.objects);
        let array_fds = fds[..fds.len() / 2].to_vec();
        party.arrived.insert(room.buffer, fds[fds.len() / 2..].to_vec());
        Ok(Received { held, fds, array_fds })
    }

    /// Takes what has come back for the thread's innermost call, unless it waits for an event.
    pub fn accept_answer(&mut self, party: &mut Party, tid: Tid) -> Option<Blocked> {
        let calling = *party.state.thread(tid).calls_on()?;
        let via = calling.via;
        let id = party.id();
        let channel = self.channels.get_mut(&via.channel);
        let Some(channel) = channel.filter(|channel| channel.is_open(channel.end_of(id))) else {
            party.state.fail_channel(via.channel);
            return None;
        };
        let (end, lane) = (channel.end_of(id), via.lane as usize);
        let letter = channel.inbox(end, lane).letter.clone()?;
        let blocked = Some((via.channel, letter.message.stamp));
        let over = match Kind::from_raw(letter.message.kind) {
            Some(Kind::Reply) => match self.accept_reply(party, tid, via, &letter) {
                Some(over) => over,
                None => return blocked,
            },
            Some(kind @ (Kind::Failed | Kind::Dead | Kind::Frozen)) => {
                party.state.answered_with(tid, kind, letter.message.param);
                true
            }
            Some(Kind::Request) => {
                match self.take_in(party, via.channel, &letter, via, Some(tid)) {
                    Taken::Later => return blocked,
                    Taken::NoRoom => unreachable!("not one-way"),
                    Taken::Told(kind, errno) => {
                        let channel = self.channels.get_mut(&via.channel).expect("open");
                        channel.inbox(end, lane).letter = None;
                        if !self.answer(party, via, kind, Some(errno)) {
                            self.caller_has_left(party, tid, via);
                        }
                        return None;
                    }
                    Taken::In => false,
                }
            }
            other => panic!("an answer of no kind: {other:?}"),
        };
        let channel = self.channels.get_mut(&via.channel).expect("open");
        channel.inbox(end, lane).letter = None;
        if over && calling.owns_lane {
            channel.ends(End::Client).free |= 1 << lane;
        }
        None
    }

    fn accept_reply(
        &mut self,
        party: &mut Party,
        tid: Tid,
        via: LaneId,
        letter: &Letter,
    ) -> Option<bool> {
        let peer = self.channels[&via.channel].peer_of(party.id());
        let message = &letter.message;
        let arrival = Arrival { via, peer, message, chain: Vec::new() };
        match party.state.admit_reply(&arrival) {
            Ok(room) => match self.unload(party, &arrival, letter, room) {
                Ok(contents) => party.state.answered(tid, message, room, contents),
                Err(errno) => {
                    party.state.answered_with(tid, Kind::Failed, -errno.raw_os_error());
                }
            },
            Err(Verdict::NotYet) => return None,
            Err(Verdict::NoRoom) => unreachable!("not one-way"),
            Err(Verdict::Refused(kind, errno)) => {
                party.state.drop_claim(&arrival);
                party.state.answered_with(tid, kind, -errno.raw_os_error());
            }
        }
        Some(true)
    }

    // ---- events -----------------------------------------------------------------------------

    pub fn take_events(&mut self, party: &mut Party) {
        while !party.events.is_empty() {
            self.take_event(party);
        }
    }

    pub fn take_event(&mut self, party: &mut Party) {
        let Some(event) = party.events.pop_front() else {
            return self.learn_of_loss(party);
        };
        if self.trace {
            println!("      {:?} hears {event:?}", party.id());
        }
        match event {
            Event::Channel { channel, end, peer } => {
                let known = party.state.peers.entry(peer.process).or_default();
                (known.pid, known.uid) = (peer.pid, peer.uid);
                known.label = peer.security_context;
                let shared = self.channels.get_mut(&channel).expect("the broker made it");
                shared.ends(end).known = true;
            }
            Event::Barrier { number } => party.barrier_seen = party.barrier_seen.max(number),
            Event::References { holder: (process, None), .. } => {
                self.accept(party, Some(process));
                party.state.event(event);
            }
            Event::Dead { process } => {
                self.accept(party, Some(process));
                party.state.event(event);
                self.carry_out(party);
                self.remove_channels(party.id(), process);
            }
            event => party.state.event(event),
        }
        if party.events.is_empty() {
            // A peer may have been faster than its event: what it posted has rung for nobody, or
            // was left for later.
            self.accept(party, None);
        }
        self.carry_out(party);
    }

    fn remove_channels(&mut self, of: ProcessId, with: ProcessId) {
        for channel in self.channels.values_mut() {
            let end = channel.end_of(of);
            if channel.peer_of(of) == with
                && (channel.client == of || channel.server == of)
                && channel.is_open(end)
            {
                channel.ends(end).dead = true;
            }
        }
    }

    /// A peer has rung or hung up.
    pub fn visit(&mut self, party: &mut Party, id: ChannelId) {
        let channel = self.channels.get_mut(&id).expect("listed");
        let (end, peer) = (channel.end_of(party.id()), channel.peer_of(party.id()));
        channel.ends(end).rung = false;
        let over = self.has_hung_up(&self.channels[&id], end);
        let blocked = self.accept(party, over.then_some(peer));
        if over {
            party.state.fail_channel(id);
            self.carry_out(party);
            self.channels.get_mut(&id).expect("listed").ends(end).dead = true;
        }
        self.carry_out(party);
        self.control_catches_up(
            party,
            if over { Vec::new() } else { blocked.into_iter().collect() },
        );
    }

    pub fn control_catches_up(&mut self, party: &mut Party, blocked: Vec<Blocked>) {
        party.control = None;
        if !blocked.is_empty() {
            party.control = Some((self.ask_barrier(party), blocked));
        }
    }

    pub fn ask_barrier(&mut self, party: &mut Party) -> u64 {
        party.barriers += 1;
        party.requests.push_back((Request::Barrier { number: party.barriers }, None));
        party.barriers
    }

    /// After a barrier nothing may be left that waited before it: here, nobody lies. What has come
    /// since may wait for a barrier of its own.
    pub fn end_liars(
        &mut self,
        party: &mut Party,
        caller: Option<Tid>,
        before: &[Blocked],
    ) -> Vec<Blocked> {
        let answer = caller.and_then(|tid| self.accept_answer(party, tid));
        let mut blocked: Vec<Blocked> = answer.into_iter().collect();
        blocked.extend(self.accept(party, None));
        self.carry_out(party);
        let liar = blocked.iter().find(|blocked| before.contains(blocked));
        assert_eq!(liar, None, "{:?}: a message with what it was not given", party.id());
        blocked
    }
}

fn check_translation(party: &Party, held: &[Granted], sent: &[Subject]) {
    assert_eq!(held.len(), sent.len(), "as many references as objects");
    for (granted, subject) in held.iter().zip(sent) {
        match *granted {
            Granted::Handle { owner, node, strength, handle, .. } => {
                assert_eq!(*subject, Subject { owner, node, strength });
                let reference = party.state.references.get(handle).expect("a granted handle");
                assert_eq!((reference.owner, reference.node), (owner, node));
            }
            Granted::Own { node, strength } => {
                assert_eq!(*subject, Subject { owner: party.id(), node, strength });
                assert!(party.state.nodes.get(node).is_some(), "came home to no node");
            }
        }
    }
}
