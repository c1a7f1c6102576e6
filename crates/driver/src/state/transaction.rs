//! Transactions: how one leaves a process, and how one comes in.
//!
//! Leaving: [`State::depart`] checks and counts, the runner gets lane, ticket and descriptors,
//! [`State::departed`] makes it final (or [`State::turn_back`] undoes it) and the runner posts.
//! Coming in: [`State::admit`] checks the peer's right and takes room, the runner copies, then
//! [`State::deliver`] or [`State::answered`] queues it.

use super::buffer::{Offset, allocation_bytes};
use super::thread::{Calling, ExtendedError, Frame};
use super::work::{Completion, Queue, Tid, Work};
use super::{Effect, Return, State};
use crate::parcel::Sent;
use baton_abi::control::{
    ChannelId, Granted, NodeId, Object, ProcessId, Request, Strength, TicketId,
};
use baton_abi::lane::{ChainEntry, Kind, Message};
use baton_abi::uapi::*;
use rustix::io::Errno;

/// A lane of a channel, seen from this process's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Via {
    /// The channel.
    pub channel: ChannelId,
    /// The lane's number in it.
    pub lane: u32,
}

/// A two-way transaction that a thread has to answer.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Where the answer goes.
    pub via: Via,
    /// Whose it is.
    pub peer: ProcessId,
    /// The answer may carry descriptors.
    pub accepts_fds: bool,
    /// The callers above.
    pub chain: Vec<ChainEntry>,
}

/// A transaction or reply that lies in the receive buffer.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Where it lies.
    pub buffer: Offset,
    /// Who sent it.
    pub peer: ProcessId,
    /// Its node, of a transaction.
    pub node: Option<NodeId>,
    /// `binder_transaction_data.code`.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// Bytes of data and of offsets.
    pub sizes: (usize, usize),
    /// The sender's pid, 0 for a one-way transaction, and effective uid.
    pub sender: (u32, u32),
    /// Offset in the mapping of the sender's label, if the node wants it.
    pub label: Option<Offset>,
    /// Who waits for the answer, if anyone.
    pub serving: Option<Serving>,
}

/// What a buffer keeps until it is freed.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    /// The node that the transaction was for: held strongly meanwhile.
    pub node: Option<NodeId>,
    /// The channel whose one-way account it is on.
    pub one_way: Option<ChannelId>,
    /// References in it.
    pub held: Vec<Granted>,
    /// Descriptors to close if the program never gets it.
    pub fds: Vec<i32>,
    /// Descriptors that are closed when the program frees it.
    pub array_fds: Vec<i32>,
    /// TF_CLEAR_BUF.
    pub clear: bool,
    /// The program has got it and may free it.
    pub delivered: bool,
    /// Its size.
    pub bytes: usize,
}

/// What the program asked to send.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// To the node of a handle.
    Handle(u32),
    /// To whom the thread serves.
    Reply,
}

/// A transaction that has been checked and is on its way out.
#[derive(Clone, Debug)]
pub struct Departure {
    /// To whom.
    pub peer: ProcessId,
    /// Its node there; 0 for a reply.
    pub node: NodeId,
    /// What it will be in the lane.
    pub kind: Kind,
    /// The lane, if there is one already: a reply's, or one that turns round.
    pub via: Option<Via>,
    /// What the broker has to translate.
    pub objects: Vec<Object>,
    /// The handle that is kept while the transaction is under way.
    pub handle: Option<u32>,
    /// The callers above the new one.
    pub chain: Vec<ChainEntry>,
    /// A number that no other transaction of this process has.
    pub number: u64,
    in_transit: Vec<(NodeId, Strength)>,
    accepts_fds: bool,
}

/// A transaction that failed: what the sender is told, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `BR_FAILED_REPLY`, `BR_DEAD_REPLY` or `BR_FROZEN_REPLY`.
    pub command: u32,
    /// The extended error's.
    pub errno: Errno,
}

impl Refusal {
    /// `BR_FAILED_REPLY`.
    pub fn failed(errno: Errno) -> Refusal {
        Refusal { command: BR_FAILED_REPLY, errno }
    }

    /// `BR_DEAD_REPLY`.
    pub fn dead() -> Refusal {
        // What BINDER_GET_EXTENDED_ERROR says of a dead node.
        Refusal { command: BR_DEAD_REPLY, errno: Errno::INVAL }
    }

