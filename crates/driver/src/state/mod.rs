//! The engine's state: all that the driver knows of one process, without I/O.
//!
//! Front ends and the runner call it under one lock; what it wants done outside it leaves as
//! [`Effect`]s, which the runner carries out before it lets the lock go. That is what lets one
//! simulator drive many engines and a broker, and kill any of them between two steps.

pub mod buffer;
pub mod death;
pub mod freeze;
pub mod node;
pub mod peer;
pub mod reference;
pub mod thread;
pub mod transaction;
pub mod work;

use baton_abi::control::{Event, Granted, NodeId, ProcessId, Request, Strength, TicketId};
use baton_abi::lane::Kind;
use baton_abi::uapi::*;
use buffer::Buffers;
use node::{Counts, News, Nodes};
use peer::Peer;
use reference::{Reference, References};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use std::collections::BTreeMap;
use thread::{Frame, Thread, Waiting};
use transaction::{Buffer, Incoming, Via};
use work::{Completion, Queue, Tid, Todo, Work};

/// Something to be done outside the state, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This thread sleeps and has work of its own.
    Wake(Tid, Waiting),
    /// The process has work: wake a looper.
    WakeLooper,
    /// Tell the broker.
    Tell(Request),
    /// Answer a caller with an error.
    Answer(Via, Kind, Errno),
    /// Nobody waits on this lane any more.
    Abandon(Via),
    /// Only calls under way keep this handle: those that were taken in need it no longer.
    EndSending(u32),
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
    pub threads: FxHashMap<Tid, Thread>,
    /// Its receive buffer.
    pub buffers: Buffers,
    /// What lies in the receive buffer.
    pub contents: FxHashMap<buffer::Offset, Buffer>,
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
    tickets: FxHashMap<(ProcessId, TicketId), Vec<Granted>>,
    /// Tickets whose message has been dropped and whose event has not come.
    disowned: FxHashSet<(ProcessId, TicketId)>,
    /// Threads to find by what their call gave out.
    tokens: FxHashMap<u64, Tid>,
    told_deaths: Vec<death::Told>,
    cleared_freezes: Vec<u64>,
    numbers: u64,
    sleepers: u32,
    effects: Vec<Effect>,
}

