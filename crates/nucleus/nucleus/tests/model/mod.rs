//! The behaviour of every variant, stated without queues: a table of threads, and for each
//! operation the threads that may run after it. Of several threads with the highest priority any
//! may run.
//!
//! The model does not tell lazy from eager queueing, nor one kind of priority queue from another,
//! since users must not be able to.
//!
//! One model may have the threads of several kernels. It then says what becomes of every thread;
//! the test asks the kernels which thread runs.

#![allow(dead_code, reason = "each test uses its part")]

pub mod history;
pub mod members;
pub mod pair;
pub mod traffic;

use baton_nucleus::request::Request;
use baton_nucleus::tcb::Status;
use baton_nucleus::variant::{Inheritance, Switching, Variant};
use baton_nucleus::{Cause, Ipc, IpcError, Phase, Sender, Source, Tag, ThreadId, Timeout};
use std::collections::{BTreeMap, BTreeSet};

/// The result of an IPC.
pub type Outcome = Result<Option<Sender>, IpcError>;

/// A thread of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    pub status: Status,
    base: u8,
    suspended: bool,
    /// The thread's last IPC, and its message.
    ipc: Ipc,
    pub message: (Tag, Vec<u64>),
    /// The thread is blocked in a call.
    calls: bool,
    pub continues: bool,
    pub outcome: Outcome,
    /// The answer to the thread's last request.
    pub answer: Option<Request>,
    deadline_ns: Option<u64>,
    slice_left_ticks: u32,
    notices: u64,
    accepted: u64,
    interrupts: u64,
    user_word: u64,
}

/// A step of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The current thread makes an IPC.
    Ipc(Ipc, Tag, Vec<u64>),
    /// The current thread makes a request.
    Request(Request),
    /// The current thread, which has sent, makes its receive phase.
    Continue,
    Interrupt(u8),
    Expire(u64),
    Tick,
}

/// The model of one kernel, or of several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    switching: Switching,
    inherits: bool,
    by_priority: bool,
    slice_ticks: u32,
    pub threads: BTreeMap<ThreadId, Thread>,
    pub current: Option<ThreadId>,
    /// Senders and their receivers, the oldest first.
    pub senders: Vec<(ThreadId, ThreadId)>,
    pub handlers: BTreeMap<u8, ThreadId>,
    /// The sender whose message the kernel has taken in this step, if several had equal priorities.
    pub taken: Option<ThreadId>,
}

/// The threads that may run next; `None` is none.
type Choice = BTreeSet<Option<ThreadId>>;

fn only(id: Option<ThreadId>) -> Choice {
    BTreeSet::from([id])
}

const NO_IPC: Ipc = Ipc { send: None, receive: None };

impl Model {
    pub fn new<K: Variant>(slice_ticks: u32) -> Model {
        Model {
            switching: K::SWITCHING,
            inherits: K::INHERITANCE == Inheritance::ThroughCalls,
            by_priority: !std::any::type_name::<K::SendQueue>().ends_with("Fifo"),
            slice_ticks,
            threads: BTreeMap::new(),
            current: None,
            senders: Vec::new(),
            handlers: BTreeMap::new(),
            taken: None,
        }
    }

    /// Adds a thread under the id that the kernel has given it.
    pub fn create(&mut self, id: ThreadId, priority: u8) {
        let thread = Thread {
            status: Status::Created,
            base: priority,
            suspended: false,
            ipc: NO_IPC,
            message: (Tag::default(), Vec::new()),
            calls: false,
            continues: false,
            outcome: Ok(None),
            answer: None,
            deadline_ns: None,
            slice_left_ticks: self.slice_ticks,
            notices: 0,
            accepted: 0,
            interrupts: 0,
            user_word: 0,
        };
        assert!(self.threads.insert(id, thread).is_none(), "{id:?} is there already");
    }

    pub fn start(&mut self, id: ThreadId) -> Choice {
        self.thread(id).status = Status::Ready;
        self.woken(&[id])
    }

    fn thread(&mut self, id: ThreadId) -> &mut Thread {
        self.threads.get_mut(&id).unwrap()
    }

    pub fn is_runnable(&self, id: ThreadId) -> bool {
        self.threads.get(&id).is_some_and(|it| it.status == Status::Ready && !it.suspended)
    }