    /// As an answer in a lane.
    pub fn kind(self) -> Kind {
        match self.command {
            BR_DEAD_REPLY => Kind::Dead,
            BR_FROZEN_REPLY => Kind::Frozen,
            _ => Kind::Failed,
        }
    }
}

/// Why a message stays where it is, or worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The event that allows it has not come yet.
    NotYet,
    /// There is no room for it; if it is one-way it waits.
    NoRoom,
    /// Its sender is told.
    Refused(Kind, Errno),
}

/// Room that has been taken for a message.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Where.
    pub buffer: Offset,
    /// Where the sender's label goes, and nothing if the node does not want it.
    pub label: Option<Offset>,
}

/// A message as the runner read it from a channel, its header validated.
#[derive(Clone, Debug)]
pub struct Arrival<'a> {
    /// The channel and lane; the lane does not matter to a one-way transaction.
    pub via: Via,
    /// Who sent it.
    pub peer: ProcessId,
    /// Its header.
    pub message: &'a Message,
    /// The callers above.
    pub chain: Vec<ChainEntry>,
}

impl State {
    // ---- leaving ----------------------------------------------------------------------------

    /// Checks a transaction and counts what it carries. A reply takes its frame off the stack
    /// first, whatever follows; a refused reply has to be told to `Err`'s departure, if any.
    pub fn depart(
        &mut self,
        tid: Tid,
        target: Target,
        flags: u32,
        sent: &Sent,
    ) -> Result<Departure, (Refusal, Option<Via>)> {
        let number = self.next_number();
        self.thread(tid).error = ExtendedError { id: number as u32, ..ExtendedError::default() };
        let mut departure = match target {
            Target::Handle(handle) => {
                self.call_route(tid, handle, flags).map_err(|refusal| (refusal, None))?
            }
            Target::Reply => self.reply_route(tid).map_err(|refusal| (refusal, None))?,
        };
        departure.number = number;
        match self.carry(tid, &mut departure, sent) {
            Ok(()) => {
                if let Some(reference) =
                    departure.handle.and_then(|handle| self.references.get_mut(handle))
                {
                    reference.sending += 1;
                }
                Ok(departure)
            }
            Err(errno) => {
                let via = matches!(target, Target::Reply).then_some(departure.via).flatten();
                departure.handle = None;
                self.turn_back(departure);
                Err((Refusal::failed(errno), via))
            }
        }
    }

    fn call_route(&mut self, tid: Tid, handle: u32, flags: u32) -> Result<Departure, Refusal> {
        let one_way = flags & TF_ONE_WAY != 0;
        let (handle, allowed) = match handle {
            0 => (self.manager.ok_or(Refusal::dead())?, true),
            other => (other, self.holds(other, Strength::Strong)),
        };
        let Some(reference) = self.references.get(handle).filter(|_| allowed) else {
            self.complain(format!("got transaction to invalid handle, {handle}"));
            return Err(Refusal::failed(Errno::INVAL));
        };
        if reference.dead {
            return Err(Refusal::dead());
        }
        let (peer, node) = (reference.owner, reference.node);
        let accepts_fds = reference.flags & FLAT_BINDER_FLAG_ACCEPTS_FDS != 0;
        let thread = self.thread(tid);
        let mut via = None;
        let mut chain = Vec::new();
        if !one_way {
            if thread.calls_on().is_some() {
                self.complain("got new transaction with bad transaction stack".to_owned());
                return Err(Refusal::failed(Errno::PROTO));
            }
            if matches!(thread.todo.first(), Some(Work::Transaction(_) | Work::Reply(_))) {
                self.complain(
                    "new transaction not allowed when there is a transaction on thread todo"
                        .to_owned(),
                );
                return Err(Refusal::failed(Errno::PROTO));
            }
            if let Some(serving) = thread.serves() {
                via = (serving.peer == peer).then_some(serving.via);
                chain.clone_from(&serving.chain);
            }
        }
        let kind = if one_way { Kind::OneWay } else { Kind::Request };
        Ok(Departure {
            peer,
            node,
            kind,
            via,
            objects: Vec::new(),
            handle: Some(handle),
            chain,
            number: 0,
            in_transit: Vec::new(),
            accepts_fds,
        })
    }

