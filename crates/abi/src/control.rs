//! Messages between an engine and the broker.
//!
//! An engine has two `SOCK_SEQPACKET` connections to the broker, one message a packet:
//!
//! ```text
//!   engine --- Request ---> broker        the socket that it connected; a request that has an
//!   engine <-- Reply ------ broker        answer is answered before the next one is read
//!   engine <-- Event ------ broker        handed over with Reply::Welcome
//! ```
//!
//! **Invariant**: everything that changes an engine's picture of references, channels and other
//! processes comes as an [`Event`], never in a [`Reply`]: one stream, one order. The broker sends
//! the events that a request causes, to whomever, before it answers the request.
//!
//! A reference that travels is a *grant*: the broker counts the grants that it gave a process for
//! a handle, the process returns as many as it was given once its own counts for the handle are
//! zero. A grant under way therefore keeps its handle alive, and neither side waits for the other
//! (Birrell, Evers et al., "Distributed garbage collection for network objects", 1993).

use crate::claim::Claim;
use crate::sched_priority::SchedPriority;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use crate::id::{ChannelId, End, NodeId, ProcessId, TicketId};

/// Version of this protocol and of [`crate::lane`]; broker and engine must agree exactly.
pub const VERSION: u32 = 8;
/// Largest packet, in bytes, that either side sends.
pub const MAX_PACKET_BYTES: usize = 128 * 1024;
/// Most objects (binders and handles) in one transaction, so that its ticket fits one packet.
pub const MAX_OBJECTS: usize = 2048;
/// Longest context name, in bytes, as binderfs has it.
pub const MAX_CONTEXT_NAME_BYTES: usize = 255;

/// Whether a reference keeps its node strongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strength {
    /// Keeps the node's object alive.
    Strong,
    /// Keeps the node's name alive.
    Weak,
}

/// An object that a sender names in a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Object {
    /// A node of the sender's own, made known by this message if it was not before.
    Node {
        /// Which.
        node: NodeId,
        /// BINDER or WEAK_BINDER.
        strength: Strength,
        /// `flat_binder_object.flags` at its first appearance.
        flags: u32,
    },
    /// A handle of the sender's.
    Handle {
        /// Which.
        handle: u32,
        /// HANDLE or WEAK_HANDLE.
        strength: Strength,
    },
}

/// An [`Object`] as its receiver sees it, in the sender's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Granted {
    /// One more grant on a handle of the receiver's, new or not.
    Handle {
        /// The receiver's name for it.
        handle: u32,
        /// Who owns the node.
        owner: ProcessId,
        /// The owner's name for it.
        node: NodeId,
        /// The grant's strength.
        strength: Strength,
        /// The node's flags.
        flags: u32,
    },
    /// The object came home: a node of the receiver's own.
    Own {
        /// Which.
        node: NodeId,
        /// HANDLE or WEAK_HANDLE, as sent.
        strength: Strength,
    },
}

/// What the system says of a process (SO_PEERCRED and SO_PEERSEC at its connection).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The broker's name for it.
    pub process: ProcessId,
    /// Thread group id in the broker's pid namespace.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Security label, never empty.
    pub security_context: String,
}

