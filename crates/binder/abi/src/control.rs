//! Messages between an engine and the broker.
//!
//! An engine has two `SOCK_SEQPACKET` connections to the broker, one message a packet:
//!
//! ```text
//!   engine --- Request ---> broker        the socket that the engine connected; the broker
//!   engine <-- Reply ------ broker        replies before it reads the next request
//!   engine <-- Event ------ broker        a socket that comes with Reply::Welcome
//! ```
//!
//! **Invariant**: every change of references, channels and other processes reaches an engine as an
//! [`Event`], never in a [`Reply`]: one stream, one order. The broker sends the events that a
//! request causes, to whichever engine, before its reply.
//!
//! A reference that travels is a *grant*. An owner grants its own nodes itself, in the message that
//! carries them ([`crate::lane::Carried`]). A process that passes on a node of a third process has
//! the broker *introduce* the receiver: the broker grants, and tells the owner. Whoever gave a
//! grant counts it, and the holder returns it there once its own counts for the node are zero. A
//! grant on its way therefore keeps its node alive, and neither side waits for the other (Birrell,
//! Evers et al., "Distributed garbage collection for network objects", 1993).

use crate::claim::Claim;
use crate::sched_priority::SchedPriority;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use crate::id::{ChannelId, End, NodeId, ProcessId, TicketId};

/// Version of this protocol and of [`crate::lane`]; broker and engine must agree exactly.
pub const VERSION: u32 = 19;
/// Largest packet, in bytes, of either side.
pub const MAX_PACKET_BYTES: usize = 128 * 1024;
/// Most objects (binders and handles) in one transaction. Its ticket then fits one packet.
pub const MAX_OBJECTS: usize = 2048;
/// Longest context name, in bytes, as in binderfs.
pub const MAX_CONTEXT_NAME_BYTES: usize = 255;

/// Whether a context can have this name. Programs see the name as that of a file in binderfs,
/// beside `binder-control` and `features`.
pub fn is_context_name(name: &str) -> bool {
    (1..=MAX_CONTEXT_NAME_BYTES).contains(&name.len())
        && !name.contains(['/', '\0'])
        && !matches!(name, "." | ".." | "binder-control" | "features")
}

/// Whether a reference keeps its node strongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strength {
    /// The reference keeps the node's object alive.
    Strong,
    /// The reference keeps the node's id valid.
    Weak,
}

/// A node of another process that its holder passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldNode {
    /// The owner.
    pub owner: ProcessId,
    /// The owner's id of the node.
    pub node: NodeId,
    /// How the receiver is to hold it: at most as the sender does.
    pub strength: Strength,
    /// The sender's entry in the owner's [`crate::holder_list`], if the owner has granted the node
    /// to the sender itself.
    pub entry: Option<u32>,
}

/// A grant of the broker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The owner of the node, never the receiver. [`ProcessId::BROKER`] for a node that is dead:
    /// the sender did not hold what it passed on, or its owner denies it. Such a grant is not
    /// returned.
    pub owner: ProcessId,
    /// The owner's id of the node.
    pub node: NodeId,
    /// The grant's strength.
    pub strength: Strength,
    /// The node's flags.
    pub flags: u32,
    /// Whether the node manages the receiver's context: it is handle 0 there.
    pub manages: bool,
}

/// Grants of the broker's on one node, which their holder returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The owner of the node.
    pub owner: ProcessId,
    /// The owner's id of the node.
    pub node: NodeId,
    /// Number of strong grants that end. The strong grants that are left never exceed all that are
    /// left.
    pub strong: u32,
    /// Number of grants that end, of either strength. A strong grant that ends beyond this number
    /// becomes a weak one.
    pub grants: u32,
}