    fn reply_route(&mut self, tid: Tid) -> Result<Departure, Refusal> {
        let thread = self.thread(tid);
        let serving = match thread.stack.pop() {
            Some(Frame::Serving(serving)) => serving,
            other => {
                let why = if other.is_some() { "bad" } else { "no" };
                thread.stack.extend(other);
                self.complain(format!("got reply transaction with {why} transaction stack"));
                return Err(Refusal::failed(Errno::PROTO));
            }
        };
        self.outstanding -= 1;
        Ok(Departure {
            peer: serving.peer,
            node: NodeId(0),
            kind: Kind::Reply,
            via: Some(serving.via),
            objects: Vec::new(),
            handle: None,
            chain: Vec::new(),
            number: 0,
            in_transit: Vec::new(),
            accepts_fds: serving.accepts_fds,
        })
    }

    /// Names the objects for the broker; a node of ours is held while it is in transit.
    fn carry(&mut self, tid: Tid, departure: &mut Departure, sent: &Sent) -> Result<(), Errno> {
        let refused_fd = match sent.bad_fd {
            _ if !sent.fds.is_empty() && !departure.accepts_fds => Some((0, Errno::PERM)),
            Some(bad) => Some((bad, Errno::BADF)),
            None => None,
        };
        let refused_fd = refused_fd.map(|(fd, errno)| (sent.before_fd.get(fd).copied(), errno));
        for (index, object) in sent.objects.iter().enumerate() {
            if let Some((Some(before), errno)) = refused_fd
                && before <= index
            {
                return self.refuse_fd(errno);
            }
            let object = match *object {
                crate::parcel::Named::Binder { ptr, cookie, flags, strength } => {
                    let node = self.nodes.find_or_add(ptr, cookie, flags);
                    let known = self.nodes.get_mut(node).expect("just found").cookie;
                    if known != cookie {
                        self.complain(format!(
                            "sending u{ptr:016x} node, cookie mismatch {cookie:016x} != {known:016x}"
                        ));
                        return Err(Errno::INVAL);
                    }
                    // What came before in the same parcel makes the receiver a holder already.
                    if departure.in_transit.contains(&(node, strength)) {
                        let node = self.nodes.get_mut(node).expect("just found");
                        *node.in_transit.of(strength) += 1;
                    } else {
                        self.put_in_transit(tid, node, strength, departure.peer);
                    }
                    departure.in_transit.push((node, strength));
                    Object::Node { node, strength, flags }
                }
                crate::parcel::Named::Handle { handle, strength } => {
                    if !self.holds(handle, strength) {
                        self.complain(format!("got transaction with invalid handle, {handle}"));
                        return Err(Errno::INVAL);
                    }
                    Object::Handle { handle, strength }
                }
            };
            departure.objects.push(object);
        }
        match refused_fd {
            Some((_, errno)) => self.refuse_fd(errno),
            None => Ok(()),
        }
    }

    fn refuse_fd(&mut self, errno: Errno) -> Result<(), Errno> {
        if errno == Errno::PERM {
            self.complain("got transaction with fd, but target does not allow fds".to_owned());
        }
        Err(errno)
    }

    /// The sending thread is the one that hears of a node's first references, unless the receiver
    /// holds the node strongly already.
    fn put_in_transit(&mut self, tid: Tid, id: NodeId, strength: Strength, to: ProcessId) {
        let holding = self.peers.get(&to).and_then(|peer| peer.grants.get(&id)).copied();
        let node = self.nodes.get_mut(id).expect("known node");
        *node.in_transit.of(strength) += 1;
        let (told_strong, told_weak) = node.told();
        let moves = match strength {
            Strength::Strong => !told_strong && holding != Some(Strength::Strong),
            Strength::Weak => !told_weak && node.queued.is_none(),
        };
        if moves {
            self.unqueue_node(id);
            self.nodes.get_mut(id).expect("known node").queued = Some(Queue::Thread(tid));
            self.thread(tid).todo.push_deferred(Work::Node(id));
        }
    }

    /// The transaction is as good as posted: what it carried is the broker's to count.
    pub fn departed(
        &mut self,
        tid: Tid,
        mut departure: Departure,
        via: Via,
        token: u64,
        completion: Completion,
    ) {
        let complete = Work::Complete(completion);
        match departure.kind {
            Kind::Request => {
                let owns_lane = departure.via.is_none();
                let (peer, handle) = (departure.peer, departure.handle.take());
                let calling = Calling { via, peer, handle, token, owns_lane, dead: false };
                self.tokens.insert(token, tid);
                let thread = self.thread(tid);
                thread.stack.push(Frame::Calling(calling));
                thread.todo.push_deferred(complete);
            }
            kind => {
                self.thread(tid).todo.push(complete);
                if kind == Kind::Reply {
                    // Only now: the replier hears of its reply before the call further out fails.
                    self.settle(tid);
                }
            }
        }
        self.end_transit(departure);
    }

