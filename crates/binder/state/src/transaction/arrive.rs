//! Arrival: how a transaction comes in.

use crate::account::Resource;
use crate::buffer::{NoRoom, Offset, Use, allocation_bytes};
use crate::message::{Buffer, HeldObject, Incoming, LaneId, LaneSender, Received, Serving};
use crate::peer::{NOBODY, take_sender_user};
use crate::priority::QueuePriority;
use crate::process::State;
use crate::ticket::Key;
use crate::work::{Queue, Tid, Work};
use baton_abi::control::{ChannelId, NodeId, ProcessId, Strength, TicketId};
use baton_abi::lane::{Carried, ChainEntry, Kind, Message, Origin};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::*;
use rustix::io::Errno;

/// Why a message does not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event that allows it has not come yet.
    NotYet,
    /// There is no room for a one-way message: it waits.
    NoRoom,
    /// The message is refused, with the error for its sender.
    Refused(Kind, Errno),
}

/// Room that has been taken for a message.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Its place in the mapping.
    pub buffer: Offset,
    /// The place of the sender's label. `None` if the node does not want it.
    pub label: Option<Offset>,
}

/// The sender of a message, and the channel by which the message has come.
pub type Sender = (ProcessId, ChannelId);

/// A message as the runner read it from a channel, its header validated.
#[derive(Clone, Debug)]
pub struct Arrival<'a> {
    /// The channel and lane; the lane does not matter to an ordinary one-way transaction.
    pub via: LaneId,
    /// Its sender.
    pub peer: ProcessId,
    /// Its header.
    pub message: &'a Message,
    /// The callers above, and the sender's user where the message names it.
    pub chain: Vec<ChainEntry>,
    /// What its nodes and handles are.
    pub objects: Vec<Carried>,
    /// The sender of a one-way transaction that comes by the ring of a lane.
    pub lane_sender: Option<LaneSender>,
}

impl Arrival<'_> {
    /// Its sender, and the channel by which it has come.
    fn sender(&self) -> Sender {
        (self.peer, self.via.channel)
    }

    /// The priority of its real-time sender, if it is one-way and has one.
    fn priority(&self) -> Option<SchedPriority> {
        self.lane_sender?.priority
    }

    /// The ticket that carries its references.
    fn ticket(&self) -> Key {
        (self.peer, TicketId(self.message.ticket))
    }
}

/// The recipient of a request, unless its chain names another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// Any looper of the pool.
    Pool,
    /// The thread to which the lane is dedicated, unless the chain names another one. It takes the
    /// request in itself.
    Dedicated(Tid),
    /// The thread that waits on the lane for an answer: the lane has turned round.
    Waiting(Tid),
}

impl State {
    /// Checks a transaction's right to come in and takes room for it.
    pub fn admit(&mut self, arrival: &Arrival<'_>) -> Result<Room, Verdict> {
        let message = arrival.message;
        let node = NodeId(message.node);
        let peer = self.peers.get(&arrival.peer);
        let may_call = peer.is_some_and(|peer| peer.holds(node, Strength::Strong));
        if !may_call {
            return Err(self.missing(arrival));
        }
        self.check_objects(arrival)?;
        let Some(target) = self.nodes.get(node) else {
            return Err(Verdict::Refused(Kind::Dead, Errno::SRCH));
        };
        if message.fds > 0 && !target.accepts_fds() {
            return Err(Verdict::Refused(Kind::Failed, Errno::PERM));
        }
        let label = peer.filter(|_| target.wants_label()).map(|peer| peer.label.len() + 1);
        if let Some(peer) = self.peers.get_mut(&arrival.peer) {
            peer.called.insert(node);
        }
        let usage = match (message.kind == Kind::OneWay as u32, arrival.priority()) {
            (false, _) => Use::Call,
            (true, None) => Use::OneWay,
            (true, Some(_)) => Use::RealTimeOneWay,
        };
        self.take_room(message, label, usage, arrival.via.channel)
    }

    /// Checks that the sender has what it sends: a ticket, the nodes of this process, and the known
    /// ones; and that there is room for new handles.
    pub(super) fn check_objects(&self, arrival: &Arrival<'_>) -> Result<(), Verdict> {
        let has_ticket = arrival.message.ticket == 0 || self.tickets.has(arrival.ticket());
        let objects = &arrival.objects;
        if !has_ticket
            || !self.has_sent_home(arrival.peer, objects)
            || !self.offers(arrival.via.channel, objects)
        {
            return Err(self.missing(arrival));
        }
        match self.has_room_for(arrival.peer, &arrival.objects) {
            true => Ok(()),
            false => Err(Verdict::Refused(Kind::Failed, Errno::DQUOT)),
        }
    }