/// A process as the kernel identifies it (SO_PEERCRED and SO_PEERSEC at its connection).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The broker's id of the process.
    pub process: ProcessId,
    /// Thread group id: of a peer in the reader's pid namespace, of the reader in the broker's. 0
    /// if that does not have the process: any number of processes may have the pid 0.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Security label, never empty.
    pub security_context: String,
    /// Root serves the process's device. The messages of such a process may say that it has another
    /// user by now ([`crate::lane::SENDER_USER`]).
    pub is_served_by_root: bool,
}

/// From an engine (or an observer) to the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First message of a new engine. Carries two descriptors: the engine's [`crate::lane::status`]
    /// page, and its [`crate::lane::tally`] page with the [`crate::holder_list`]. Reply:
    /// [`Reply::Welcome`] with one descriptor, the event socket.
    Hello {
        /// Must equal [`VERSION`].
        version: u32,
        /// Name of the context that the program opened.
        context: String,
        /// Number of channels as server that the engine has descriptors for. The broker gives each
        /// user of clients a share of them.
        channels: u32,
        /// The engine's number for this connection, by which it knows records of the
        /// [`crate::ticket_ring`]. 0 if it takes all events from the socket.
        connection: u32,
    },
    /// First message of an observer. Reply: [`Reply::Done`]. Afterwards only [`Request::Report`],
    /// [`Request::Accounts`], [`Request::DescribeCalls`], [`Request::AddContext`],
    /// [`Request::RemoveContext`] and [`Request::Contexts`] are allowed.
    Observe {
        /// Must equal [`VERSION`].
        version: u32,
    },
    /// Grants nodes of third processes to the receiver of a transaction, all or none. The sender
    /// must have a channel with the target, at either end, and hold each node as strongly as it
    /// passes it on, by a grant of the broker's or by the owner's list. A node that the owner's
    /// list denies becomes a dead node at the receiver. `EAGAIN` if an owner may rejoin. Events:
    /// [`Event::References`] to owners, then [`Event::Ticket`] to the target. Reply:
    /// [`Reply::Ticket`].
    Introduce {
        /// The process that receives the transaction: the owner of none of the nodes.
        target: ProcessId,
        /// At most [`MAX_OBJECTS`].
        objects: Vec<HeldNode>,
    },
    /// The transaction of a ticket is not coming. No reply. Event: [`Event::TicketCancelled`].
    CancelTicket {
        /// The target of the `Introduce` request.
        target: ProcessId,
        /// The ticket.
        ticket: TicketId,
    },
    /// Returns grants that the broker gave. No reply. Grants of a dead owner's nodes have no
    /// effect.
    Release {
        /// At most [`MAX_OBJECTS`]: a whole ticket goes back at once.
        released: Vec<Released>,
    },
    /// Asks for a grant on the context manager's node. `ESRCH` if the context has no manager,
    /// `EINVAL` if the asker is the manager. Events: `References` to the manager, `Ticket` (from
    /// [`ProcessId::BROKER`], with one strong handle) to the asker. If the asker has no channel to
    /// the manager, and nothing is against it, also [`Event::Channel`] to both, as after
    /// [`Request::OpenChannel`]. Reply: [`Reply::Ticket`].
    ContextManager,
    /// Makes a node of the asker's the context manager. `EBUSY` if there is another one, `EPERM` if
    /// another user's process has managed the context. Reply: [`Reply::Done`].
    BecomeContextManager {
        /// The node.
        node: NodeId,
        /// The node's flags.
        flags: u32,
    },
    /// Opens a channel to the owner of a node that the asker holds, or to the context manager.
    /// `EPERM` if the asker holds none, `ESRCH` if the target is gone, `EMFILE` over the
    /// limit. Events: [`Event::Channel`] to both. Reply: [`Reply::Done`].
    OpenChannel {
        /// The owner.
        target: ProcessId,
        /// The asker's entry in the owner's [`crate::holder_list`], if it has one.
        entry: Option<u32>,
    },
    /// The asker gives up its end of a channel, or could not take its descriptors. The broker
    /// forgets the channel; the other end notices the closed socket. No reply, and no effect if the
    /// asker has no such channel.
    CloseChannel {
        /// The channel, at either end.
        channel: ChannelId,
    },
    /// Counts the processes that hold a node: by grants of the broker's or by the owner's list.
    /// `EPERM` unless the asker is the context manager, `EINVAL` for a node that nobody holds.
    /// Reply: [`Reply::Counts`].
    NodeInfo {
        /// The owner.
        owner: ProcessId,
        /// The owner's id of the node.
        node: NodeId,
    },
    /// Freezes or thaws every process with this pid in the asker's context. `EINVAL` if there is
    /// none, `EPERM` unless the asker's uid is the target's or 0. Event: [`Event::Frozen`] to all
    /// holders of its nodes, when the state changes. Reply: [`Reply::Freeze`].
    Freeze {
        /// Thread group id.
        pid: u32,
        /// Freeze or thaw.
        frozen: bool,
    },
    /// Asks for the frozen state of the processes with this pid. Errors are those of
    /// [`Request::Freeze`]. Reply: [`Reply::Freeze`].
    FrozenInfo {
        /// Thread group id.
        pid: u32,
    },
    /// Asks whether a process is frozen. `EPERM` unless the asker has a grant of the broker's on
    /// one of its nodes, or has or had a channel with it; `ESRCH` once it has ended, whether the
    /// broker has told so or not. Reply: [`Reply::Frozen`].
    IsFrozen {
        /// The owner.
        target: ProcessId,
    },
    /// The asker had a transaction for a frozen process. No reply.
    FrozenTouched {
        /// The frozen process.
        target: ProcessId,
        /// Whether it was a two-way transaction, which was refused, or a one-way one, which waits.
        two_way: bool,
    },
    /// Asks for [`Event::Barrier`] with this number. Every event that was caused before precedes it
    /// in the stream. No reply.
    Barrier {
        /// A number that the asker chooses.
        number: u64,
    },
    /// Adds a context (binderfs' CTL_ADD). `EEXIST`, `EINVAL`, `EPERM` unless the asker's uid is
    /// the broker's or 0. Reply: [`Reply::Done`].
    AddContext {
        /// 1 to 255 bytes, no slash.
        name: String,
    },
    /// Removes a context, for those who may add one. No process enters it any more, and it goes
    /// with the last process in it; it stays if it is added again before. `ENOENT`, `EINVAL` for a
    /// context that every broker has, `EPERM`. Reply: [`Reply::Done`].
    RemoveContext {
        /// The context.
        name: String,
    },
    /// Asks for the names of all contexts. Reply: [`Reply::Contexts`].
    Contexts,
    /// Asks for one page of the processes that the asker may see: all for root and the broker's own
    /// user, otherwise its own user's. Reply: [`Reply::Report`].
    Report {
        /// Begin of the page: at first [`Cursor::default`].
        from: Cursor,
    },
    /// Has the processes that the asker may see describe their calls, for
    /// [`ProcessReport::calls`]. Event: [`Event::DescribeCalls`] to each that does not owe an
    /// answer to an earlier one. Reply: [`Reply::Done`].
    DescribeCalls,
    /// The answer to [`Event::DescribeCalls`]. No reply.
    Calls {
        /// At most [`MAX_CALLS`], the outermost of a thread first.
        calls: Vec<CallReport>,
    },
    /// Asks for the accounts of the users that the asker may see, by user id. Reply:
    /// [`Reply::Accounts`].
    Accounts {
        /// The first user of the page.
        from: u32,
    },
    /// First message of an engine whose broker has died. Carries the engine's pages. Reply:
    /// [`Reply::Welcome`]; the engine then makes its claims. Errors:
    ///
    /// - `EKEYREJECTED`: the credential is not a previous broker's, or another process's.
    /// - `EBUSY`: the process has already resumed, or the broker lacks descriptors or memory now.
    ///   The engine tries again.
    /// - `ETIME`: the time for resuming is over, or the process resumed and died.
    Resume {
        /// Must equal [`VERSION`].
        version: u32,
        /// The credential from [`Reply::Welcome`].
        credential: Vec<u8>,
        /// Number of channels, as in [`Request::Hello`].
        channels: u32,
        /// Number for this connection, as in [`Request::Hello`]; not one that an earlier
        /// connection has had.
        connection: u32,
    },
    /// Claims of a resuming engine, in any number of requests. No reply.
    Claim {
        /// The claims, in any order.
        claims: Vec<Claim>,
    },
    /// A real-time thread of the asker calls on this lane alone. The server is to give the lane a
    /// looper at the thread's policy and priority. The asker repeats the request when these have
    /// changed. Event: [`Event::RealTimeLane`] to the server. Reply: [`Reply::Done`]. Errors:
    ///
    /// - `ENOENT`: the asker is not the client of the channel, or its server has not resumed.
    /// - `EPERM`: the asker may not have such a looper.
    /// - `ESRCH`, `EINVAL`: there is no such thread, or it is no real-time thread.
    /// - `EMFILE`, `EDQUOT`: over the limit of the server, or of the asker's user.
    /// - `EAGAIN`: the asker asks too often.
    RealTime {
        /// The channel, of which the process is the client.
        channel: ChannelId,
        /// Number of the lane, less than [`crate::lane::LANES`].
        lane: u32,
        /// Thread id in the asker's pid namespace.
        tid: u32,
    },
    /// The lane is an ordinary one again. No reply. Event: [`Event::OrdinaryLane`] to the server.
    /// An engine that rejoins says so of all lanes that were real-time callers' and are no longer.
    Ordinary {
        /// The channel, of which the process is the client.
        channel: ChannelId,
        /// Number of the lane in the channel.
        lane: u32,
    },
    /// A thread of the asker serves a lane of an [`Event::RealTimeLane`] and wants the lane's
    /// priority.
    /// `ESRCH` if there is no such lane or thread, `EPERM` if the kernel does not let the broker
    /// set the priority. Reply: [`Reply::Done`].
    RealTimeLooper {
        /// The channel, of which the process is the server.
        channel: ChannelId,
        /// Number of the lane in the channel.
        lane: u32,
        /// Thread id in the asker's pid namespace.
        tid: u32,
    },
    /// A thread of the asker is its standby looper, in place of any other: it becomes the looper of
    /// the next real-time caller's lane. It gets the lane's priority, and then
    /// [`Event::RealTimeLane`] names it. `ESRCH` if there is no such thread. Reply:
    /// [`Reply::Done`].
    StandbyLooper {
        /// Thread id in the asker's pid namespace.
        tid: u32,
    },
    /// The looper of a lane stops serving it and loses the lane's priority. The lane stays a
    /// real-time caller's. No reply.
    LeaveRealTime {
        /// The channel, of which the process is the server.
        channel: ChannelId,
        /// Number of the lane in the channel.
        lane: u32,
    },
    /// Ends the claims: the engine is admitted from here on. No reply. Events: every change of what
    /// the engine claimed.
    Rejoin {
        /// The engine's nodes that manage its context or were to, with their flags.
        manages: Vec<(NodeId, u32)>,
    },
    /// Precedes [`Request::Hello`] or [`Request::Resume`] of an engine that serves the device of
    /// another process: the engine is that process's from here on. The greeting may follow in the
    /// packet: see [`encode_on_behalf`]. No reply; the reply to the greeting says whether the
    /// broker accepts it. Errors:
    ///
    /// - `EPERM`: the sender is neither root nor of the process's effective user, or lives in
    ///   another pid namespace than the broker.
    /// - `ESRCH`: there is no such process.
    OnBehalf {
        /// The process's thread group id in the broker's pid namespace.
        pid: u32,
    },
}