impl State {
    /// A process that has just been admitted.
    pub fn new(id: ProcessId) -> State {
        State {
            id,
            nodes: Nodes::default(),
            references: References::default(),
            threads: FxHashMap::default(),
            buffers: Buffers::default(),
            contents: FxHashMap::default(),
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
            disowned: FxHashSet::default(),
            tokens: FxHashMap::default(),
            told_deaths: Vec::new(),
            cleared_freezes: Vec::new(),
            numbers: 0,
            sleepers: 0,
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

    /// Whether nothing waits for its other half: no ticket for its message, no call for its
    /// answer, no notice for its acknowledgement.
    pub fn is_settled(&self) -> bool {
        self.tickets.is_empty()
            && self.disowned.is_empty()
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
        self.threads.entry(tid).or_default()
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
        let waiting = self.thread(tid).waiting;
        if waiting != Waiting::No {
            self.effect(Effect::Wake(tid, waiting));
        }
    }

    fn push_process(&mut self, work: Work) {
        self.todo.push(work);
        if self.sleepers > 0 {
            self.effect(Effect::WakeLooper);
        }
    }

    fn take_process_work(&mut self, matches: impl FnMut(&Work) -> bool) {
        self.todo.take_if(matches);
    }

    /// A thread that owes nothing and has nothing of its own takes the process's work.
    pub fn takes_process_work(&mut self, tid: Tid) -> bool {
        self.thread(tid).is_available()
    }

    /// Whether a read by this thread has something to return.
    pub fn has_work(&mut self, tid: Tid, process_work: bool) -> bool {
        let process = process_work && !self.todo.is_empty();
        let thread = self.thread(tid);
        process || thread.todo.urgent || thread.return_once
    }

    /// Whether a read by this thread would find something that is here already.
    pub fn would_read(&self, tid: Tid) -> bool {
        let available = |thread: &Thread| thread.is_available();
        let thread = self.threads.get(&tid);
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
        match (before == Waiting::Bell, waiting == Waiting::Bell) {
            (false, true) => self.sleepers += 1,
            (true, false) => self.sleepers -= 1,
            _ => {}
        }
    }

    /// Whether the thread's read is to ask for one more looper; if so, one is being asked for.
    pub fn wants_looper(&mut self, tid: Tid) -> bool {
        let wants = self.pool.requested == 0
            && self.sleepers == 0
            && self.pool.started < self.pool.max
            && self.thread(tid).looper.serves();
        self.pool.requested += u32::from(wants);
        wants
    }

    /// The next return for a thread. `None`: nothing is left.
    pub fn next_return(&mut self, tid: Tid, process_work: bool) -> Option<Return> {
        let work = match self.thread(tid).todo.pop() {
            Some(work) => work,
            None if process_work => self.todo.pop()?,
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

    // ---- loopers ----------------------------------------------------------------------------

    /// BC_REGISTER_LOOPER.
    pub fn register_looper(&mut self, tid: Tid) {
        let requested = self.pool.requested > 0;
        let looper = &mut self.thread(tid).looper;
        looper.registered = true;
        if looper.entered || !requested {
            let why = if looper.entered { "after BC_ENTER_LOOPER" } else { "without request" };
            looper.invalid = true;
            self.complain(format!("BC_REGISTER_LOOPER called {why}"));
        } else {
            self.pool.requested -= 1;
            self.pool.started += 1;
        }
    }

    /// BC_ENTER_LOOPER.
    pub fn enter_looper(&mut self, tid: Tid) {
        let looper = &mut self.thread(tid).looper;
        looper.entered = true;
        if looper.registered {
            looper.invalid = true;
            self.complain("BC_ENTER_LOOPER called after BC_REGISTER_LOOPER".to_owned());
        }
    }

    /// Loopers that have not left.
    pub fn loopers(&self) -> usize {
        self.threads.values().filter(|t| t.looper.serves() && !t.looper.exited).count()
    }

    /// BINDER_THREAD_EXIT, and the end of a thread that did not say so.
    pub fn thread_exit(&mut self, tid: Tid) {
        self.set_waiting(tid, Waiting::No);
        let Some(mut thread) = self.threads.remove(&tid) else { return };
        for work in thread.todo.drain() {
            self.discard(work);
        }
        for frame in thread.stack.into_iter().rev() {
            match frame {
                Frame::Serving(serving) => {
                    self.outstanding -= 1;
                    self.effect(Effect::Answer(serving.via, Kind::Dead, Errno::PIPE));
                }
                Frame::Calling(calling) => {
                    self.tokens.remove(&calling.token);
                    self.end_sending(calling.handle);
                    if calling.owns_lane && !calling.dead {
                        self.effect(Effect::Abandon(calling.via));
                    }
                }
            }
        }
    }

    /// Work that nobody will read.
    fn discard(&mut self, work: Work) {
        match work {
            Work::Transaction(incoming) | Work::Reply(incoming) => {
                match &incoming.serving {
                    Some(serving) => {
                        self.outstanding -= 1;
                        self.effect(Effect::Answer(serving.via, Kind::Dead, Errno::PIPE));
                    }
                    None if incoming.node.is_some() => self.unread_one_way -= 1,
                    None => self.unread_replies -= 1,
                }
                self.drop_buffer(incoming.buffer, true);
            }
            // As in the kernel, its program hears of it at the next change only.
            Work::Node(node) => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.queued = None;
                }
            }
            Work::Dead(_) | Work::DeathCleared(_) | Work::Frozen(_) | Work::FreezeCleared(_) => {
                self.push_process(work);
            }
            Work::Complete(_) | Work::Error(_) | Work::Refused(_) => {}
        }
    }

    // ---- nodes ------------------------------------------------------------------------------

    /// Queues a node's news for the pool, or forgets the node if nobody ever knew of it.
    fn node_changed(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        if !node.is_held() && !node.is_known() {
            self.unqueue_node(id);
            self.nodes.remove(id);
        } else if node.queued.is_none() && node.has_news() {
            node.queued = Some(Queue::Process);
            self.push_process(Work::Node(id));
        }
    }

    /// Takes a node's news from where they wait.
    fn unqueue_node(&mut self, id: NodeId) {
        let queued = self.nodes.get_mut(id).and_then(|node| node.queued.take());
        let is_it = |work: &Work| matches!(work, Work::Node(queued) if *queued == id);
        match queued {
            Some(Queue::Thread(tid)) => drop(self.thread(tid).todo.take_if(is_it)),
            Some(Queue::Process) => self.take_process_work(is_it),
            None => {}
        }
    }

    fn tell_node(&mut self, id: NodeId) -> Return {
        let Some(node) = self.nodes.get_mut(id) else { return Return::Nothing };
        node.queued = None;
        let news = node.take_news();
        if !node.is_held() && !node.is_known() {
            self.nodes.remove(id);
        }
        if news.returns.is_empty() { Return::Nothing } else { Return::Node(news) }
    }

    /// BC_ACQUIRE_DONE and BC_INCREFS_DONE.
    pub fn acknowledge(&mut self, ptr: u64, cookie: u64, strength: Strength) {
        let name = match strength {
            Strength::Strong => "BC_ACQUIRE_DONE",
            Strength::Weak => "BC_INCREFS_DONE",
        };
        let Some(id) = self.nodes.at(ptr) else {
            return self.complain(format!("{name} u{ptr:016x} no match"));
        };
        let node = self.nodes.get_mut(id).expect("indexed");
        if node.cookie != cookie {
            let line =
                format!("{name} u{ptr:016x} cookie mismatch {cookie:016x} != {:016x}", node.cookie);
            return self.complain(line);
        }
        if !node.acknowledge(strength) {
            return self.complain(format!("{name} u{ptr:016x} node has no pending request"));
        }
        self.node_changed(id);
    }

    // ---- references -------------------------------------------------------------------------

    /// BC_INCREFS of a handle that the program has, and BC_ACQUIRE of one that it has strongly.
    pub fn increase(&mut self, handle: u32, strength: Strength) -> bool {
        let held = self.holds(handle, strength);
        if let Some(reference) = self.references.get_mut(handle).filter(|_| held) {
            *reference.counts.of(strength) += 1;
        }
        held
    }

    /// BC_INCREFS and BC_ACQUIRE of handle 0, which make it the program's while there is a context
    /// manager.
    pub fn increase_manager(&mut self, strength: Strength) -> bool {
        let Some(reference) = self.manager.and_then(|handle| self.references.get_mut(handle)) else {
            return self.increase(0, strength);
        };
        *reference.counts.of(strength) += 1;
        true
    }

    /// A command named a handle that does not exist.
    pub fn invalid_handle(&mut self, command: u32, handle: u32) {
        self.complain(format!("{} tried on invalid ref {handle}", command_name(command)));
    }

    /// BC_RELEASE and BC_DECREFS.
    pub fn decrease(&mut self, handle: u32, strength: Strength) {
        let command = match strength {
            Strength::Strong => BC_RELEASE,
            Strength::Weak => BC_DECREFS,
        };
        let Some(reference) = self.references.get_mut(handle) else {
            return self.invalid_handle(command, handle);
        };
        let pinned = u32::from(self.manager == Some(handle));
        if pinned > 0 && reference.counts.weak == 0 && reference.counts.strong == pinned {
            return self.invalid_handle(command, handle);
        }
        let pinned = if strength == Strength::Strong { pinned } else { 0 };
        let count = reference.counts.of(strength);
        if *count <= pinned {
            return self.complain(format!("{} invalid dec, ref {handle}", command_name(command)));
        }
        *count -= 1;
        self.return_grants(handle);
    }

    /// A handle that the program has: not one that only calls to handle 0 keep.
    fn held(&mut self, handle: u32) -> Option<&mut Reference> {
        let pinned = u32::from(self.manager == Some(handle));
        let reference = self.references.get_mut(handle)?;
        (reference.counts.strong > pinned || reference.counts.weak > 0).then_some(reference)
    }

    /// Whether the program has a handle this strongly.
    pub fn holds(&mut self, handle: u32, strength: Strength) -> bool {
        let pinned = u32::from(self.manager == Some(handle));
        self.held(handle).is_some_and(|reference| {
            strength == Strength::Weak || reference.counts.strong > pinned
        })
    }

    /// The program has let go of the manager's handle, which stays for calls to handle 0: what it
    /// wanted to hear by it goes.
    fn forget_notices(&mut self, handle: u32) {
        if self.held(handle).is_some() {
            return;
        }
        let Some(reference) = self.references.get_mut(handle) else { return };
        let (death, freeze) = (reference.death.take(), reference.freeze.take());
        if let Some(notice) = death {
            self.drop_notice(notice);
        }
        if let Some(notice) = freeze {
            self.drop_freeze(notice);
        }
    }

    fn return_grants(&mut self, handle: u32) {
        let Some(reference) = self.references.get_mut(handle) else { return };
        let unused = reference.counts == Counts::default() && reference.sending > 0;
        let Some(((strong, grants), over)) = reference.surplus() else {
            if unused {
                self.effect(Effect::EndSending(handle));
            }
            return self.forget_notices(handle);
        };
        if strong > 0 || grants > 0 {
            self.effect(Effect::Tell(Request::Release { handle, strong, grants }));
        }
        if !over {
            return;
        }
        let reference = self.references.remove(handle).expect("just seen");
        if let Some(notice) = reference.death {
            self.drop_notice(notice);
        }
        if let Some(notice) = reference.freeze {
            self.drop_freeze(notice);
        }
    }

    fn hold(&mut self, granted: &Granted) {
        match *granted {
            Granted::Handle { handle, owner, node, strength, flags } => {
                let reference = self.references.granted(handle, owner, node, flags);
                reference.grant(strength);
                *reference.counts.of(strength) += 1;
            }
            Granted::Own { node, strength } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    *node.local.of(strength) += 1;
                }
            }
        }
    }