    /// The transaction is not leaving.
    pub fn turn_back(&mut self, departure: Departure) {
        self.end_transit(departure);
    }

    fn end_transit(&mut self, departure: Departure) {
        for (id, strength) in departure.in_transit {
            if let Some(node) = self.nodes.get_mut(id) {
                *node.in_transit.of(strength) -= 1;
            }
            self.node_changed(id);
        }
        self.end_sending(departure.handle);
    }

    /// A transaction to this handle is on its way no more.
    pub(super) fn end_sending(&mut self, handle: Option<u32>) {
        let Some(handle) = handle else { return };
        if let Some(reference) = self.references.get_mut(handle) {
            reference.sending -= 1;
        }
        self.return_grants(handle);
    }

    /// The sender's thread is told of a refusal.
    pub fn refused(&mut self, tid: Tid, refusal: Refusal) {
        let thread = self.thread(tid);
        thread.error.command = refusal.command;
        thread.error.param = -refusal.errno.raw_os_error();
        thread.failed = true;
        thread.todo.push(Work::Refused(refusal.command));
    }

    /// A reply was refused: the caller has been told. The replier hears that it was complete, and
    /// until then no command of its runs, as after any refusal.
    pub fn reply_refused(&mut self, tid: Tid) {
        let thread = self.thread(tid);
        thread.failed = true;
        thread.todo.push(Work::Refused(BR_TRANSACTION_COMPLETE));
        self.settle(tid);
    }

    // ---- coming in --------------------------------------------------------------------------

    /// Checks a transaction's right to come in and takes room for it.
    pub fn admit(&mut self, arrival: &Arrival<'_>) -> Result<Room, Verdict> {
        let message = arrival.message;
        let node = NodeId(message.node);
        let peer = self.peers.get(&arrival.peer);
        let may_call = peer.is_some_and(|peer| peer.grants.contains_key(&node));
        if !may_call || !self.has_ticket(arrival) {
            return Err(Verdict::NotYet);
        }
        let Some(target) = self.nodes.get(node) else {
            return Err(Verdict::Refused(Kind::Dead, Errno::SRCH));
        };
        if message.fds > 0 && !target.accepts_fds() {
            return Err(Verdict::Refused(Kind::Failed, Errno::PERM));
        }
        let label = peer.filter(|_| target.wants_label()).map(|peer| peer.label.len() + 1);
        self.take_room(message, label)
    }

    fn has_ticket(&self, arrival: &Arrival<'_>) -> bool {
        let key = (arrival.peer, TicketId(arrival.message.ticket));
        arrival.message.ticket == 0 || self.tickets.contains_key(&key)
    }

    fn take_room(&mut self, message: &Message, label: Option<usize>) -> Result<Room, Verdict> {
        let one_way = message.kind == Kind::OneWay as u32;
        let bytes = message_bytes(message, label.unwrap_or(0));
        match self.buffers.allocate(bytes, one_way) {
            Ok(buffer) => {
                let label = label.map(|label| buffer + bytes - label.next_multiple_of(8));
                self.contents.insert(buffer, Buffer { bytes, ..Buffer::default() });
                Ok(Room { buffer, label })
            }
            Err(super::buffer::NoRoom::NotMapped) => Err(Verdict::Refused(Kind::Dead, Errno::SRCH)),
            Err(_) if one_way => Err(Verdict::NoRoom),
            Err(_) => Err(Verdict::Refused(Kind::Failed, Errno::NOSPC)),
        }
    }

    /// The references that the message's ticket brought, in the order of its objects.
    pub fn claim(&mut self, arrival: &Arrival<'_>) -> Vec<Granted> {
        let key = (arrival.peer, TicketId(arrival.message.ticket));
        self.tickets.remove(&key).unwrap_or_default()
    }

    /// A refused message's references go back.
    pub fn drop_claim(&mut self, arrival: &Arrival<'_>) {
        for granted in self.claim(arrival) {
            self.let_go(&granted);
        }
    }