    /// Whether a peer holds all nodes of this process among what it sends.
    pub(super) fn has_sent_home(&self, from: ProcessId, objects: &[Carried]) -> bool {
        let peer = self.peers.get(&from);
        let holds = |object: &Carried| {
            peer.is_some_and(|peer| peer.holds(NodeId(object.node), object.strength()))
        };
        objects.iter().filter(|it| it.origin() == Some(Origin::Receiver)).all(holds)
    }

    /// Whether the peer's user may give this process the handles that are new among these.
    pub(super) fn has_room_for(&self, from: ProcessId, objects: &[Carried]) -> bool {
        let is_new = |object: &&Carried| {
            let node = NodeId(object.node);
            object.origin() == Some(Origin::Sender) && self.needs_share((from, node))
        };
        let n_new = objects.iter().filter(is_new).count();
        let account = || self.accounts.of(self.user_of(from));
        n_new == 0 || account().take(Resource::Handles, n_new).is_some()
    }

    /// The verdict of a message whose event has not come. The event will never come if a dead
    /// broker was to send it.
    pub(super) fn missing(&self, arrival: &Arrival<'_>) -> Verdict {
        if self.tickets.is_overdrawn(arrival.ticket()) {
            return Verdict::Refused(Kind::Failed, Errno::DQUOT);
        }
        match self.broker.may_send(arrival.message.ticket) {
            true => Verdict::NotYet,
            false => Verdict::Refused(Kind::Failed, Errno::CONNREFUSED),
        }
    }

    pub(super) fn take_room(
        &mut self,
        message: &Message,
        label: Option<usize>,
        usage: Use,
        channel: ChannelId,
    ) -> Result<Room, Verdict> {
        let [data, offsets, buffers] =
            [message.data_bytes, message.offsets_bytes, message.buffers_bytes]
                .map(|it| it as usize);
        let bytes = allocation_bytes(data, offsets, buffers, label.unwrap_or(0));
        let one_way = (usage != Use::Call).then_some(channel);
        match self.allocate(bytes, usage) {
            Ok(buffer) => {
                let label = label.map(|label| buffer + bytes - label.next_multiple_of(8));
                self.contents.insert(buffer, Buffer { bytes, one_way, ..Buffer::default() });
                if let Some(channel) = one_way {
                    let account = self.one_way_accounts.entry(channel).or_default();
                    *account = (account.0 + bytes, account.1 + 1);
                }
                Ok(Room { buffer, label })
            }
            Err(NoRoom::NotMapped) => Err(Verdict::Refused(Kind::Dead, Errno::SRCH)),
            // Its sender knows better, unless the sender's engine lies.
            Err(NoRoom::TooLarge) => Err(Verdict::Refused(Kind::Failed, Errno::NOSPC)),
            Err(_) if one_way.is_some() => Err(Verdict::NoRoom),
            Err(_) => Err(Verdict::Refused(Kind::Failed, Errno::NOSPC)),
        }
    }

    /// Takes the references of a message that comes in: one for each of its objects, in order,
    /// unless its sender has put too many of third processes into it, or too few.
    pub fn claim(&mut self, arrival: &Arrival<'_>) -> Vec<HeldObject> {
        let introduced = self.tickets.take(arrival.ticket()).unwrap_or_default();
        let mut introduced = introduced.into_iter();
        let mut held = Vec::with_capacity(arrival.objects.len());
        for object in &arrival.objects {
            held.extend(match object.origin() {
                Some(Origin::Third) => introduced.next().map(|introduced| {
                    let held = self.hold(&introduced);
                    self.learn(arrival.via.channel, &introduced.granted);
                    held
                }),
                _ => self.hold_carried(arrival.sender(), object),
            });
        }
        held.extend(introduced.map(|introduced| self.hold(&introduced)));
        held
    }

    /// Takes a node that its sender grants, one of this process that returns, or a known one.
    /// `None` if the sender may not name it, and of another one of a third process.
    pub(super) fn hold_carried(
        &mut self,
        (from, channel): Sender,
        object: &Carried,
    ) -> Option<HeldObject> {
        match object.origin()? {
            Origin::Sender => Some(self.hold_of_owner(from, object)),
            Origin::Receiver => {
                let (node, strength) = (NodeId(object.node), object.strength());
                let has = self.peers.get(&from).is_some_and(|peer| peer.holds(node, strength));
                has.then(|| self.hold_own(node, strength))
            }
            Origin::Known => self.hold_known(channel, object),
            Origin::Third => None,
        }
    }