    fn let_go(&mut self, granted: &Granted) {
        match *granted {
            Granted::Handle { handle, strength, .. } => {
                if let Some(reference) = self.references.get_mut(handle) {
                    *reference.counts.of(strength) -= 1;
                }
                self.return_grants(handle);
            }
            Granted::Own { node: id, strength } => {
                if let Some(node) = self.nodes.get_mut(id) {
                    *node.local.of(strength) -= 1;
                }
                self.node_changed(id);
            }
        }
    }

    // ---- the broker's events ----------------------------------------------------------------

    /// One event of the broker's stream. Channels are the runner's, and `Barrier` is its own
    /// question; before `References` that take a holder away and before `Dead`, the runner has
    /// taken in what that process had sent.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Ticket { from, ticket, objects } => {
                for granted in &objects {
                    self.hold(granted);
                }
                self.tickets.insert((from, ticket), objects);
                if self.disowned.remove(&(from, ticket)) {
                    self.drop_ticket(from, ticket);
                }
            }
            Event::TicketCancelled { from, ticket } => {
                self.release_ticket(from, ticket);
            }
            Event::References { node: id, strong, held, holder } => {
                let (process, holding) = holder;
                let peer = self.peers.entry(process).or_default();
                match holding {
                    Some(strength) => drop(peer.grants.insert(id, strength)),
                    None => drop(peer.grants.remove(&id)),
                }
                if peer.is_unused() {
                    self.peers.remove(&process);
                }
                if let Some(node) = self.nodes.get_mut(id) {
                    (node.remote_strong, node.remote_held) = (strong, held);
                }
                self.node_changed(id);
            }
            Event::Dead { process } => self.peer_gone(process),
            Event::Frozen { process, frozen } => self.freeze_changed(process, frozen),
            Event::Channel { .. } | Event::Barrier { .. } => {}
        }
    }

    /// A grant on the context manager has come by this ticket: from now on it stands for handle 0.
    pub fn set_manager(&mut self, ticket: TicketId) -> bool {
        let claimed = self.tickets.remove(&(ProcessId::BROKER, ticket));
        let Some(&[Granted::Handle { handle, .. }]) = claimed.as_deref() else { return false };
        if self.manager.is_some() {
            // Another thread asked at the same time.
            self.let_go(&claimed.expect("just matched")[0]);
            return true;
        }
        // The ticket's strong count stays as the pin that keeps the handle while nobody holds it.
        self.manager = Some(handle);
        true
    }

    /// A message that nobody takes had this ticket: its references go back, now or when they come.
    pub fn drop_ticket(&mut self, from: ProcessId, ticket: TicketId) {
        if ticket != TicketId(0) && !self.release_ticket(from, ticket) {
            self.disowned.insert((from, ticket));
        }
    }

    fn release_ticket(&mut self, from: ProcessId, ticket: TicketId) -> bool {
        let Some(held) = self.tickets.remove(&(from, ticket)) else { return false };
        for granted in &held {
            self.let_go(granted);
        }
        true
    }

    fn peer_gone(&mut self, process: ProcessId) {
        self.peers.remove(&process);
        let mut lost: Vec<_> =
            self.tickets.keys().filter(|(from, _)| *from == process).copied().collect();
        lost.sort_unstable();
        for (from, ticket) in lost {
            self.release_ticket(from, ticket);
        }
        self.disowned.retain(|(from, _)| *from != process);
        let handles: Vec<u32> = self
            .references
            .iter_mut()
            .filter(|(_, reference)| reference.owner == process && !reference.dead)
            .map(|(handle, reference)| {
                reference.dead = true;
                handle
            })
            .collect();
        for handle in handles {
            self.tell_death(handle);
            if self.manager == Some(handle) {
                self.manager = None;
                if let Some(reference) = self.references.get_mut(handle) {
                    reference.counts.strong -= 1;
                }
                self.return_grants(handle);
            }
        }
        self.fail_calls(process);
    }
}
