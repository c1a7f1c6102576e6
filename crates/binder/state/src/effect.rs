//! Effects, which the state asks its runner for, and returns, which it gives to threads.

use crate::known::KnownEntry;
use crate::message::{Incoming, LaneId};
use crate::node::{News, NodeKey};
use crate::thread::{FrameKind, Waiting};
use crate::work::Tid;
use baton_abi::control::{ChannelId, ProcessId, Request};
use baton_abi::holder_list::Holding;
use baton_abi::lane::ReturnedGrants;
use baton_abi::sched_priority::SchedPriority;

/// One thing to be done outside the state, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This thread sleeps and has work of its own.
    Wake(Tid, Waiting),
    /// Wake a looper that sleeps: this one leaves work to it.
    WakeLooper,
    /// Tell the broker.
    Tell(Request),
    /// Write an entry of this process's list of holders; `None` frees it.
    List(u32, Option<Holding>),
    /// Return grants to the owner that has given them.
    Return(ProcessId, Vec<ReturnedGrants>),
    /// Some references are kept: a round returns their grants, a while later
    /// ([`crate::State::return_kept`]).
    Round,
    /// Nothing but offers needs this handle: its number is free, unless messages with the node are
    /// on their way ([`crate::State::free_handle`]).
    FreeHandle(u32),
    /// Offer a known node to the peer, after so many uses.
    Offer(KnownEntry, NodeKey, u32),
    /// Withdraw an offer, unless there are more uses than these ([`crate::State::withdrawn`]).
    Withdraw(KnownEntry, u32),
    /// A thread has left with these frames open on a lane, innermost first. Its innermost caller
    /// gets an error, and no thread takes a later message in its place.
    Leave(LaneId, Vec<FrameKind>),
    /// A handle to a node of this process, which has been called, is gone: its number may name
    /// another node later.
    HandleDropped(ProcessId),
    /// Only calls under way need this handle strongly: those that were taken in no longer do.
    EndSending(u32),
    /// The lane is dedicated to this thread no longer, which loses the caller's priority.
    Relieved(LaneId, Tid),
    /// A one-way transaction of a real-time sender at this priority waits for the one that this
    /// thread serves.
    Raise(Tid, SchedPriority),
    /// A thread that was dedicated to the lane has ended. It may have been woken for a request
    /// there.
    AnnounceRequest(LaneId),
    /// No looper of the pool waits, and some are dedicated: a round of the watchdog, a while
    /// later.
    Watchdog,
    /// Publish how much of the receive buffer a channel's client has.
    Account(ChannelId),
    /// Close descriptors of the program, whose thread frees their buffer and waits for it.
    Close(Vec<i32>),
    /// Close descriptors that a process of this user has sent and the program has not got. Nobody
    /// waits for it: a close takes as long as the sender likes.
    Discard(u32, Vec<i32>),
    /// A line for the log: the program broke a rule.
    Complain(String),
}

/// One return of the protocol, for a thread that reads.
#[derive(Clone, Debug)]
pub enum Return {
    /// `BR_TRANSACTION` or `BR_TRANSACTION_SEC_CTX`, of a node at (ptr, cookie).
    Transaction(Incoming, (u64, u64)),
    /// `BR_REPLY`.
    Reply(Incoming),
    /// A return without payload.
    Bare(u32),
    /// Reference counts of a node.
    Node(News),
    /// A return with a cookie.
    Cookie(u32, u64),
    /// `BR_FROZEN_BINDER`.
    Frozen(u64, bool),
    /// No return: read the next item.
    Nothing,
}