    /// Whether the current thread's receive phase is still to come.
    pub fn continues(&self) -> bool {
        self.current.is_some_and(|id| self.threads[&id].continues)
    }

    fn partner(&self, id: ThreadId) -> Option<ThreadId> {
        let thread = &self.threads[&id];
        match (thread.status, thread.ipc) {
            (Status::Sending, Ipc { send: Some((to, _)), .. }) => Some(to),
            (Status::Receiving, Ipc { receive: Some((Source::Thread(from), _)), .. }) => Some(from),
            _ => None,
        }
    }

    /// Whether a thread waits, through calls, for a thread that waits for itself.
    pub fn is_deadlocked(&self, id: ThreadId) -> bool {
        let calls = |id: ThreadId| self.partner(id).filter(|_| self.threads[&id].calls);
        let chain = std::iter::successors(calls(id), |&id| calls(id));
        chain.take(self.threads.len() + 1).count() > self.threads.len()
    }

    /// The priority at which a thread should run: its own, or the highest of its callers'.
    pub fn priority(&self, id: ThreadId) -> u8 {
        self.lent_priority(id, &mut BTreeSet::new())
    }

    fn lent_priority(&self, id: ThreadId, seen: &mut BTreeSet<ThreadId>) -> u8 {
        if !seen.insert(id) {
            return 0;
        }
        let lenders = self.threads.iter().filter(|&(&other, thread)| {
            self.inherits && thread.calls && self.partner(other) == Some(id)
        });
        let lent = lenders.map(|(&other, _)| self.lent_priority(other, seen)).max();
        lent.unwrap_or(0).max(self.threads[&id].base)
    }

    fn runnable(&self) -> impl Iterator<Item = ThreadId> {
        self.threads.keys().copied().filter(|&id| self.is_runnable(id))
    }

    /// The threads of the highest priority that can run.
    fn highest(&self) -> Choice {
        let Some(top) = self.runnable().map(|id| self.priority(id)).max() else {
            return only(None);
        };
        self.runnable().filter(|&id| self.priority(id) == top).map(Some).collect()
    }

    /// The threads that may run: the current one keeps the processor unless another is higher.
    fn schedule(&self) -> Choice {
        let highest = self.highest();
        if highest.contains(&self.current) { only(self.current) } else { highest }
    }

    fn woken(&self, woken: &[ThreadId]) -> Choice {
        let runs = self.current.is_some_and(|id| self.is_runnable(id));
        if self.switching == Switching::Strict || !runs {
            return self.schedule();
        }
        let parties = woken.iter().copied().filter(|&id| self.is_runnable(id));
        let parties: Vec<ThreadId> = parties.chain(self.current).collect();
        let top = parties.iter().map(|&id| self.priority(id)).max().unwrap_or(0);
        if self.current.is_some_and(|id| self.priority(id) == top) {
            return only(self.current);
        }
        parties.into_iter().filter(|&id| self.priority(id) == top).map(Some).collect()
    }

    /// Takes a step and returns the threads that may run.
    pub fn step(&mut self, step: &Step) -> Choice {
        match step {
            Step::Ipc(ipc, tag, words) => self.ipc(*ipc, *tag, words),
            Step::Request(request) => self.request(*request),
            Step::Continue => {
                let me = self.current.unwrap();
                self.thread(me).continues = false;
                self.receive(me, None, false)
            }
            Step::Interrupt(number) => {
                let Some(&handler) = self.handlers.get(number) else { return only(self.current) };
                self.thread(handler).interrupts |= 1 << number;
                self.offer(handler)
            }
            Step::Expire(now_ns) => self.expire(*now_ns, None),
            Step::Tick => self.tick(),
        }
    }

    fn ipc(&mut self, ipc: Ipc, tag: Tag, words: &[u64]) -> Choice {
        let me = self.current.unwrap();
        *self.thread(me) =
            Thread { ipc, message: (tag, words.to_vec()), ..self.threads[&me].clone() };
        let Some((to, timeout)) = ipc.send else { return self.receive(me, None, false) };
        if to == me || !self.threads.contains_key(&to) {
            return self.fail(me, Phase::Send, Cause::NoPartner);
        }
        if to.kernel() != me.kernel() && !self.waits_for(to, me) {
            return self.send_remotely(me, to);
        }
        if self.accepts(to, me) {
            self.transfer(me, to);
            self.ready(to);
            return self.receive(me, Some(to), true);
        }
        if timeout == Timeout::Zero {
            return self.fail(me, Phase::Send, Cause::Timeout);
        }
        let calls = matches!(ipc.receive, Some((Source::Thread(from), _)) if from == to);
        self.block(me, Status::Sending, timeout, calls);
        self.senders.push((me, to));
        self.schedule()
    }

