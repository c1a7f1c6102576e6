//! Departure: how a transaction leaves.

use super::refusal::Refusal;
use crate::message::{LaneId, Serving};
use crate::parcel::{Named, Sent};
use crate::process::State;
use crate::thread::{Calling, Frame};
use crate::work::{Completion, Queue, Tid, Work};
use baton_abi::control::{HeldNode, NodeId, ProcessId, Strength};
use baton_abi::lane::{Carried, ChainEntry, Kind, Origin};
use baton_abi::uapi::*;
use rustix::io::Errno;

/// The target of a transaction that the program sends.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The node of a handle.
    Handle(u32),
    /// The caller that the thread serves.
    Reply,
}

/// A transaction that has been checked and is on its way out.
#[derive(Clone, Debug)]
pub struct Departure {
    /// The receiving process.
    pub peer: ProcessId,
    /// Its node there; 0 for a reply.
    pub node: NodeId,
    /// Its kind in the lane.
    pub kind: Kind,
    /// The lane, if there is one already: a reply's, or one that turns round.
    pub via: Option<LaneId>,
    /// Its nodes and handles, in order.
    pub objects: Vec<Carried>,
    /// Those among them of third processes, to which the broker introduces the receiver.
    pub introduced: Vec<HeldNode>,
    /// The handle that is kept while the transaction is under way.
    pub handle: Option<u32>,
    /// The callers above the new one.
    pub chain: Vec<ChainEntry>,
    /// A number that no other transaction of this process has.
    pub number: u64,
    /// Nodes of ours among the objects, which are granted to the receiver.
    granted: Vec<(NodeId, Strength)>,
    /// Handles among the objects.
    pinned: PinnedHandles,
    accepts_fds: bool,
    /// The receiver puts this process's label behind the data.
    pub wants_label: bool,
}

/// Handles in a transaction. Their grants stay until it has been posted: the receiver takes the
/// message in before it hears of grants that are returned later.
#[derive(Clone, Debug, Default)]
#[must_use = "State::unpin ends it"]
pub struct PinnedHandles(Vec<u32>);