    /// The message turned out to be malformed: undo [`State::admit`] and [`State::claim`].
    pub fn reject(&mut self, room: Room, held: Vec<Granted>, fds: Vec<i32>) {
        let buffer = self.contents.get_mut(&room.buffer).expect("admitted");
        (buffer.held, buffer.fds) = (held, fds);
        self.drop_buffer(room.buffer, true);
    }

    /// A transaction lies in its buffer, complete. It came down the lane on which the thread `on`
    /// waits, or belongs to the thread that its chain names, or to any looper.
    pub fn deliver(
        &mut self,
        on: Option<Tid>,
        arrival: Arrival<'_>,
        room: Room,
        contents: Received,
    ) {
        let message = arrival.message;
        let node = NodeId(message.node);
        let one_way = message.kind == Kind::OneWay as u32;
        let target = self.nodes.get_mut(node).expect("admitted");
        target.local.strong += 1;
        self.fill(room, message, contents, Some(node), one_way.then_some(arrival.via.channel));
        let (pid, uid) = self.peers.get(&arrival.peer).map_or((0, u32::MAX), |p| (p.pid, p.uid));
        let nested = arrival.chain.iter().find(|entry| entry.process == self.id.0);
        let named = nested.and_then(|entry| self.tokens.get(&entry.token)).copied();
        let waiter = on.or(named);
        let incoming = Incoming {
            buffer: room.buffer,
            peer: arrival.peer,
            node: Some(node),
            code: message.code,
            // Whether it is one-way is where it lay, not what it says: a thread that is told
            // otherwise never answers, and so never serves again.
            flags: message.flags & !TF_ONE_WAY | if one_way { TF_ONE_WAY } else { 0 },
            sizes: (message.data_bytes as usize, message.offsets_bytes as usize),
            sender: (if one_way { 0 } else { pid }, uid),
            label: room.label,
            serving: (!one_way).then_some(Serving {
                via: arrival.via,
                peer: arrival.peer,
                accepts_fds: message.flags & TF_ACCEPT_FDS != 0,
                chain: arrival.chain,
            }),
        };
        self.received += 1;
        if one_way {
            return self.queue_one_way(node, incoming);
        }
        self.outstanding += 1;
        self.push(waiter.map_or(Queue::Process, Queue::Thread), Work::Transaction(incoming));
    }

    fn queue_one_way(&mut self, node: NodeId, incoming: Incoming) {
        self.unread_one_way += 1;
        let target = self.nodes.get_mut(node).expect("admitted");
        if !target.one_way_busy {
            target.one_way_busy = true;
            return self.push_process(Work::Transaction(incoming));
        }
        target.one_way_todo.push_back(incoming);
    }

    /// An outdated one-way transaction makes way for `code` and `flags` (TF_UPDATE_TXN)
    /// of the same sender.
    pub fn supersede(&mut self, peer: ProcessId, node: NodeId, code: u32, flags: u32) {
        let Some(target) = self.nodes.get_mut(node) else { return };
        let same = |old: &Incoming| old.peer == peer && old.code == code && old.flags == flags;
        if let Some(at) = target.one_way_todo.iter().position(same) {
            let old = target.one_way_todo.remove(at).expect("just found");
            self.unread_one_way -= 1;
            self.drop_buffer(old.buffer, true);
        }
    }

    fn fill(
        &mut self,
        room: Room,
        message: &Message,
        contents: Received,
        node: Option<NodeId>,
        one_way: Option<ChannelId>,
    ) {
        let buffer = self.contents.get_mut(&room.buffer).expect("admitted");
        *buffer = Buffer {
            node,
            one_way,
            held: contents.held,
            fds: contents.fds,
            array_fds: contents.array_fds,
            clear: message.flags & TF_CLEAR_BUF != 0,
            delivered: false,
            bytes: buffer.bytes,
        };
    }

    /// Takes room for a reply to this thread's innermost call.
    pub fn admit_reply(&mut self, arrival: &Arrival<'_>) -> Result<Room, Verdict> {
        if !self.has_ticket(arrival) {
            return Err(Verdict::NotYet);
        }
        self.take_room(arrival.message, None)
    }