    /// Sends to a thread of another kernel. When that kernel takes the message the sender is not
    /// current, and makes its receive phase as a sender that had to wait does.
    fn send_remotely(&mut self, me: ThreadId, to: ThreadId) -> Choice {
        let Ipc { send: Some((_, timeout)), receive } = self.threads[&me].ipc else {
            unreachable!()
        };
        if self.accepts(to, me) {
            self.transfer(me, to);
            self.ready(to);
            self.has_sent(me);
        } else if timeout == Timeout::Zero {
            self.fail(me, Phase::Send, Cause::Timeout);
        } else {
            let calls = matches!(receive, Some((Source::Thread(from), _)) if from == to);
            self.block(me, Status::Sending, timeout, calls);
            self.senders.push((me, to));
        }
        self.schedule()
    }

    /// Whether a thread receives only from `from`.
    fn waits_for(&self, id: ThreadId, from: ThreadId) -> bool {
        self.accepts(id, from) && self.threads[&id].ipc.receive.map(|it| it.0) != Some(Source::Any)
    }

    fn fail(&mut self, id: ThreadId, phase: Phase, cause: Cause) -> Choice {
        self.thread(id).outcome = Err(IpcError { phase, cause });
        only(self.current)
    }

    fn block(&mut self, id: ThreadId, status: Status, timeout: Timeout, calls: bool) {
        let thread = self.thread(id);
        (thread.status, thread.calls) = (status, calls);
        thread.deadline_ns = if let Timeout::At(at) = timeout { Some(at) } else { None };
    }

    fn ready(&mut self, id: ThreadId) {
        self.block(id, Status::Ready, Timeout::Never, false);
        self.senders.retain(|&(sender, _)| sender != id);
    }

    fn accepts(&self, id: ThreadId, from: ThreadId) -> bool {
        let thread = &self.threads[&id];
        let source = thread.ipc.receive.map(|(source, _)| source);
        thread.status == Status::Receiving
            && (source == Some(Source::Any) || source == Some(Source::Thread(from)))
    }

    fn transfer(&mut self, from: ThreadId, to: ThreadId) {
        self.thread(to).message = self.threads[&from].message.clone();
        self.thread(to).outcome = Ok(Some(Sender::Thread(from)));
    }

    /// Makes the receive phase of the current thread, which may have woken another one.
    fn receive(&mut self, me: ThreadId, woken: Option<ThreadId>, has_sent: bool) -> Choice {
        let Ipc { send, receive } = self.threads[&me].ipc;
        let Some((from, timeout)) = receive else {
            self.thread(me).outcome = Ok(None);
            return self.woken(woken.as_slice());
        };
        if self.take_signal(me, from) {
            return self.woken(woken.as_slice());
        }
        if let Source::Thread(id) = from
            && !self.threads.contains_key(&id)
        {
            self.fail(me, Phase::Receive, Cause::NoPartner);
            return self.woken(woken.as_slice());
        }
        if let Some(sender) = self.next_sender(me, from) {
            self.transfer(sender, me);
            return match (woken, self.has_sent(sender)) {
                (None, false) => only(self.current),
                (Some(woken), false) => self.woken(&[woken]),
                (None, true) => self.woken(&[sender]),
                (Some(woken), true) => self.both_woken(woken, sender),
            };
        }
        if timeout == Timeout::Zero {
            self.fail(me, Phase::Receive, Cause::Timeout);
            return self.woken(woken.as_slice());
        }
        let calls = has_sent && send.map(|(to, _)| Source::Thread(to)) == Some(from);
        self.block(me, Status::Receiving, timeout, calls);
        match woken.filter(|&id| self.switching == Switching::Direct && self.is_runnable(id)) {
            Some(woken) => only(Some(woken)),
            None => self.schedule(),
        }
    }