impl PinnedHandles {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Departure {
    fn to(peer: ProcessId, kind: Kind) -> Departure {
        Departure {
            peer,
            node: NodeId(0),
            kind,
            via: None,
            objects: Vec::new(),
            introduced: Vec::new(),
            handle: None,
            chain: Vec::new(),
            number: 0,
            granted: Vec::new(),
            pinned: PinnedHandles::default(),
            accepts_fds: false,
            wants_label: false,
        }
    }
}

impl State {
    /// Checks a transaction and counts its objects. A reply takes its frame off the stack first,
    /// in every case. An `Err` names the lane on which a reply's refusal has to be told, if any.
    pub fn depart(
        &mut self,
        tid: Tid,
        target: Target,
        flags: u32,
        sent: &Sent,
    ) -> Result<Departure, (Refusal, Option<LaneId>)> {
        let number = self.has_sent(tid);
        let departure = match target {
            Target::Handle(handle) => self.call_route(tid, handle, flags),
            Target::Reply => self.reply_route(tid),
        };
        let mut departure = departure.map_err(|refusal| (refusal, None))?;
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

    /// The route of a call by this handle, and the calls that it would be part of.
    pub fn call_route(&mut self, tid: Tid, handle: u32, flags: u32) -> Result<Departure, Refusal> {
        let one_way = flags & TF_ONE_WAY != 0;
        let (handle, allowed) = match handle {
            0 => (self.manager.ok_or_else(Refusal::dead)?, true),
            other => (other, self.holds(other, Strength::Strong)),
        };
        let Some(reference) = self.references.get_mut(handle).filter(|_| allowed) else {
            let line = format!("got transaction to invalid handle, {handle}");
            return Err(Refusal::failed(self.complain_of(line, Errno::INVAL)));
        };
        if reference.dead {
            return Err(Refusal::dead());
        }
        reference.called = true;
        let (peer, node) = (reference.owner, reference.node);
        let has_flag = |flag| reference.flags & flag != 0;
        let accepts_fds = has_flag(FLAT_BINDER_FLAG_ACCEPTS_FDS);
        let wants_label = has_flag(FLAT_BINDER_FLAG_TXN_SECURITY_CTX);
        let thread = self.thread(tid);
        let (mut via, mut chain) = (None, Vec::new());
        if !one_way {
            if thread.calls_on().is_some() {
                let line = "got new transaction with bad transaction stack";
                return Err(Refusal::failed(self.complain_of(line, Errno::PROTO)));
            }
            let is_two_way = |work: &Work| match work {
                Work::Transaction(incoming) => incoming.serving.is_some(),
                work => matches!(work, Work::Reply(_)),
            };
            if thread.todo.first().is_some_and(is_two_way) {
                let line = "new transaction not allowed when there is a transaction on thread todo";
                return Err(Refusal::failed(self.complain_of(line, Errno::PROTO)));
            }
            if let Some(serving) = thread.serves() {
                via = (serving.peer == peer).then_some(serving.via);
                chain.clone_from(&serving.chain);
            }
        }
        let kind = if one_way { Kind::OneWay } else { Kind::Request };
        let handle = Some(handle);
        let departure = Departure::to(peer, kind);
        Ok(Departure { node, via, handle, chain, accepts_fds, wants_label, ..departure })
    }

    fn reply_route(&mut self, tid: Tid) -> Result<Departure, Refusal> {
        let thread = self.thread(tid);
        let serving = match thread.stack.pop() {
            Some(Frame::Serving(serving)) => serving,
            other => {
                let why = if other.is_some() { "bad" } else { "no" };
                thread.stack.extend(other);
                let line = format!("got reply transaction with {why} transaction stack");
                return Err(Refusal::failed(self.complain_of(line, Errno::PROTO)));
            }
        };
        self.outstanding -= 1;
        let Serving { peer, via, accepts_fds, .. } = serving;
        let departure = Departure::to(peer, Kind::Reply);
        Ok(Departure { via: Some(via), accepts_fds, ..departure })
    }

    /// Says what the objects are, grants our nodes to the receiver, and pins handles.
    fn carry(&mut self, tid: Tid, departure: &mut Departure, sent: &Sent) -> Result<(), Errno> {
        let is_refused = !sent.fds.is_empty() && !departure.accepts_fds;
        let refused_fd = match sent.bad_fd {
            _ if is_refused => Some((0, Errno::PERM)),
            bad => bad.map(|fd| (fd, Errno::BADF)),
        };
        let before_fd = refused_fd.and_then(|(fd, _)| sent.before_fd.get(fd).copied());
        for object in &sent.objects[..before_fd.unwrap_or(sent.objects.len())] {
            let object = match *object {
                Named::Binder { ptr, cookie, flags, strength } => {
                    let node = self.nodes.find_or_add(ptr, cookie, flags);
                    let known = self.nodes.get_mut(node).expect("just found").cookie;
                    if known != cookie {
                        let line = format!(
                            "sending u{ptr:016x} node, cookie mismatch {cookie:016x} != \
                             {known:016x}"
                        );
                        return Err(self.complain_of(line, Errno::INVAL));
                    }
                    let granted = self.grant_own(tid, departure.peer, node, strength);
                    let carried = granted.inspect_err(|_| self.node_changed(node))?;
                    departure.granted.push((node, strength));
                    carried
                }
                Named::Handle { handle, strength } => {
                    if !self.holds(handle, strength) {
                        let line = format!("got transaction with invalid handle, {handle}");
                        return Err(self.complain_of(line, Errno::INVAL));
                    }
                    let reference = self.references.get_mut(handle).expect("held");
                    reference.sending += 1;
                    departure.pinned.0.push(handle);
                    if reference.owner == departure.peer {
                        Carried::of_receiver(reference.node, strength)
                    } else {
                        departure.introduced.push(reference.held_node(strength));
                        Carried::of_third(strength)
                    }
                }
            };
            departure.objects.push(object);
        }
        match refused_fd {
            Some((_, errno)) => {
                if errno == Errno::PERM {
                    let line = "got transaction with fd, but target does not allow fds";
                    self.complain(line.to_owned());
                }
                Err(errno)
            }
            None => Ok(()),
        }
    }

    /// Grants a node to the receiver of a message.
    pub(super) fn grant_own(
        &mut self,
        tid: Tid,
        to: ProcessId,
        id: NodeId,
        strength: Strength,
    ) -> Result<Carried, Errno> {
        let flags = self.nodes.get(id).expect("known node").flags;
        self.move_news(tid, id, strength, to);
        let entry = self.grant(to, id, strength)?;
        Ok(Carried::of_sender(id, entry, flags, strength))
    }

    /// The sending thread is the one that hears of a node's first references, unless the receiver
    /// holds the node strongly already.
    fn move_news(&mut self, tid: Tid, id: NodeId, strength: Strength, to: ProcessId) {
        let holding = self.peers.get(&to).and_then(|peer| peer.holding(id));
        let node = self.nodes.get(id).expect("known node");
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

    /// Makes the transaction final. The handles in it stay pinned until it has been posted.
    pub fn departed(
        &mut self,
        tid: Tid,
        mut departure: Departure,
        via: LaneId,
        token: u64,
        completion: Completion,
    ) -> PinnedHandles {
        match departure.kind {
            Kind::Request => {
                let owns_lane = departure.via.is_none();
                let (peer, handle) = (departure.peer, departure.handle.take());
                let calling = Calling { via, peer, handle, token, owns_lane, dead: false };
                self.tokens.insert(token, tid);
                self.push_frame(tid, Frame::Calling(calling));
                let completion = Work::Complete(Completion::CallTaken(token));
                self.thread(tid).todo.push_deferred(completion);
            }
            kind => {
                self.thread(tid).todo.push(Work::Complete(completion));
                if kind == Kind::Reply {
                    // Only now: the reply's completion is queued before the error of the call
                    // further out.
                    self.settle(tid);
                }
            }
        }
        for (id, _) in departure.granted {
            self.node_changed(id);
        }
        self.end_sending(departure.handle);
        departure.pinned
    }

    /// The transaction will not leave: its grants are taken back.
    pub fn turn_back(&mut self, departure: Departure) {
        self.take_back_grants(departure.peer, &departure.objects);
        self.unpin(departure.pinned);
        self.end_sending(departure.handle);
    }

    /// Takes back the grants of a message that its receiver will never take.
    pub fn take_back_grants(&mut self, peer: ProcessId, objects: &[Carried]) {
        for object in objects.iter().filter(|object| object.origin() == Some(Origin::Sender)) {
            self.ungrant(peer, NodeId(object.node), object.strength());
        }
    }

    /// The transaction with these handles has been posted, or will not be.
    pub fn unpin(&mut self, pinned: PinnedHandles) {
        pinned.0.into_iter().for_each(|handle| self.end_sending(Some(handle)));
    }

    /// Notes that a transaction to this handle has been taken in or has failed.
    pub(crate) fn end_sending(&mut self, handle: Option<u32>) {
        let Some(handle) = handle else { return };
        if let Some(reference) = self.references.get_mut(handle) {
            reference.sending -= 1;
        }
        self.return_grants(handle);
    }

    /// Queues a refusal for the sending thread.
    pub fn refused(&mut self, tid: Tid, refusal: Refusal) {
        let thread = self.thread(tid);
        thread.error.command = refusal.command;
        thread.error.param = refusal.param();
        thread.failed = true;
        thread.todo.push(Work::Refused(refusal.command));
    }

    /// Queues a completion for a reply that was refused; the caller has been told. As after any
    /// refusal, no command of the replier runs until it has been read.
    pub fn reply_refused(&mut self, tid: Tid) {
        let thread = self.thread(tid);
        thread.failed = true;
        thread.todo.push(Work::Refused(BR_TRANSACTION_COMPLETE));
        self.settle(tid);
    }
}