    /// The reply lies in its buffer, complete.
    pub fn answered(&mut self, tid: Tid, message: &Message, room: Room, contents: Received) {
        self.fill(room, message, contents, None, None);
        let peer = self.thread(tid).calls_on().map_or(ProcessId::BROKER, |calling| calling.peer);
        self.pop_call(tid);
        let incoming = Incoming {
            buffer: room.buffer,
            peer,
            node: None,
            code: 0,
            flags: message.flags,
            sizes: (message.data_bytes as usize, message.offsets_bytes as usize),
            sender: (0, 0),
            label: None,
            serving: None,
        };
        self.unread_replies += 1;
        self.push(Queue::Thread(tid), Work::Reply(incoming));
    }

    /// The call was refused before it was taken in: it never was complete.
    pub fn never_sent(&mut self, tid: Tid, kind: Kind, errno: i32) {
        self.thread(tid).todo.take_last_if(|work| matches!(work, Work::Complete(_)));
        self.pop_call(tid);
        let errno = Errno::from_raw_os_error(-errno);
        self.refused(tid, Refusal { command: refusal_command(kind), errno });
        self.wake(tid);
    }

    /// The call has failed at the other end.
    pub fn answered_with(&mut self, tid: Tid, kind: Kind, errno: i32) {
        self.pop_call(tid);
        let command = refusal_command(kind);
        let error = &mut self.thread(tid).error;
        // What has failed since the call stays to be asked for.
        if error.command == 0 {
            (error.command, error.param) = (command, errno);
        }
        // As in the kernel, of one at a time.
        if !self.thread(tid).todo.any(|work| matches!(work, Work::Error(_))) {
            self.push(Queue::Thread(tid), Work::Error(command));
        }
    }

    /// The calls under way by a handle.
    pub fn callers_by(&self, handle: u32) -> Vec<(Tid, Via)> {
        let calls = |(tid, thread): (&Tid, &super::Thread)| {
            let of = |frame: &Frame| match frame {
                Frame::Calling(calling) if calling.handle == Some(handle) => {
                    Some((*tid, calling.via))
                }
                _ => None,
            };
            thread.stack.iter().find_map(of)
        };
        self.threads.iter().filter_map(calls).collect()
    }

    /// The thread's call by a handle was taken in: the right to call is needed no longer.
    pub fn taken(&mut self, tid: Tid, via: Via) {
        let of = |frame: &&mut Frame| matches!(frame, Frame::Calling(c) if c.via == via);
        if let Some(Frame::Calling(calling)) = self.thread(tid).stack.iter_mut().find(of) {
            let handle = calling.handle.take();
            self.end_sending(handle);
        }
    }

    /// Threads that have not been answered.
    pub fn callers(&self) -> Vec<Tid> {
        let calls = |(_, thread): &(&Tid, &super::Thread)| thread.calls_on().is_some();
        self.threads.iter().filter(calls).map(|(tid, _)| *tid).collect()
    }

    fn pop_call(&mut self, tid: Tid) {
        if let Some(Frame::Calling(calling)) = self.thread(tid).stack.pop() {
            self.tokens.remove(&calling.token);
            self.end_sending(calling.handle);
        }
    }

    /// Calls to a process that is gone fail; one that is not innermost fails when it becomes so.
    pub(super) fn fail_calls(&mut self, process: ProcessId) {
        self.fail_calls_if(|calling| calling.peer == process);
    }

    /// Calls on a channel that has ended fail.
    pub fn fail_channel(&mut self, channel: ChannelId) {
        self.fail_calls_if(|calling| calling.via.channel == channel);
    }