    /// The choice after an IPC that has sent to one thread and received from another: L4 lets the
    /// higher of the two run.
    fn both_woken(&self, woken: ThreadId, sender: ThreadId) -> Choice {
        if self.switching == Switching::Strict {
            return self.schedule();
        }
        if !self.is_runnable(woken) || !self.is_runnable(sender) {
            return self.woken(&[woken, sender]);
        }
        only(Some(if self.priority(woken) > self.priority(sender) { woken } else { sender }))
    }

    fn next_sender(&self, me: ThreadId, from: Source) -> Option<ThreadId> {
        let wanted = |&sender: &ThreadId| match from {
            Source::Any => true,
            Source::Thread(id) => id == sender,
            Source::Interrupt(_) => false,
        };
        let mine = self.senders.iter().filter(|&&(_, receiver)| receiver == me);
        let mut mine = mine.map(|&(sender, _)| sender).filter(wanted);
        if !self.by_priority {
            return mine.next();
        }
        if self.inherits {
            // The age of a thread at a priority that was lent to it does not count.
            let mine: Vec<ThreadId> = mine.collect();
            let top = mine.iter().map(|&id| self.priority(id)).max()?;
            let equals = || mine.iter().copied().filter(|&id| self.priority(id) == top);
            return equals().find(|&id| Some(id) == self.taken).or(equals().next());
        }
        // The first of the highest; `max_by_key` would take the last.
        mine.reduce(|best, it| if self.priority(it) > self.priority(best) { it } else { best })
    }

    /// Lets a thread whose message was taken wait in its receive phase. Says whether it can run
    /// instead.
    fn has_sent(&mut self, sender: ThreadId) -> bool {
        let Ipc { send, receive } = self.threads[&sender].ipc;
        self.ready(sender);
        let Some((from, timeout)) = receive else {
            self.thread(sender).outcome = Ok(None);
            return true;
        };
        let is_there = match from {
            Source::Any => self.has_signal(sender) || self.next_sender(sender, from).is_some(),
            Source::Thread(id) => {
                !self.threads.contains_key(&id) || self.next_sender(sender, from).is_some()
            }
            Source::Interrupt(number) => self.threads[&sender].interrupts & 1 << number != 0,
        };
        if is_there || timeout == Timeout::Zero {
            self.thread(sender).continues = true;
            return true;
        }
        let calls = send.map(|(to, _)| Source::Thread(to)) == Some(from);
        self.block(sender, Status::Receiving, timeout, calls);
        false
    }

    fn has_signal(&self, id: ThreadId) -> bool {
        let thread = &self.threads[&id];
        thread.interrupts != 0 || thread.notices & thread.accepted != 0
    }

    fn take_signal(&mut self, id: ThreadId, from: Source) -> bool {
        let thread = self.thread(id);
        let wanted = match from {
            Source::Any => thread.interrupts,
            Source::Interrupt(number) => thread.interrupts & 1 << number,
            Source::Thread(_) => 0,
        };
        let notices = if from == Source::Any { thread.notices & thread.accepted } else { 0 };
        if wanted != 0 {
            let number = wanted.trailing_zeros() as u8;
            thread.interrupts &= !(1 << number);
            thread.outcome = Ok(Some(Sender::Interrupt(number)));
            thread.message = (Tag::default(), Vec::new());
        } else if notices != 0 {
            thread.notices &= !notices;
            thread.outcome = Ok(Some(Sender::Notices));
            thread.message = (Tag::of_length(1), vec![notices]);
        }
        wanted != 0 || notices != 0
    }

    fn offer(&mut self, id: ThreadId) -> Choice {
        let (status, ipc) = (self.threads[&id].status, self.threads[&id].ipc);
        match ipc.receive {
            Some((from, _)) if status == Status::Receiving && self.take_signal(id, from) => {
                self.ready(id);
                self.woken(&[id])
            }
            _ => only(self.current),
        }
    }

    /// Ends the waits whose deadline has come: of one kernel, or of all for `None`.
    pub fn expire(&mut self, now_ns: u64, kernel: Option<u8>) -> Choice {
        let is_due = |thread: &Thread| thread.deadline_ns.is_some_and(|at| at <= now_ns);
        let due = self.threads.iter().filter(|&(_, thread)| is_due(thread)).map(|(&id, _)| id);
        let due: Vec<ThreadId> =
            due.filter(|id| kernel.is_none_or(|kernel| id.kernel() == kernel)).collect();
        for &id in &due {
            self.end_wait(id, Cause::Timeout);
        }
        if due.is_empty() { only(self.current) } else { self.woken(&due) }
    }

