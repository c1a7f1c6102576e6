//! The state of one process, and its queues of work.

use crate::account::Accounts;
use crate::buffer::{Buffers, Offset};
use crate::effect::Effect;
use crate::known::KnownNodes;
use crate::message::Buffer;
use crate::node::Nodes;
use crate::notice::UnfinishedDeath;
use crate::peer::{Broker, Entries, Peer};
use crate::pool::Pool;
use crate::postponed::Postponed;
use crate::reference::References;
use crate::reserved_slot::ReservedSlot;
use crate::thread::{Frame, Thread, Threads, Waiting};
use crate::ticket::Tickets;
use crate::watchdog::Watchdog;
use crate::work::{Queue, Tid, Todo, Work};
use baton_abi::control::{ChannelId, ProcessId};
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of one process, as its driver keeps it.
#[derive(Debug, Default)]
pub struct State {
    /// The broker's name for it.
    pub id: ProcessId,
    /// Its own objects.
    pub nodes: Nodes,
    /// Its handles to objects of others.
    pub references: References,
    /// Its threads.
    pub threads: Threads,
    /// Its receive buffer. Given back by `drop_buffer` alone.
    pub buffers: Buffers,
    /// The messages in the receive buffer.
    pub contents: FxHashMap<Offset, Buffer>,
    /// Bytes and buffers of one-way transactions in the receive buffer, for each channel that has
    /// any.
    pub(crate) one_way_accounts: FxHashMap<ChannelId, (usize, usize)>,
    /// Reserved slots, for messages that come in without the state.
    pub(crate) slots: Vec<Arc<ReservedSlot>>,
    /// The amounts that its peers' users hold of it.
    pub accounts: Accounts,
    /// The processes that it talks to.
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
    pub(crate) todo: Todo,
    pub(crate) tickets: Tickets,
    pub(crate) known: KnownNodes,
    pub(crate) entries: Entries,
    /// Losses of holdings on which messages still rely.
    pub postponed: Postponed,
    pub(crate) watchdog: Watchdog,
    /// Threads, by the numbers that stand for them in the chains of their calls.
    pub(crate) tokens: FxHashMap<u64, Tid>,
    pub(crate) broker: Broker,
    pub(crate) unfinished_deaths: Vec<UnfinishedDeath>,
    pub(crate) cleared_freezes: Vec<u64>,
    pub(crate) numbers: u64,
    pub(crate) sleepers: u32,
    /// One of them has been woken for the process's work, and has not come yet.
    pub(crate) wakes_looper: bool,
    pub(crate) made_room: bool,
    pub(crate) effects: Vec<Effect>,
    /// Descriptors of a buffer that the program frees. The thread that does so closes them once it
    /// has unlocked the state: to close a file takes as long as its sender likes.
    pub closing: Vec<i32>,
}

impl State {
    /// A process that has just been admitted.
    pub fn new(id: ProcessId) -> State {
        State { id, broker: Broker { era: id.era(), is_alive: true }, ..State::default() }
    }

    /// Takes the effects, in order; there are none most of the time.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Gives back the memory of effects that have been carried out.
    pub fn keep_room_for_effects(&mut self, empty: Vec<Effect>) {
        if self.effects.capacity() == 0 {
            self.effects = empty;
        }
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

    /// Whether nothing is under way: no ticket waits for its message, no kept reference for its
    /// round, no call for its answer, no notice for its acknowledgement.
    pub fn is_settled(&self) -> bool {
        self.tickets.is_empty()
            && self.postponed.is_empty()
            && self.references.kept().len() == 0
            && self.tokens.is_empty()
            && self.unfinished_deaths.is_empty()
            && self.cleared_freezes.is_empty()
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn complain(&mut self, line: String) {
        self.effect(Effect::Complain(line));
    }

    /// Complains of the program, which is told `errno`.
    pub(crate) fn complain_of(&mut self, line: impl Into<String>, errno: Errno) -> Errno {
        self.complain(line.into());
        errno
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

    pub(crate) fn push(&mut self, queue: Queue, work: Work) {
        match queue {
            Queue::Process => self.push_process(work),
            Queue::Thread(tid) => {
                self.thread(tid).todo.push(work);
                self.wake(tid);
            }
        }
    }

    /// Queues the work of a thread for itself if it is a looper, else for the pool.
    pub(crate) fn push_own_or_process(&mut self, tid: Tid, work: Work) {
        let serves = self.thread(tid).looper.serves();
        self.push(if serves { Queue::Thread(tid) } else { Queue::Process }, work);
    }

    /// Adds a level to the thread's stack. What it serves or awaits there may depend on one-way
    /// transactions that it has not read, so these are the pool's from then on.
    pub(crate) fn push_frame(&mut self, tid: Tid, frame: Frame) {
        self.give_one_ways_back(tid);
        self.thread(tid).stack.push(frame);
    }

    /// Wakes the thread for work of its own.
    pub(crate) fn wake(&mut self, tid: Tid) {
        let thread = self.thread(tid);
        let waiting = thread.waiting;
        thread.flag.raise();
        if waiting != Waiting::No {
            self.effect(Effect::Wake(tid, waiting));
        }
    }

    /// Queues work for the pool: a call goes before calls of worse nice values, and a one-way
    /// transaction of a real-time sender before all less urgent transactions.
    pub(crate) fn push_process(&mut self, work: Work) {
        match work {
            Work::Transaction(call) if call.serving.is_some() => self.todo.push_call(call),
            Work::Transaction(one_way) if one_way.lane_sender.is_some() => {
                self.todo.push_real_time(one_way);
            }
            work => self.todo.push(work),
        }
    }

    /// Whether there is work for whichever looper comes.
    pub fn has_process_work(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Two-way transactions received and not answered, one-way ones and answers not read, and
    /// threads that wait for an answer: a process that has any is not frozen.
    pub fn pending_calls(&self) -> usize {
        let unread = self.unread_one_way + self.unread_replies;
        (self.outstanding + unread) as usize + self.tokens.len()
    }
}
