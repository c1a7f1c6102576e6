//! The engine's state: all that the driver knows of one process, without I/O.
//!
//! Front ends and the runner call it under one lock; what it wants done outside it leaves as
//! [`Effect`]s, which the runner carries out before it lets the lock go. That is what lets one
//! simulator drive many engines and a broker, and kill any of them between two steps.

#![forbid(unsafe_code)]

pub mod account;
pub mod buffer;
pub mod death;
pub mod dedicated;
mod event;
pub mod freeze;
pub mod node;
pub mod parcel;
pub mod peer;
pub mod priority;
pub mod reference;
pub mod rejoin;
pub mod thread;
pub mod transaction;
pub mod work;

pub use event::Manager;

use account::{Accounts, Held};
use baton_abi::control::{ChannelId, ProcessId, Request, TicketId};
use baton_abi::uapi::*;
use buffer::Buffers;
use node::{News, Nodes};
use peer::Peer;
use reference::References;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use thread::{Half, Thread, Threads, Waiting};
use transaction::{Buffer, Incoming, LaneId, ReservedSlot};
use work::Todo;
use work::{Completion, Queue, Tid, Work};

/// Something to be done outside the state, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This thread sleeps and has work of its own.
    Wake(Tid, Waiting),
    /// The process has work: wake a looper.
    WakeLooper,
    /// Tell the broker.
    Tell(Request),
    /// A thread has left that had this open on a lane, innermost first: the innermost caller is to
    /// be told, and what comes for the thread from now on has nobody.
    Leave(LaneId, Vec<Half>),
    /// A handle of this process's is no more: its number may be another's.
    Forgotten(ProcessId),
    /// Only calls under way need this handle strongly: those that were taken in no longer do.
    EndSending(u32),
    /// The lane is dedicated to this thread no longer, which loses the caller's priority.
    Relieved(LaneId, Tid),
    /// A thread that was dedicated to the lane has ended. It may have been woken for a request
    /// there.
    LookAfter(LaneId),
    /// No looper of the pool waits, and some are dedicated: a round of the watchdog, a while
    /// later.
    Watchdog,
    /// Publish what a channel's client has in the receive buffer.
    Account(baton_abi::control::ChannelId),
    /// Close descriptors of the program.
    Close(Vec<i32>),
    /// A line for the log: the program broke a rule.
    Complain(String),
}

/// What a thread is told: one return of the protocol.
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
    /// Nothing after all: take the next.
    Nothing,
}

/// The pool of loopers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool {
    /// BINDER_SET_MAX_THREADS.
    pub max: u32,
    /// Asked for, not yet registered.
    pub requested: u32,
    /// Registered.
    pub started: u32,
    /// Loopers of both kinds that have not left.
    pub there: usize,
}

/// One process, as its driver knows it.
#[derive(Debug)]
pub struct State {
    /// The broker's name for it.
    pub id: ProcessId,
    /// What it owns.
    pub nodes: Nodes,
    /// What it holds of others.
    pub references: References,
    /// Its threads.
    pub threads: Threads,
    /// Its receive buffer. Given back by [`State::drop_buffer`] alone.
    pub buffers: Buffers,
    /// What lies in the receive buffer.
    pub contents: FxHashMap<buffer::Offset, Buffer>,
    /// Bytes and buffers of one-way transactions that lie there, for each channel that has any.
    one_way_accounts: FxHashMap<ChannelId, (usize, usize)>,
    /// Room for what comes in past the state.
    slots: Vec<Arc<ReservedSlot>>,
    /// What its peers' users hold of it.
    pub accounts: Accounts,
    /// Who it talks to.
    pub peers: BTreeMap<ProcessId, Peer>,
    /// Its loopers.
    pub pool: Pool,
    /// BINDER_ENABLE_ONEWAY_SPAM_DETECTION.
    pub spam_detection: bool,
    /// The handle that stands for handle 0 in calls, with a count of its own.
    pub manager: Option<u32>,
    /// Two-way transactions received and not answered.
    pub outstanding: u32,
    /// One-way transactions taken in and not yet read.
    pub unread_one_way: u32,
    /// Answers taken in and not yet read.
    pub unread_replies: u32,
    /// Transactions received.
    pub received: u64,
    todo: Todo,
    tickets: FxHashMap<(ProcessId, TicketId), event::Ticket>,
    /// Tickets whose message has been dropped and whose event has not come.
    disowned: FxHashMap<(ProcessId, TicketId), Held>,
    /// Tickets that were beyond their user's share: they have been given back, and their messages
    /// fail.
    overdrawn: FxHashMap<ProcessId, FxHashSet<TicketId>>,
    dedicated_loopers: dedicated::DedicatedLoopers,
    /// Threads to find by what their call gave out.
    tokens: FxHashMap<u64, Tid>,
    broker: rejoin::Standing,
    told_deaths: Vec<death::ToldDeath>,
    cleared_freezes: Vec<u64>,
    numbers: u64,
    sleepers: u32,
    made_room: bool,
    effects: Vec<Effect>,
}