/// The clock of [`crate::lane::Message::stamp`], which orders messages of different senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stamps {
    /// The processors' common counter (TSC or CNTVCT), where it is the kernel's own clock source.
    Counter,
    /// CLOCK_MONOTONIC, in nanoseconds.
    Clock,
}

/// A reply of the broker to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Hello`] and [`Request::Resume`]; carries the event socket.
    Welcome {
        /// The identity of the engine.
        identity: Identity,
        /// The broker's era.
        era: u32,
        /// The proof of identity for the next broker; see [`Request::Resume`].
        credential: Vec<u8>,
        /// The clock of the engine's stamps. The engine keeps its first broker's clock.
        stamps: Stamps,
    },
    /// The request was carried out.
    Done,
    /// The request was refused.
    Refused {
        /// A Linux errno, positive.
        errno: i32,
    },
    /// The ticket's event has been sent.
    Ticket {
        /// The ticket.
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
        /// Whether a two-way transaction was refused since the freeze.
        two_way_received: bool,
        /// Whether a one-way transaction came since the freeze.
        one_way_received: bool,
    },
    /// To [`Request::IsFrozen`].
    Frozen {
        /// Whether the owner is frozen.
        frozen: bool,
    },
    /// To [`Request::Contexts`].
    Contexts {
        /// The names of all contexts, sorted.
        names: Vec<String>,
    },
    /// To [`Request::Report`].
    Report {
        /// The page: every context in the first one, and at most [`PAGE_ENTRIES`] entries of
        /// processes.
        page: Report,
        /// Begin of the next page, if there is one.
        next: Option<Cursor>,
    },
    /// To [`Request::Accounts`].
    Accounts {
        /// At most [`PAGE_ENTRIES`] accounts, by user id.
        accounts: Vec<Account>,
        /// First user of the next page, if there is one.
        next: Option<u32>,
    },
}

