//! A copy of what a process has at one instant, for logs.
//!
//! It has the figures that the kernel's driver prints of a `binder_proc`. Two-way transactions that
//! threads wait for or serve are not in it: their messages lie on lanes, which the state does not
//! read.

use crate::buffer::Use;
use crate::message::{Incoming, LaneId};
pub use crate::node::Counts;
use crate::process::State;
use crate::thread::Thread;
use crate::work::{Tid, Todo, Work};
use baton_abi::control::Strength;

/// `BINDER_LOOPER_STATE_`, as the kernel's logs show them.
const REGISTERED: u32 = 0x01;
const ENTERED: u32 = 0x02;
const EXITED: u32 = 0x04;
const INVALID: u32 = 0x08;
const WAITING: u32 = 0x10;

/// A process at one instant. Lists are in the order of their first field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The broker's name for it.
    pub process: u64,
    /// Threads.
    pub threads: Vec<ThreadDescription>,
    /// Nodes.
    pub nodes: Vec<NodeDescription>,
    /// Handles.
    pub references: Vec<ReferenceDescription>,
    /// The messages in its receive buffer.
    pub buffers: Vec<BufferDescription>,
    /// The work for whichever looper comes, in its order.
    pub work: Vec<WorkDescription>,
    /// The program has read of a death that it has not acknowledged.
    pub has_delivered_death: bool,
    /// Loopers that the program was asked for and that have not registered.
    pub requested_loopers: u32,
    /// Loopers that have registered.
    pub started_loopers: u32,
    /// BINDER_SET_MAX_THREADS.
    pub max_loopers: u32,
    /// Bytes of its map of the device.
    pub mapped_bytes: usize,
    /// Bytes of its map in which messages lie.
    pub used_bytes: usize,
    /// Bytes that one-way transactions may still take.
    pub one_way_free_bytes: usize,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadDescription {
    /// The id, as gettid has it.
    pub tid: Tid,
    /// `BINDER_LOOPER_STATE_` bits.
    pub looper: u32,
    /// Whether the next read returns, with work or without.
    pub returns_once: bool,
    /// It waits for work of the process.
    pub is_ready: bool,
    /// The thread's own work, in order.
    pub work: Vec<WorkDescription>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDescription {
    /// The owner's name for it.
    pub node: u64,
    /// The program's address for it.
    pub ptr: u64,
    /// The program's word beside it.
    pub cookie: u64,
    /// Whether the program was told of a strong and of a weak reference.
    pub told: (bool, bool),
    /// Counts of buffers and of the program.
    pub local: Counts,
    /// Processes that hold it strongly, and all that hold it.
    pub holders: Counts,
    /// One-way transactions that wait for the one before.
    pub one_way: Vec<TransactionDescription>,
    /// A one-way transaction is being served or waits.
    pub is_busy: bool,
}

/// A handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceDescription {
    /// The handle.
    pub handle: u32,
    /// The node's owner.
    pub owner: u64,
    /// The owner's name for it.
    pub node: u64,
    /// The owner is dead.
    pub is_dead: bool,
    /// The program's counts and those of buffers.
    pub counts: Counts,
    /// The program wants to know of the node's death.
    pub has_death_notice: bool,
}

/// A message in the receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferDescription {
    /// The place in the map.
    pub offset: usize,
    /// The size.
    pub bytes: usize,
    /// The program has it and may free it.
    pub is_delivered: bool,
}

/// A transaction or reply that lies in the receive buffer and has not been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionDescription {
    /// The place in the map.
    pub offset: usize,
    /// The sender's process.
    pub peer: u64,
    /// The node, if it is no reply.
    pub node: Option<u64>,
    /// `binder_transaction_data.code`.
    pub code: u32,
    /// `binder_transaction_data.flags`.
    pub flags: u32,
    /// Bytes of data and of offsets.
    pub sizes: (usize, usize),
    /// The channel and the lane that take the answer, if one is to come.
    pub answered_by: Option<(u64, u32)>,
}

/// An item of a to-do list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkDescription {
    /// A transaction or a reply.
    Transaction(TransactionDescription),
    /// `BR_TRANSACTION_COMPLETE`, or the return in its place.
    Complete,
    /// A failure.
    Error(u32),
    /// News of a node, by the owner's name.
    Node(u64),
    /// `BR_DEAD_BINDER`.
    Dead,
    /// `BR_CLEAR_DEATH_NOTIFICATION_DONE`.
    DeathCleared,
    /// `BR_FROZEN_BINDER`.
    Frozen,
    /// `BR_CLEAR_FREEZE_NOTIFICATION_DONE`.
    FreezeCleared,
}

