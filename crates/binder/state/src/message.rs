//! Messages as they lie in the receive buffer, and the lanes by which they come.

use crate::buffer::Offset;
use crate::priority::{QueuePriority, RequestedPriority};
use baton_abi::control::{ChannelId, NodeId, ProcessId, Strength};
use baton_abi::lane::ChainEntry;
use baton_abi::sched_priority::SchedPriority;

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
    /// The lane that takes the answer.
    pub via: LaneId,
    /// The caller's process.
    pub peer: ProcessId,
    /// The answer may carry descriptors.
    pub accepts_fds: bool,
    /// The callers above.
    pub chain: Vec<ChainEntry>,
}

/// The sender of a one-way transaction that has come by the ring of a lane: the thread that keeps
/// the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSender {
    /// The lane, on which the sender's dedicated looper waits.
    pub via: LaneId,
    /// The sender's priority, by the broker's word. `None` if the broker has not told of it.
    pub priority: Option<SchedPriority>,
    /// The number of the lane's reservation, if the broker has told of it: one thread after the
    /// other may keep the lane.
    pub reservation: u64,
}

/// A transaction or reply that lies in the receive buffer.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its place in the mapping.
    pub buffer: Offset,
    /// Its sender.
    pub peer: ProcessId,
    /// The node that a transaction is for. `None` of a reply.
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
    /// The minimum priority at which it is served, if its node asks for one or a real-time thread
    /// sent it one-way.
    pub min_priority: Option<SchedPriority>,
    /// Its place among calls that wait.
    pub queue_priority: QueuePriority,
    /// The thread that has sent it, if it is one-way and has come by a lane's ring.
    pub lane_sender: Option<LaneSender>,
    /// The caller that waits for the answer. `None` of a one-way transaction and of a reply.
    pub serving: Option<Serving>,
}

impl Incoming {
    /// The priority of its real-time sender, if it is one-way and has one.
    pub(crate) fn real_time(&self) -> Option<SchedPriority> {
        self.lane_sender?.priority
    }

    /// Whether it is of the same sender as another one, or may be.
    pub(crate) fn has_sender_of(&self, other: &Incoming) -> bool {
        let (Some(own), Some(other)) = (self.lane_sender, other.lane_sender) else { return false };
        let is_unknown = own.priority.is_none() || other.priority.is_none();
        own.via == other.via && (is_unknown || own.reservation == other.reservation)
    }

    /// Whether another one-way transaction goes before this one, which has come first: it is of
    /// another sender, which is more urgent.
    pub(crate) fn lets_by(&self, other: &Incoming) -> bool {
        self.real_time() < other.real_time() && !self.has_sender_of(other)
    }

    /// Gives it at least the priority of a later one of its sender, before which it goes.
    pub(crate) fn inherit(&mut self, later: &Incoming) {
        let priority = self.real_time().max(later.real_time());
        if let Some((sender, later)) = self.lane_sender.as_mut().zip(later.lane_sender) {
            (sender.priority, sender.reservation) = (priority, later.reservation);
        }
        self.min_priority = self.min_priority.max(priority);
    }

    /// The priority at which the caller and the node want it to be served.
    pub fn requested_priority(&self) -> RequestedPriority {
        let nice = self.serving.is_some().then(|| self.queue_priority.nice());
        RequestedPriority { nice, minimum: self.min_priority }
    }
}

/// The part of a message in the receive buffer that its reader is told.
#[derive(Clone, Copy, Debug)]
pub struct BufferedMessage {
    /// Its place in the mapping.
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

/// A node or a handle in a message that has come in: a count of its own keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldObject {
    /// A handle of this process.
    Handle {
        /// Its number.
        handle: u32,
        /// HANDLE or WEAK_HANDLE.
        strength: Strength,
    },
    /// A node of this process, which has returned to its owner.
    Own {
        /// The node.
        node: NodeId,
        /// BINDER or WEAK_BINDER.
        strength: Strength,
    },
}

/// References and descriptors of a message that lies in the receive buffer.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Its references, in the order of the objects.
    pub held: Vec<HeldObject>,
    /// All descriptors that were installed for it, which are closed if the program never gets it.
    pub fds: Vec<i32>,
    /// The descriptors in arrays, which are closed when the program frees the buffer.
    pub array_fds: Vec<i32>,
    /// The user whose process has sent it.
    pub user: u32,
}

/// The contents of a buffer until it is freed.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    /// The transaction's node: held strongly until the buffer is freed.
    pub node: Option<NodeId>,
    /// The channel whose one-way account it is on.
    pub one_way: Option<ChannelId>,
    /// References and descriptors in it.
    pub received: Received,
    /// TF_CLEAR_BUF.
    pub clear: bool,
    /// The program has got it and may free it.
    pub delivered: bool,
    /// Its size.
    pub bytes: usize,
}