/// From an engine (or an observer) to the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First message. Carries two descriptors: the engine's [`crate::lane::front`] page and its
    /// [`crate::lane::tally`] page. Answer: [`Reply::Welcome`] with one descriptor, the event
    /// socket.
    Hello {
        /// Must equal [`VERSION`].
        version: u32,
        /// Name of the context that was opened.
        context: String,
        /// Channels for which the engine has descriptors, as server. The broker gives each user of
        /// clients a share of them.
        channels: u32,
    },
    /// First message of a connection that only looks. Answer: [`Reply::Done`]. After it only
    /// [`Request::Report`], [`Request::Accounts`], [`Request::AddContext`] and
    /// [`Request::Contexts`] are answered.
    Observe {
        /// Must equal [`VERSION`].
        version: u32,
    },
    /// Grants the objects of one transaction to its receiver. The sender must hold a channel with
    /// the target, at either end, and every strong handle strongly. All or nothing.
    /// Events: [`Event::References`] to owners, then [`Event::Ticket`] to the target.
    /// Answer: [`Reply::Ticket`].
    Translate {
        /// Who receives the transaction.
        target: ProcessId,
        /// At most [`MAX_OBJECTS`].
        objects: Vec<Object>,
    },
    /// A ticket's transaction is not coming. No answer. Event: [`Event::TicketCancelled`].
    CancelTicket {
        /// The target that was named in `Translate`.
        target: ProcessId,
        /// Which.
        ticket: TicketId,
    },
    /// Returns grants of a handle. No answer.
    Release {
        /// Which.
        handle: u32,
        /// Strong grants that end. What is left of strong ones never exceeds what is left in all.
        strong: u32,
        /// Grants that end, of either strength. A strong grant that ends without one of these
        /// stays as a weak grant.
        grants: u32,
    },
    /// A grant on handle 0. `ESRCH` if the context has no manager, `EINVAL` if it is the asker.
    /// Events: `References` to the manager, `Ticket` (from [`ProcessId::BROKER`], one strong
    /// handle) to the asker. Answer: [`Reply::Ticket`].
    ContextManager,
    /// Makes a node of the asker's the context manager. `EBUSY` if another one is, `EPERM` if the
    /// context has been managed by another uid. Answer: [`Reply::Done`].
    BecomeContextManager {
        /// Which.
        node: NodeId,
        /// The node's flags.
        flags: u32,
    },
    /// A new channel to the owner of a node that the asker holds a handle to (or of the context
    /// manager). `EPERM` if it holds none, `ESRCH` if the target is gone, `EMFILE` over the limit.
    /// Events: [`Event::Channel`] to both. Answer: [`Reply::Done`].
    OpenChannel {
        /// The owner.
        target: ProcessId,
    },
    /// The asker gives up its end of a channel, or could not take its descriptors. The broker
    /// forgets the channel; its socket, which is closed, tells the other end. No answer, and
    /// nothing happens if the asker has no such channel.
    CloseChannel {
        /// At either end.
        channel: ChannelId,
    },
    /// References to the node of a handle, of all processes together. `EPERM` unless the asker is
    /// the context manager. Answer: [`Reply::Counts`].
    NodeInfo {
        /// Which.
        handle: u32,
    },
    /// Freezes or thaws every process with this pid in the asker's context. `EINVAL` if there is
    /// none, `EPERM` unless the asker's uid is the target's or 0. Event: [`Event::Frozen`] to all
    /// who hold a handle to its nodes, when the state changed. Answer: [`Reply::Freeze`].
    Freeze {
        /// Thread group id.
        pid: u32,
        /// Freeze or thaw.
        frozen: bool,
    },
    /// The same question without the change. Answer: [`Reply::Freeze`].
    FrozenInfo {
        /// Thread group id.
        pid: u32,
    },
    /// Whether the owner of the asker's handle is frozen. Answer: [`Reply::Frozen`].
    IsFrozen {
        /// The owner.
        target: ProcessId,
    },
    /// The asker had a transaction for a frozen process. No answer.
    FrozenTouched {
        /// The frozen one.
        target: ProcessId,
        /// A two-way transaction, which was refused, rather than a one-way one, which waits.
        two_way: bool,
    },
    /// Asks for [`Event::Barrier`] with the same number: every event that was caused before is in
    /// the stream before it. No answer.
    Barrier {
        /// Asker's choice.
        number: u64,
    },
    /// Adds a context (binderfs' CTL_ADD). `EEXIST`, `EINVAL`, `EPERM` unless the asker's uid is
    /// the broker's or 0. Answer: [`Reply::Done`].
    AddContext {
        /// 1 to 255 bytes, no slash.
        name: String,
    },
    /// Answer: [`Reply::Contexts`].
    Contexts,
    /// One page of the processes that the asker may see: its own user's, and all if the asker is
    /// root or the broker's own user. Answer: [`Reply::Report`].
    Report {
        /// Where the page begins: at first [`Cursor::default`].
        from: Cursor,
    },
    /// The accounts of the users that the asker may see, by number. Answer: [`Reply::Accounts`].
    Accounts {
        /// The first user that is wanted.
        from: u32,
    },
    /// First message of an engine that another broker had admitted, which has died. Carries the
    /// engine's pages. `EKEYREJECTED` for a credential of no predecessor's or of another process,
    /// `EBUSY` if that process is here, or if the broker has no descriptors or no memory now: the
    /// engine tries again. `ETIME` once the time for coming back is over, or if it was here and
    /// went. Answer: [`Reply::Welcome`], then the engine makes its claims.
    Resume {
        /// Must equal [`VERSION`].
        version: u32,
        /// As it came with [`Reply::Welcome`].
        credential: Vec<u8>,
        /// As in [`Request::Hello`].
        channels: u32,
    },
    /// What a returning engine had. No answer; as many of these as it takes.
    Claim {
        /// In any order.
        claims: Vec<Claim>,
    },
    /// One of the asker's threads, which is a real-time one, calls on this lane alone: its server
    /// is to have a looper for it, at the thread's policy and priority. To be asked again when
    /// these have changed. `ENOENT` if the channel is not the asker's as client, or its server has
    /// not come back; `EPERM` if the asker may not have such a looper; `ESRCH` if it has no such
    /// thread; `EINVAL` if that is not a real-time one; `EMFILE`, `EDQUOT` over the limits of the
    /// server and of the asker's user; `EAGAIN` if it asks all the time. Event:
    /// [`Event::RealTimeLane`] to the server. Answer: [`Reply::Done`].
    RealTime {
        /// As client.
        channel: ChannelId,
        /// Less than [`crate::lane::LANES`].
        lane: u32,
        /// In the asker's pid namespace.
        tid: u32,
    },
    /// The lane is one as others are. No answer. Event: [`Event::OrdinaryLane`] to the server.
    Ordinary {
        /// As client.
        channel: ChannelId,
        /// Which.
        lane: u32,
    },
    /// This thread of the asker's waits on a lane of which [`Event::RealTimeLane`] told: it is
    /// given the policy and the priority. `ESRCH` if there is no such lane any more or no such
    /// thread, `EPERM` if the system does not let the broker do so. Answer: [`Reply::Done`].
    RealTimeLooper {
        /// As server.
        channel: ChannelId,
        /// Which.
        lane: u32,
        /// In the asker's pid namespace.
        tid: u32,
    },
    /// This thread of the asker's waits to be the looper of the next real-time caller's lane: it is
    /// given the priority, and then [`Event::RealTimeLane`] names it. An engine has one such
    /// thread; a later one stands in for it. `ESRCH` if there is no such thread. Answer:
    /// [`Reply::Done`].
    StandbyLooper {
        /// In the asker's pid namespace.
        tid: u32,
    },
    /// The thread that was the looper of a lane is it no longer: it loses what it was given for
    /// that. The lane stays a real-time caller's. No answer.
    LeaveRealTime {
        /// As server.
        channel: ChannelId,
        /// Which.
        lane: u32,
    },
    /// The last claim has been made: the engine is as others are from here on. No answer. Events:
    /// what has changed of that which it had.
    Rejoin {
        /// Its nodes that manage its context, or were to, with their flags.
        manages: Vec<(NodeId, u32)>,
    },
}