/// A message of the broker without a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// References that a transaction from `from` will claim. The grants already belong to the
    /// receiver.
    Ticket {
        /// The sender, or [`ProcessId::BROKER`].
        from: ProcessId,
        /// The ticket's id, which the transaction will contain.
        ticket: TicketId,
        /// The granted objects, in the order of the transaction.
        objects: Vec<Granted>,
    },
    /// No transaction will claim this ticket: the receiver returns its grants.
    TicketCancelled {
        /// The sender.
        from: ProcessId,
        /// The ticket.
        ticket: TicketId,
    },
    /// The processes changed that hold one of the receiver's nodes by grants of the broker's.
    References {
        /// The node.
        node: NodeId,
        /// Whether any process holds the node strongly so.
        strong: bool,
        /// Whether any process holds the node so.
        held: bool,
        /// The process whose holding changed, and how it holds the node now. `None` if it no longer
        /// does.
        holder: (ProcessId, Option<Strength>),
    },
    /// A new channel. Carries three descriptors (memory, the socket for doorbells, that for
    /// descriptors) to the server, and a fourth (the server's status page) to the client.
    Channel {
        /// Id of the channel.
        channel: ChannelId,
        /// The receiver's end.
        end: End,
        /// The process at the other end.
        peer: Identity,
    },
    /// A process died, with its nodes, channels and handles. Messages that it sent before are still
    /// valid.
    Dead {
        /// The process.
        process: ProcessId,
    },
    /// A process to whose nodes the receiver has handles, or the receiver itself, was frozen or
    /// thawed.
    Frozen {
        /// The process.
        process: ProcessId,
        /// Whether the process is frozen.
        frozen: bool,
    },
    /// To [`Request::Barrier`].
    Barrier {
        /// The number of the request.
        number: u64,
    },
    /// A lane of the receiver's belongs to a real-time thread. The receiver is to give it a looper
    /// that serves this lane alone; see [`Request::RealTimeLooper`].
    RealTimeLane {
        /// The channel, of which the process is the server.
        channel: ChannelId,
        /// Number of the lane in the channel.
        lane: u32,
        /// The scheduling priority of the lane's looper.
        priority: SchedPriority,
        /// Thread id of the looper, if it is a [`Request::StandbyLooper`], else 0. The broker wakes
        /// that thread by [`crate::lane::tally::LANES`].
        looper: u32,
    },
    /// The lane is ordinary again: any looper may serve it.
    OrdinaryLane {
        /// The channel, of which the process is the server.
        channel: ChannelId,
        /// Number of the lane in the channel.
        lane: u32,
    },
    /// An observer asks for the receiver's calls: see [`Request::Calls`].
    DescribeCalls,
    /// The owner of a claimed node denies that the receiver holds it. The broker's grants on it are
    /// void, and are not returned.
    Denied {
        /// The owner.
        owner: ProcessId,
        /// The owner's id of the node.
        node: NodeId,
    },
}