impl State {
    /// A process that has just been admitted.
    pub fn new(id: ProcessId) -> State {
        State {
            id,
            nodes: Nodes::default(),
            references: References::default(),
            threads: Threads::default(),
            buffers: Buffers::default(),
            contents: FxHashMap::default(),
            one_way_accounts: FxHashMap::default(),
            slots: Vec::new(),
            accounts: Accounts::default(),
            peers: BTreeMap::new(),
            pool: Pool::default(),
            spam_detection: false,
            manager: None,
            outstanding: 0,
            unread_one_way: 0,
            unread_replies: 0,
            received: 0,
            todo: Todo::default(),
            tickets: FxHashMap::default(),
            disowned: FxHashMap::default(),
            overdrawn: FxHashMap::default(),
            dedicated_loopers: dedicated::DedicatedLoopers::default(),
            tokens: FxHashMap::default(),
            broker: rejoin::Standing::new(id.era()),
            told_deaths: Vec::new(),
            cleared_freezes: Vec::new(),
            numbers: 0,
            sleepers: 0,
            made_room: false,
            effects: Vec::new(),
        }
    }

    /// What is to be done, in order; empty most of the time.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether [`State::take_effects`] has any.
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Whether a buffer has been freed since this was last asked: one-way transactions that waited
    /// for room may come in.
    pub fn take_made_room(&mut self) -> bool {
        std::mem::take(&mut self.made_room)
    }

    /// Whether nothing waits for its other half: no ticket for its message, no call for its
    /// answer, no notice for its acknowledgement.
    pub fn is_settled(&self) -> bool {
        self.tickets.is_empty()
            && self.disowned.is_empty()
            && self.overdrawn.is_empty()
            && self.tokens.is_empty()
            && self.told_deaths.is_empty()
            && self.cleared_freezes.is_empty()
    }

    fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn complain(&mut self, line: String) {
        self.effect(Effect::Complain(line));
    }

    /// A number never used before in this process.
    pub fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The thread, known from its first use of the driver on.
    pub fn thread(&mut self, tid: Tid) -> &mut Thread {
        self.threads.get_or_add(tid)
    }

    // ---- work -------------------------------------------------------------------------------

    fn push(&mut self, queue: Queue, work: Work) {
        match queue {
            Queue::Process => self.push_process(work),
            Queue::Thread(tid) => {
                self.thread(tid).todo.push(work);
                self.wake(tid);
            }
        }
    }

    /// The thread has work of its own.
    fn wake(&mut self, tid: Tid) {
        let thread = self.thread(tid);
        let waiting = thread.waiting;
        thread.flag.raise();
        if waiting != Waiting::No {
            self.effect(Effect::Wake(tid, waiting));
        }
    }

    fn push_process_call(&mut self, incoming: Incoming) {
        self.todo.push_call(incoming);
        self.wake_sleeper();
    }

    fn push_process(&mut self, work: Work) {
        self.todo.push(work);
        self.wake_sleeper();
    }

    fn wake_sleeper(&mut self) {
        if self.sleepers > 0 {
            self.effect(Effect::WakeLooper);
        }
    }

    fn take_process_work(&mut self, matches: impl FnMut(&Work) -> bool) {
        self.todo.take_if(matches);
    }

    /// Whether the thread takes the process's work: it owes nothing, has no work of its own, and is
    /// dedicated to no lane.
    pub fn takes_process_work(&mut self, tid: Tid) -> bool {
        let thread = self.thread(tid);
        thread.is_available() && thread.dedicated_to.is_none()
    }