    fn end_wait(&mut self, id: ThreadId, cause: Cause) -> bool {
        let phase = match self.threads[&id].status {
            Status::Sending => Phase::Send,
            Status::Receiving => Phase::Receive,
            _ => return false,
        };
        self.ready(id);
        self.fail(id, phase, cause);
        true
    }

    fn tick(&mut self) -> Choice {
        let Some(current) = self.current else { return only(None) };
        let left = &mut self.thread(current).slice_left_ticks;
        *left = left.saturating_sub(1);
        if *left == 0 { self.rotate() } else { self.schedule() }
    }

    fn rotate(&mut self) -> Choice {
        let current = self.current.unwrap();
        self.thread(current).slice_left_ticks = self.slice_ticks;
        let mut highest = self.highest();
        if highest.len() > 1 {
            highest.remove(&self.current);
        }
        highest
    }

    fn request(&mut self, request: Request) -> Choice {
        let me = self.current;
        let (choice, answer) = self.perform(request);
        if let Some(thread) = me.and_then(|me| self.threads.get_mut(&me)) {
            thread.answer = Some(answer);
        }
        choice
    }

    fn perform(&mut self, request: Request) -> (Choice, Request) {
        let threads: BTreeSet<ThreadId> = self.threads.keys().copied().collect();
        let kernel = self.current.map(ThreadId::kernel);
        // Only threads of the same kernel control a thread.
        let exists = |id: ThreadId| {
            threads.contains(&id) && kernel.is_none_or(|kernel| kernel == id.kernel())
        };
        let mut answer = Request::Done;
        let choice = match request {
            Request::Start(id) if exists(id) && self.threads[&id].status == Status::Created => {
                self.start(id)
            }
            Request::Suspend(id) if exists(id) => {
                self.thread(id).suspended = true;
                if Some(id) == self.current { self.schedule() } else { only(self.current) }
            }
            Request::Resume(id) if exists(id) => {
                let was_suspended = std::mem::replace(&mut self.thread(id).suspended, false);
                let wakes = was_suspended && self.is_runnable(id);
                if wakes { self.woken(&[id]) } else { only(self.current) }
            }
            Request::SetPriority(id, priority) if exists(id) => {
                self.set_priority(id, priority);
                self.schedule()
            }
            Request::Abort(id) if exists(id) && self.end_wait(id, Cause::Aborted) => {
                self.woken(&[id])
            }
            Request::SwitchTo(id) if exists(id) && self.may_switch_to(id) => only(Some(id)),
            Request::Yield => self.rotate(),
            Request::Notify(id, bits) if threads.contains(&id) => {
                self.thread(id).notices |= bits;
                self.offer(id)
            }
            Request::AcceptNotices(bits) => {
                let me = self.current.unwrap();
                self.thread(me).accepted = bits;
                only(self.current)
            }
            Request::ExchangeUserWord(id, word) if exists(id) => {
                let old = std::mem::replace(&mut self.thread(id).user_word, word);
                answer = Request::Word(old);
                only(self.current)
            }
            Request::End => self.end(),
            _ => {
                answer = Request::Refused;
                only(self.current)
            }
        };
        (choice, answer)
    }

    /// Sets a thread's priority. It becomes the youngest of its new priority, unless order is by
    /// age.
    fn set_priority(&mut self, id: ThreadId, priority: u8) {
        let old = std::mem::replace(&mut self.thread(id).base, priority);
        if self.by_priority && old != priority {
            self.senders.sort_by_key(|&(sender, _)| sender == id);
        }
    }

    fn may_switch_to(&self, id: ThreadId) -> bool {
        let me = self.current.unwrap();
        self.is_runnable(id)
            && (self.switching == Switching::Direct || self.priority(id) >= self.priority(me))
    }

    fn end(&mut self) -> Choice {
        let me = self.current.take().unwrap();
        let partners: Vec<ThreadId> =
            self.threads.keys().copied().filter(|&id| self.partner(id) == Some(me)).collect();
        for id in partners {
            self.end_wait(id, Cause::Ended);
        }
        self.handlers.retain(|_, handler| *handler != me);
        self.threads.remove(&me);
        self.schedule()
    }
}