/// Most entries (processes, holdings, channels, accounts) of one page.
pub const PAGE_ENTRIES: usize = 1024;

/// The begin of a page of a report: a process, a list, and the entry before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cursor {
    /// [`ProcessId`] of the first process of the page.
    pub process: u64,
    /// The list of the process where the page begins.
    pub part: Part,
    /// The entry before the page's first one, by its ids (holding, channel); zeros for none.
    pub after: (u64, u64),
}

/// The lists of a [`ProcessReport`] that may take several pages, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// The process itself, and [`ProcessReport::real_time`].
    #[default]
    Process,
    /// [`ProcessReport::holdings`]
    Holdings,
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
    /// The user's part of each amount.
    pub shares: Vec<Share>,
}

/// A user's part of one amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The amount's name: `processes`, `handles`, ...
    pub name: String,
    /// The user's part now.
    pub taken: u64,
    /// The most that the user could take in addition.
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
                    last.holdings.extend(next.holdings);
                    last.channels.extend(next.channels);
                }
                None => self.processes.push(next),
            }
        }
    }
}

/// The broker's state as `baton ps` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Every context, sorted by name.
    pub contexts: Vec<ContextReport>,
}

/// One context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextReport {
    /// Name of the context.
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
    /// Thread group id in the observer's pid namespace, or 0 if that does not see the process.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Frozen by BINDER_FREEZE.
    pub frozen: bool,
    /// Who holds its nodes, by grants of the broker's and by its own list: node, holder, strongly
    /// held. Each pair once.
    pub holdings: Vec<(u64, u64, bool)>,
    /// Channels: name, the other process, whether this one is its server.
    pub channels: Vec<(u64, u64, bool)>,
    /// Lanes of real-time callers that it serves.
    pub real_time: Vec<LaneReport>,
    /// Its calls and services as it has described them since the last
    /// [`Request::DescribeCalls`], unverified. `None` until it has.
    pub calls: Option<Vec<CallReport>>,
    /// The engine's own figures from its status page.
    pub engine: EngineReport,
}