/// What orders messages of different senders: [`crate::lane::Message::stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stamps {
    /// The processors' common counter: the TSC or CNTVCT, where the kernel's own clock trusts it.
    Counter,
    /// CLOCK_MONOTONIC, in nanoseconds.
    Clock,
}

/// From the broker, to the request that asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Hello`]; carries the event socket.
    Welcome {
        /// Who the engine is.
        identity: Identity,
        /// The broker's era.
        era: u32,
        /// What proves to the next broker who the engine is; see [`Request::Resume`].
        credential: Vec<u8>,
        /// What the engine's messages are stamped with. Of later brokers it keeps to its first
        /// one's.
        stamps: Stamps,
    },
    /// It is done.
    Done,
    /// Refused; a Linux errno.
    Refused {
        /// Positive errno.
        errno: i32,
    },
    /// The ticket's event has been sent.
    Ticket {
        /// Which.
        ticket: TicketId,
    },
    /// To [`Request::NodeInfo`].
    Counts {
        /// Processes that hold the node strongly.
        strong: u32,
        /// Processes that hold the node weakly only.
        weak: u32,
    },
    /// To [`Request::Freeze`] and [`Request::FrozenInfo`].
    Freeze {
        /// Two-way transactions that the processes have received and not answered.
        outstanding: u32,
        /// A two-way transaction was refused since the freeze.
        two_way_received: bool,
        /// A one-way transaction came since the freeze.
        one_way_received: bool,
    },
    /// To [`Request::IsFrozen`].
    Frozen {
        /// The state.
        frozen: bool,
    },
    /// To [`Request::Contexts`].
    Contexts {
        /// Their names, sorted.
        names: Vec<String>,
    },
    /// To [`Request::Report`].
    Report {
        /// Every context in the first page; of the processes at most [`PAGE_ENTRIES`] entries.
        page: Report,
        /// Where the next page begins, if there is one.
        next: Option<Cursor>,
    },
    /// To [`Request::Accounts`].
    Accounts {
        /// At most [`PAGE_ENTRIES`], by number.
        accounts: Vec<Account>,
        /// The next page's first user, if there is one.
        next: Option<u32>,
    },
}

