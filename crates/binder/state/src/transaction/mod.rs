//! Transactions: how one leaves a process, and how one comes in.
//!
//! Leaving: `State::depart` checks and counts, the runner gets lane, ticket and descriptors,
//! `State::departed` makes it final (or `State::turn_back` undoes it) and the runner posts.
//! Coming in: `State::admit` checks the peer's right and takes room, the runner copies, then
//! `State::deliver` or `State::answered` queues it.

mod adopt;
mod answer;
mod arrive;
mod depart;
mod plain;
mod release;
mod reserved_slot;

pub use reserved_slot::{ReservedSlot, SLOT_BYTES};

use super::buffer::Offset;
use super::work::{Tid, Turn};
use crate::priority::Wanted;
use baton_abi::control::{ChannelId, Granted, NodeId, Object, ProcessId, Strength};
use baton_abi::lane::{ChainEntry, Kind, Message};
use baton_abi::sched_priority::SchedPriority;
use baton_abi::uapi::*;
use rustix::io::Errno;

/// A lane of a channel, seen from this process's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId {
    /// The channel.
    pub channel: ChannelId,
    /// The lane's number in it.
    pub lane: u32,
}

/// A two-way transaction that a thread has to answer.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Where the answer goes.
    pub via: LaneId,
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
    /// The minimum priority at which it is served, if its node asks for one.
    pub min_priority: Option<SchedPriority>,
    /// Its place among calls that wait.
    pub turn: Turn,
    /// Who waits for the answer, if anyone.
    pub serving: Option<Serving>,
}

/// What the program is told of a message in its receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufferedMessage {
    /// Where.
    pub buffer: Offset,
    /// Bytes of data and of offsets.
    pub sizes: (usize, usize),
    /// `binder_transaction_data.code`.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// The sender's pid and effective uid.
    pub sender: (u32, u32),
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
    pub via: Option<LaneId>,
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

impl Incoming {
    /// By what it is to be served.
    pub fn wanted(&self) -> Wanted {
        let nice = self.serving.is_some().then(|| self.turn.nice());
        Wanted { nice, minimum: self.min_priority }
    }
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

    /// There was no lane to the target.
    pub fn lost(errno: Errno) -> Refusal {
        if errno == Errno::SRCH { Refusal::dead() } else { Refusal::failed(errno) }
    }

    /// `binder_extended_error.param`: a frozen target is no error, and says none.
    pub fn param(self) -> i32 {
        if self.command == BR_FROZEN_REPLY { 0 } else { -self.errno.raw_os_error() }
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
    pub via: LaneId,
    /// Who sent it.
    pub peer: ProcessId,
    /// Its header.
    pub message: &'a Message,
    /// The callers above.
    pub chain: Vec<ChainEntry>,
}

/// Which thread a request that arrives is for, beside a thread that its chain names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// Any looper of the pool.
    Pool,
    /// The thread to which the lane is dedicated, unless the chain names another one.
    Dedicated(Tid),
    /// The thread that waits on the lane for an answer: the lane has turned round.
    Waiting(Tid),
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