    fn fail_calls_if(&mut self, lost: impl Fn(&Calling) -> bool) {
        let mut tids: Vec<Tid> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            for frame in &mut self.thread(tid).stack {
                if let Frame::Calling(calling) = frame
                    && lost(calling)
                {
                    calling.dead = true;
                }
            }
            self.settle(tid);
        }
    }

    fn settle(&mut self, tid: Tid) {
        if self.thread(tid).calls_on().is_some_and(|calling| calling.dead) {
            self.answered_with(tid, Kind::Dead, -Errno::SRCH.raw_os_error());
        }
    }

    // ---- serving and freeing ----------------------------------------------------------------

    pub(super) fn start_serving(&mut self, tid: Tid, mut incoming: Incoming) -> Return {
        self.hand_over(&incoming);
        if incoming.serving.as_ref().is_some_and(|serving| !self.peers.contains_key(&serving.peer))
        {
            // The caller is dead: there is no process with that number any more.
            incoming.sender.0 = 0;
        }
        let node = incoming.node.and_then(|node| self.nodes.get(node));
        let subject = node.map_or((0, 0), |node| (node.ptr, node.cookie));
        match &incoming.serving {
            Some(serving) => {
                let serving = serving.clone();
                self.thread(tid).stack.push(Frame::Serving(serving));
            }
            None => self.unread_one_way -= 1,
        }
        Return::Transaction(incoming, subject)
    }

    /// The buffer is the program's now, with its descriptors.
    pub(super) fn hand_over(&mut self, incoming: &Incoming) {
        if let Some(buffer) = self.contents.get_mut(&incoming.buffer) {
            buffer.delivered = true;
            buffer.fds.clear();
        }
    }

    /// BC_FREE_BUFFER: `Some` with the bytes to wipe, if the sender asked for that.
    pub fn free(&mut self, offset: Option<Offset>, address: u64) -> Option<(Offset, usize)> {
        let known = offset.and_then(|offset| Some((offset, self.contents.get(&offset)?)));
        let Some((offset, buffer)) = known else {
            self.complain(format!("BC_FREE_BUFFER u{address:016x} no match"));
            return None;
        };
        if !buffer.delivered {
            let line = format!("BC_FREE_BUFFER u{address:016x} matched unreturned buffer");
            self.complain(line);
            return None;
        }
        let wipe = buffer.clear.then_some((offset, buffer.bytes));
        self.drop_buffer(offset, false);
        wipe
    }

    pub(super) fn drop_buffer(&mut self, offset: Offset, undelivered: bool) {
        let Some(buffer) = self.contents.remove(&offset) else { return };
        self.buffers.release(offset);
        let fds = if undelivered { buffer.fds } else { buffer.array_fds };
        if !fds.is_empty() {
            self.effect(Effect::Close(fds));
        }
        if let Some(channel) = buffer.one_way {
            self.effect(Effect::Account(channel));
        }
        if let Some(id) = buffer.node {
            if buffer.one_way.is_some() && !undelivered {
                self.next_one_way(id);
            }
            if let Some(node) = self.nodes.get_mut(id) {
                node.local.strong -= 1;
            }
            self.node_changed(id);
        }
        for granted in &buffer.held {
            self.let_go(granted);
        }
    }

    /// Descriptors that a reader has no use for.
    pub fn close_fds(&mut self, fds: Vec<i32>) {
        if !fds.is_empty() {
            self.effect(Effect::Close(fds));
        }
    }

    fn next_one_way(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        match node.one_way_todo.pop_front() {
            Some(incoming) => self.push_process(Work::Transaction(incoming)),
            None => node.one_way_busy = false,
        }
    }

    /// One-way bytes and buffers that a channel's client has in the receive buffer.
    pub fn one_way_account(&self, channel: ChannelId) -> (usize, usize) {
        let of_channel = |buffer: &&Buffer| buffer.one_way == Some(channel);
        self.contents
            .values()
            .filter(of_channel)
            .fold((0, 0), |(bytes, buffers), buffer| (bytes + buffer.bytes, buffers + 1))
    }

    /// Makes a node of this process the context manager's: it is told of no references to it.
    pub fn context_manager_node(&mut self, ptr: u64, cookie: u64, flags: u32) -> NodeId {
        let id = self.nodes.find_or_add(ptr, cookie, flags);
        self.nodes.get_mut(id).expect("just found").manage();
        id
    }

    /// The broker refused: the node is as it was.
    pub fn not_context_manager(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.do_not_manage();
        }
        self.node_changed(id);
    }

    /// Releases a handle's grants on the broker's side when nothing else will.
    pub fn disown_ticket(&mut self, target: ProcessId, ticket: TicketId) {
        self.effect(Effect::Tell(Request::CancelTicket { target, ticket }));
    }
}

/// What a message became in the receive buffer.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Its references.
    pub held: Vec<Granted>,
    /// Descriptors that were installed for it, all.
    pub fds: Vec<i32>,
    /// Those of them that stand in arrays.
    pub array_fds: Vec<i32>,
}

fn refusal_command(kind: Kind) -> u32 {
    match kind {
        Kind::Dead => BR_DEAD_REPLY,
        Kind::Frozen => BR_FROZEN_REPLY,
        _ => BR_FAILED_REPLY,
    }
}

fn message_bytes(message: &Message, label: usize) -> usize {
    let (data, offsets) = (message.data_bytes as usize, message.offsets_bytes as usize);
    allocation_bytes(data, offsets, message.buffers_bytes as usize, label)
}