/// From the broker, unasked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// References that a transaction from `from` will claim, already the receiver's.
    Ticket {
        /// The sender, or [`ProcessId::BROKER`].
        from: ProcessId,
        /// The number that the transaction will name.
        ticket: TicketId,
        /// In the order of the transaction's objects.
        objects: Vec<Granted>,
    },
    /// Nothing will claim this ticket: return its grants.
    TicketCancelled {
        /// The sender.
        from: ProcessId,
        /// Which.
        ticket: TicketId,
    },
    /// The references to one of the receiver's nodes changed.
    References {
        /// Which.
        node: NodeId,
        /// Somebody holds it strongly.
        strong: bool,
        /// Somebody holds it at all.
        held: bool,
        /// The process whose holding changed, and how it holds the node now; `None`: not at all.
        holder: (ProcessId, Option<Strength>),
    },
    /// A channel; carries two descriptors (memory, socket) to the server and three (memory,
    /// socket, the server's front page) to the client.
    Channel {
        /// Its name.
        channel: ChannelId,
        /// The receiver's end.
        end: End,
        /// Who has the other.
        peer: Identity,
    },
    /// A process is gone, with its nodes, channels and handles. What it sent before counts.
    Dead {
        /// Who.
        process: ProcessId,
    },
    /// A process to whose nodes the receiver has handles, or the receiver itself, was frozen or
    /// thawed.
    Frozen {
        /// Who.
        process: ProcessId,
        /// Which of it.
        frozen: bool,
    },
    /// To [`Request::Barrier`].
    Barrier {
        /// The asker's number.
        number: u64,
    },
    /// A lane of the receiver's is a real-time thread's. It is to have a looper that waits on it
    /// alone; see [`Request::RealTimeLooper`].
    RealTimeLane {
        /// As server.
        channel: ChannelId,
        /// Which.
        lane: u32,
        /// What its looper may have.
        priority: SchedPriority,
        /// Who its looper is, if a [`Request::StandbyLooper`] is: else 0.
        /// [`crate::lane::tally::LANES`] tells that thread.
        looper: u32,
    },
    /// It is one no longer: any looper may serve it.
    OrdinaryLane {
        /// As server.
        channel: ChannelId,
        /// Which.
        lane: u32,
    },
    /// The owner of a claimed handle's node does not know the receiver as its holder: the handle is
    /// a dead node's.
    Denied {
        /// Which.
        handle: u32,
    },
}

/// Most entries (processes, nodes, handles, channels, accounts) of one page.
pub const PAGE_ENTRIES: usize = 1024;

/// Where a page of a report begins: after which entry of which process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cursor {
    /// [`ProcessId`]; smaller ones have been told of.
    pub process: u64,
    /// Of which list.
    pub part: Part,
    /// The entry (node, handle, channel) before the page's first one, and one; 0 for none.
    pub after: u64,
}

/// The lists of a [`ProcessReport`] that may take several pages, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// The process itself, and [`ProcessReport::real_time`].
    #[default]
    Process,
    /// [`ProcessReport::nodes`]
    Nodes,
    /// [`ProcessReport::handles`]
    Handles,
    /// [`ProcessReport::channels`]
    Channels,
}

/// One user's account with the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Effective user id.
    pub uid: u32,
    /// Whether the user may take from the reserve.
    pub reserve: bool,
    /// By amount.
    pub shares: Vec<Share>,
}