    /// Whether a read by this thread has something to return.
    pub fn has_work(&mut self, tid: Tid, process_work: bool) -> bool {
        let process = process_work && (!self.todo.is_empty() || self.is_to_ask(tid));
        let thread = self.thread(tid);
        process || thread.todo.urgent || thread.return_once
    }

    /// Whether something has come for a thread that sleeps for any work.
    pub fn has_work_for_sleepers(&self) -> bool {
        self.threads.iter().any(|(_, thread)| {
            thread.waiting == Waiting::Bell && (thread.todo.urgent || !self.todo.is_empty())
        })
    }

    /// Whether a read by this thread would find something that is here already.
    pub fn would_read(&self, tid: Tid) -> bool {
        let available = |thread: &Thread| thread.is_available();
        let thread = self.threads.get(tid);
        thread.is_some_and(|thread| thread.todo.urgent || thread.return_once)
            || thread.is_none_or(available) && !self.todo.is_empty()
    }

    /// Two-way transactions received and not answered, one-way ones and answers not read, and
    /// threads that wait for an answer: what keeps a process from being frozen.
    pub fn pending_calls(&self) -> usize {
        let unread = self.unread_one_way + self.unread_replies;
        (self.outstanding + unread) as usize + self.tokens.len()
    }

    /// Sleeping loopers are what keeps the driver from asking for more.
    pub fn set_waiting(&mut self, tid: Tid, waiting: Waiting) {
        let thread = self.thread(tid);
        let before = std::mem::replace(&mut thread.waiting, waiting);
        thread.is_past = false;
        match (before == Waiting::Bell, waiting == Waiting::Bell) {
            (false, true) => {
                self.sleepers += 1;
                self.count_visit();
            }
            (true, false) => {
                self.sleepers -= 1;
                if self.sleepers == 0 {
                    self.none_waits();
                }
            }
            _ => {}
        }
    }

    /// Whether the program may be asked for one more looper now.
    #[inline]
    fn may_ask(&self) -> bool {
        self.pool.requested == 0 && self.pool.started < self.pool.max
    }

    /// Whether the thread's read is to ask for one more looper; if so, one is being asked for.
    #[inline]
    pub fn wants_looper(&mut self, tid: Tid) -> bool {
        let wants = self.may_ask()
            && (self.sleepers == 0 || self.lacks_loopers())
            && self.thread(tid).looper.serves();
        self.pool.requested += u32::from(wants);
        wants
    }

    /// The next return for a thread. `None`: nothing is left.
    pub fn next_return(&mut self, tid: Tid, process_work: bool) -> Option<Return> {
        let work = match self.thread(tid).todo.pop() {
            Some(work) => work,
            None if process_work => {
                self.count_visit();
                self.todo.pop()?
            }
            None => return None,
        };
        Some(match work {
            Work::Transaction(incoming) => return Some(self.start_serving(tid, incoming)),
            Work::Reply(incoming) => {
                self.hand_over(&incoming);
                self.unread_replies -= 1;
                Return::Reply(incoming)
            }
            Work::Complete(Completion::Taken) => Return::Bare(BR_TRANSACTION_COMPLETE),
            Work::Complete(Completion::PendingFrozen) => {
                Return::Bare(BR_TRANSACTION_PENDING_FROZEN)
            }
            Work::Complete(Completion::SpamSuspect) if self.spam_detection => {
                Return::Bare(BR_ONEWAY_SPAM_SUSPECT)
            }
            Work::Complete(Completion::SpamSuspect) => Return::Bare(BR_TRANSACTION_COMPLETE),
            Work::Error(command) => Return::Bare(command),
            Work::Refused(command) => {
                self.thread(tid).failed = false;
                Return::Bare(command)
            }
            Work::Node(node) => self.tell_node(node),
            Work::Dead(obituary) => {
                self.death_delivered(obituary);
                Return::Cookie(BR_DEAD_BINDER, obituary.cookie)
            }
            Work::DeathCleared(cookie) => Return::Cookie(BR_CLEAR_DEATH_NOTIFICATION_DONE, cookie),
            Work::Frozen(obituary) => match self.freeze_delivered(obituary) {
                Some(frozen) => Return::Frozen(obituary.cookie, frozen),
                None => Return::Nothing,
            },
            Work::FreezeCleared(cookie) => {
                Return::Cookie(BR_CLEAR_FREEZE_NOTIFICATION_DONE, cookie)
            }
        })
    }
}