    /// Consumes a message that is refused: its references go back.
    pub fn drop_claim(&mut self, arrival: &Arrival<'_>) {
        self.release_ticket(arrival.ticket());
        self.drop_carried(arrival.sender(), &arrival.objects);
    }

    /// Lets the references go of a message that has been dropped, besides those of its ticket.
    pub fn drop_carried(&mut self, sender: Sender, objects: &[Carried]) {
        let is_home = |object: &&Carried| object.origin() == Some(Origin::Receiver);
        for object in objects.iter().filter(|object| !is_home(object)) {
            if let Some(held) = self.hold_carried(sender, object) {
                self.let_go(&held);
            }
        }
    }

    /// Undoes [`State::admit`] and [`State::claim`] of a malformed message.
    pub fn reject(&mut self, room: Room, received: Received) {
        let buffer = self.contents.get_mut(&room.buffer).expect("admitted");
        buffer.received = received;
        self.drop_buffer(room.buffer, None);
    }

    /// Queues a transaction that lies in its buffer, complete, for its recipient or for the thread
    /// that its chain names. A one-way transaction is queued at its node.
    pub fn deliver(
        &mut self,
        recipient: Recipient,
        mut arrival: Arrival<'_>,
        room: Room,
        contents: Received,
    ) {
        let (message, user) = (arrival.message, take_sender_user(&mut arrival.chain));
        let node = NodeId(message.node);
        let one_way = message.kind == Kind::OneWay as u32;
        let target = self.nodes.get_mut(node).expect("admitted");
        target.local.strong += 1;
        let min_priority = target.min_priority().max(arrival.priority());
        self.fill(room, message, contents, Some(node));
        let nested = arrival.chain.iter().find(|entry| entry.process == self.id.0);
        let named = nested.and_then(|entry| self.tokens.get(&entry.token)).copied();
        let thread = match recipient {
            Recipient::Waiting(tid) => Some(tid),
            Recipient::Dedicated(tid) => named.or(Some(tid)),
            Recipient::Pool => named,
        };
        let received = self.incoming(arrival.peer, user, message, room);
        let incoming = Incoming {
            node: Some(node),
            // The message's place decides whether it is one-way, not its flags: a thread with a
            // wrong flag would never answer, and so never serve again.
            flags: message.flags & !TF_ONE_WAY | if one_way { TF_ONE_WAY } else { 0 },
            sender: (if one_way { 0 } else { received.sender.0 }, received.sender.1),
            min_priority,
            queue_priority: QueuePriority::of(message.param),
            lane_sender: arrival.lane_sender,
            serving: (!one_way).then_some(Serving {
                via: arrival.via,
                peer: arrival.peer,
                accepts_fds: message.flags & TF_ACCEPT_FDS != 0,
                chain: arrival.chain,
            }),
            ..received
        };
        self.received += 1;
        if one_way {
            return self.queue_one_way(node, incoming, thread);
        }
        self.outstanding += 1;
        if let Some(tid) = thread {
            // A looper that has this call to serve makes none of its own for a one-way transaction.
            self.give_one_ways_back(tid);
        }
        self.push(thread.map_or(Queue::Process, Queue::Thread), Work::Transaction(incoming));
    }

    /// The common part of a transaction and a reply that lie in their buffer. `user`: that of the
    /// sender, where the message names it.
    pub(super) fn incoming(
        &self,
        peer: ProcessId,
        user: Option<u32>,
        message: &Message,
        room: Room,
    ) -> Incoming {
        let sender = self.peers.get(&peer).map_or((0, NOBODY), |peer| peer.sender(user));
        Incoming {
            buffer: room.buffer,
            peer,
            node: None,
            code: message.code,
            flags: message.flags,
            sizes: (message.data_bytes as usize, message.offsets_bytes as usize),
            sender,
            label: room.label,
            min_priority: None,
            queue_priority: QueuePriority::default(),
            lane_sender: None,
            serving: None,
        }
    }

    pub(super) fn fill(
        &mut self,
        room: Room,
        message: &Message,
        received: Received,
        node: Option<NodeId>,
    ) {
        let buffer = self.contents.get_mut(&room.buffer).expect("admitted");
        (buffer.node, buffer.received) = (node, received);
        buffer.clear = message.flags & TF_CLEAR_BUF != 0;
    }
}