/// Of one amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The amount's name: `processes`, `handles`, ...
    pub name: String,
    /// The user's part.
    pub taken: u64,
    /// How much more the user could take now.
    pub left: u64,
    /// The amount that all users share.
    pub limit: u64,
}

impl Report {
    /// Adds the next page.
    pub fn add_page(&mut self, page: Report) {
        for context in page.contexts {
            match self.contexts.iter_mut().find(|known| known.name == context.name) {
                Some(known) => known.add_page(context.processes),
                None => self.contexts.push(context),
            }
        }
    }
}

impl ContextReport {
    fn add_page(&mut self, processes: Vec<ProcessReport>) {
        for next in processes {
            match self.processes.last_mut().filter(|last| last.process == next.process) {
                Some(last) => {
                    last.nodes.extend(next.nodes);
                    last.handles.extend(next.handles);
                    last.channels.extend(next.channels);
                }
                None => self.processes.push(next),
            }
        }
    }
}

/// Everything that `baton ps` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Every context, sorted by name.
    pub contexts: Vec<ContextReport>,
}

/// One context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextReport {
    /// Its name.
    pub name: String,
    /// The context manager's process, if there is one.
    pub manager: Option<u64>,
    /// Every process, by [`ProcessId`].
    pub processes: Vec<ProcessReport>,
}

/// One process of a context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReport {
    /// [`ProcessId`].
    pub process: u64,
    /// Thread group id.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Frozen by BINDER_FREEZE.
    pub frozen: bool,
    /// Nodes that others hold: node, processes that hold it strongly, processes that hold it.
    pub nodes: Vec<(u64, u32, u32)>,
    /// Handles: handle, owner, node, strongly held.
    pub handles: Vec<(u32, u64, u64, bool)>,
    /// Channels: name, the other process, whether this one is its server.
    pub channels: Vec<(u64, u64, bool)>,
    /// Lanes of real-time callers that it serves.
    pub real_time: Vec<LaneReport>,
    /// What the engine says of itself on its front page.
    pub engine: EngineReport,
}

/// A lane of a real-time caller, at its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneReport {
    /// The channel's name.
    pub channel: u64,
    /// Which of its lanes.
    pub lane: u32,
    /// The caller's process.
    pub client: u64,
    /// What its looper may have.
    pub priority: SchedPriority,
    /// Its looper, if it has one.
    pub looper: Option<LooperReport>,
}

/// The looper of a real-time caller's lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LooperReport {
    /// In the broker's pid namespace.
    pub tid: u32,
    /// Whether the broker could set its priority.
    pub promoted: bool,
}

/// What an engine publishes of itself; unverified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Threads that have used the driver.
    pub threads: u32,
    /// Of these, loopers.
    pub loopers: u32,
    /// Lanes in use, as client.
    pub lanes: u32,
    /// Size of the receive buffer.
    pub buffer_bytes: u32,
    /// Allocated of it.
    pub buffer_used_bytes: u32,
    /// Allocations in it.
    pub buffers: u32,
    /// Two-way transactions received and not yet answered.
    pub outstanding: u32,
    /// Transactions received.
    pub transactions: u64,
}

/// One packet.
///
/// # Panics
/// Never: the messages have no maps and no type that cannot be written.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("control messages always encode")
}

/// One packet back. `None` if it is not exactly one message: the sender's fault.
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_exactly_one_message() {
        let packet = encode(&Request::Translate {
            target: ProcessId(7),
            objects: vec![Object::Handle { handle: 3, strength: Strength::Strong }],
        });
        assert!(decode::<Request>(&packet).is_some());
        assert_eq!(decode::<Request>(&packet[..packet.len() - 1]), None);
        let mut longer = packet;
        longer.push(0);
        assert_eq!(decode::<Request>(&longer), None);
    }

    #[test]
    fn the_largest_ticket_fits_a_packet() {
        let granted = Granted::Handle {
            handle: u32::MAX,
            owner: ProcessId(u64::MAX),
            node: NodeId(u64::MAX),
            strength: Strength::Strong,
            flags: u32::MAX,
        };
        let event = Event::Ticket {
            from: ProcessId(u64::MAX),
            ticket: TicketId(u64::MAX),
            objects: vec![granted; MAX_OBJECTS],
        };
        assert!(encode(&event).len() <= MAX_PACKET_BYTES);
    }
}