impl State {
    /// Copies what the process has. Fast operations have no part in it until they are the state's.
    pub fn describe(&self) -> Description {
        let mut threads: Vec<_> = self.threads.iter().map(thread).collect();
        threads.sort_unstable_by_key(|thread| thread.tid);
        let nodes = self.nodes.iter().map(|(id, node)| NodeDescription {
            node: id.0,
            ptr: node.ptr,
            cookie: node.cookie,
            told: node.told(),
            local: node.local,
            holders: node.holders,
            one_way: node.one_way_todo.iter().map(transaction).collect(),
            is_busy: node.one_way_busy,
        });
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_unstable_by_key(|node| node.node);
        let references = self.references.iter().map(|(handle, reference)| {
            let (mut counts, pinned) = (reference.counts, self.pinned(handle, Strength::Strong));
            // The count that keeps handle 0 stands for a program that has none: the node's owner
            // lists such a process as a holder.
            if counts.strong > pinned || counts.weak > 0 {
                counts.strong = counts.strong.saturating_sub(pinned);
            }
            ReferenceDescription {
                handle,
                owner: reference.owner.0,
                node: reference.node.0,
                is_dead: reference.dead,
                counts,
                has_death_notice: reference.death.is_some(),
            }
        });
        let mut references: Vec<_> = references.collect();
        references.sort_unstable_by_key(|reference| reference.handle);
        let buffers = self.contents.iter().map(|(&offset, buffer)| BufferDescription {
            offset,
            bytes: buffer.bytes,
            is_delivered: buffer.delivered,
        });
        let mut buffers: Vec<_> = buffers.collect();
        buffers.sort_unstable_by_key(|buffer| buffer.offset);
        Description {
            process: self.id.0,
            threads,
            nodes,
            references,
            buffers,
            work: work(&self.todo),
            has_delivered_death: self.unfinished_deaths.iter().any(|death| death.delivered),
            requested_loopers: self.pool.requested,
            started_loopers: self.pool.started,
            max_loopers: self.pool.max,
            mapped_bytes: self.buffers.bytes(),
            used_bytes: self.buffers.used().0,
            one_way_free_bytes: self.buffers.free(Use::OneWay),
        }
    }
}

fn thread((tid, thread): (Tid, &Thread)) -> ThreadDescription {
    let is_ready = thread.looper.serves() && !thread.is_out() && thread.is_available();
    let bits = [
        (thread.looper.registered, REGISTERED),
        (thread.looper.entered, ENTERED),
        (thread.looper.exited, EXITED),
        (thread.looper.invalid, INVALID),
        (!thread.is_out(), WAITING),
    ];
    ThreadDescription {
        tid,
        looper: bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum(),
        returns_once: thread.return_once,
        is_ready,
        work: work(&thread.todo),
    }
}

fn work(todo: &Todo) -> Vec<WorkDescription> {
    let described = |work: &Work| match work {
        Work::Transaction(incoming) | Work::Reply(incoming) => {
            WorkDescription::Transaction(transaction(incoming))
        }
        Work::Complete(_) => WorkDescription::Complete,
        Work::Error(command) | Work::Refused(command) => WorkDescription::Error(*command),
        Work::Node(node) => WorkDescription::Node(node.0),
        Work::Dead(_) => WorkDescription::Dead,
        Work::DeathCleared(_) => WorkDescription::DeathCleared,
        Work::Frozen(_) => WorkDescription::Frozen,
        Work::FreezeCleared(_) => WorkDescription::FreezeCleared,
    };
    todo.iter().map(described).collect()
}

fn transaction(incoming: &Incoming) -> TransactionDescription {
    let lane = |via: LaneId| (via.channel.0, via.lane);
    TransactionDescription {
        offset: incoming.buffer,
        peer: incoming.peer.0,
        node: incoming.node.map(|node| node.0),
        code: incoming.code,
        flags: incoming.flags,
        sizes: incoming.sizes,
        answered_by: incoming.serving.as_ref().map(|serving| lane(serving.via)),
    }
}