/// Most calls that a process describes.
pub const MAX_CALLS: usize = 256;

/// A two-way transaction that is under way, at one of its ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// The end: a thread waits for the answer (`Client`), or a thread serves (`Server`).
    pub end: End,
    /// The thread, in its process's PID namespace.
    pub tid: u32,
    /// The process at the other end.
    pub peer: u64,
    /// Id of the channel.
    pub channel: u64,
    /// Number of the lane.
    pub lane: u32,
    /// The request. `None` if it has been overwritten by a nested call.
    pub request: Option<RequestReport>,
}

/// The request of a call that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestReport {
    /// The called object: its owner's name of it.
    pub node: u64,
    /// `binder_transaction_data.code`
    pub code: u32,
    /// `binder_transaction_data.flags`
    pub flags: u32,
    /// Bytes of data.
    pub data_bytes: u32,
    /// Bytes of offsets.
    pub offsets_bytes: u32,
    /// The caller's nice value.
    pub nice: i32,
    /// Time since the request was sent.
    pub age_us: u64,
}

/// A lane of a real-time caller, at its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneReport {
    /// Id of the channel.
    pub channel: u64,
    /// Number of the lane.
    pub lane: u32,
    /// The caller's process.
    pub client: u64,
    /// The scheduling priority of the lane's looper.
    pub priority: SchedPriority,
    /// The looper, if there is one.
    pub looper: Option<LooperReport>,
}

/// The looper of a real-time caller's lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LooperReport {
    /// Thread id in the broker's pid namespace.
    pub tid: u32,
    /// Whether the broker could set the looper's priority.
    pub promoted: bool,
}

/// Figures that an engine publishes about itself, unverified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Threads that have used the driver.
    pub threads: u32,
    /// Threads that are loopers.
    pub loopers: u32,
    /// Lanes in use, as client.
    pub lanes: u32,
    /// Size of the receive buffer.
    pub buffer_bytes: u32,
    /// Allocated bytes of the receive buffer.
    pub buffer_used_bytes: u32,
    /// Allocated buffers in the receive buffer.
    pub buffers: u32,
    /// Two-way transactions received and not yet answered.
    pub outstanding: u32,
    /// Transactions received.
    pub transactions: u64,
}

/// Encodes a message as one packet.
///
/// # Panics
/// Never panics: the messages contain no maps and no type that cannot be written.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("control messages always encode")
}

/// Encodes a greeting as one packet, which begins with [`Request::OnBehalf`] if the engine serves
/// the device of another process.
pub fn encode_on_behalf(pid: Option<u32>, greeting: &Request) -> Vec<u8> {
    let mut packet = pid.map_or_else(Vec::new, |pid| encode(&Request::OnBehalf { pid }));
    packet.extend(encode(greeting));
    packet
}

/// Decodes the first request of a packet. `None` if there is none, which is the sender's fault.
/// Returns the bytes of the greeting that follows [`Request::OnBehalf`] there: none after any other
/// request.
pub fn decode_first(packet: &[u8]) -> Option<(Request, &[u8])> {
    let (first, rest) = postcard::take_from_bytes(packet).ok()?;
    let may_go_on = matches!(first, Request::OnBehalf { .. });
    (may_go_on || rest.is_empty()).then_some((first, rest))
}

/// Decodes one packet. `None` if it is not exactly one message, which is the sender's fault.
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
        let (owner, node, strength) = (ProcessId(8), NodeId(3), Strength::Strong);
        let packet = encode(&Request::Introduce {
            target: ProcessId(7),
            objects: vec![HeldNode { owner, node, strength, entry: None }],
        });
        assert!(decode::<Request>(&packet).is_some());
        assert_eq!(decode::<Request>(&packet[..packet.len() - 1]), None);
        let mut longer = packet;
        longer.push(0);
        assert_eq!(decode::<Request>(&longer), None);
    }

    #[test]
    fn a_greeting_alone_may_follow_another_request() {
        let greeting = Request::Observe { version: VERSION };
        let packet = encode_on_behalf(Some(7), &greeting);
        let (first, rest) = decode_first(&packet).unwrap();
        assert_eq!((first, decode(rest)), (Request::OnBehalf { pid: 7 }, Some(greeting.clone())));
        assert_eq!(decode_first(&encode_on_behalf(None, &greeting)), Some((greeting, &[][..])));
        let two = [encode(&Request::DescribeCalls), encode(&Request::DescribeCalls)].concat();
        assert_eq!(decode_first(&two), None);
    }

    #[test]
    fn the_largest_ticket_fits_a_packet() {
        let granted = Granted {
            owner: ProcessId(u64::MAX),
            node: NodeId(u64::MAX),
            strength: Strength::Strong,
            flags: u32::MAX,
            manages: true,
        };
        let event = Event::Ticket {
            from: ProcessId(u64::MAX),
            ticket: TicketId(u64::MAX),
            objects: vec![granted; MAX_OBJECTS],
        };
        assert!(encode(&event).len() <= MAX_PACKET_BYTES);
    }
}
