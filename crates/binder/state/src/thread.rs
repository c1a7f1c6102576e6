//! Threads as the driver knows them, each with its calls, its services and its wait.

use crate::message::{Incoming, LaneId, Serving};
use crate::work::{Tid, Todo, Work};
use baton_abi::control::ProcessId;
use baton_abi::sched_priority::SchedPriority;
use baton_shm::event_flag::EventFlag;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// One level of a thread's transaction stack.
#[derive(Clone, Debug)]
pub enum Frame {
    /// It has called and not been answered.
    Calling(Calling),
    /// It serves a two-way transaction and has not answered.
    Serving(Serving),
}

/// An outstanding call.
#[derive(Clone, Copy, Debug)]
pub struct Calling {
    /// The lane that brings the answer.
    pub via: LaneId,
    /// The process that was called.
    pub peer: ProcessId,
    /// The handle that was called: the right to call has to last until the message is taken.
    pub handle: Option<u32>,
    /// The number that stands for this thread in the call's chain, so that nested calls find it.
    pub token: u64,
    /// The lane is this call's own, not one that was turned round.
    pub owns_lane: bool,
    /// The peer is gone: the call fails once it is the innermost.
    pub dead: bool,
}

/// The part of a thread in the pool, by its commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looper {
    /// BC_REGISTER_LOOPER: started because the driver asked.
    pub registered: bool,
    /// BC_ENTER_LOOPER: by itself.
    pub entered: bool,
    /// BC_EXIT_LOOPER.
    pub exited: bool,
    /// The thread did both, or registered without being asked.
    pub invalid: bool,
}

impl Looper {
    /// Whether the thread takes the process's work.
    pub fn serves(self) -> bool {
        self.registered || self.entered
    }

    /// Whether the thread is a looper and has not left.
    pub(crate) fn is_present(self) -> bool {
        self.serves() && !self.exited
    }
}

/// The word on which a thread inside the driver sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It does not sleep.
    #[default]
    No,
    /// The process's bell, for any work.
    Bell,
    /// The inbox of the lane that it called on.
    Lane(LaneId),
    /// A word of its own.
    Own,
}

/// The kind of a [`Frame`] of a thread that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// It owed an answer.
    Serving,
    /// It waited for an answer.
    Calling,
}

/// The answer to BINDER_GET_EXTENDED_ERROR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtendedError {
    /// Number of the transaction.
    pub id: u32,
    /// The BR_ that told of it; 0 stands for BR_OK.
    pub command: u32,
    /// A negative errno.
    pub param: i32,
}

/// A thread's priority while it is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raise {
    /// The policy and the real-time priority that it had before.
    pub from: (i32, i32),
    /// The priority that it has.
    pub to: SchedPriority,
}

/// One thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its part in the pool.
    pub looper: Looper,
    /// Its own work.
    pub todo: Todo,
    /// A failed command's return, until it is read: no command runs before.
    pub failed: bool,
    /// Its calls and services, innermost last.
    pub stack: Vec<Frame>,
    /// The word on which it sleeps.
    pub waiting: Waiting,
    /// The thread bypasses the state, and its flag says whether it waits: see
    /// [`State::begin_bypass`](crate::State::begin_bypass).
    pub bypasses_state: bool,
    /// The flag that says whether a bypassing thread waits, and by which it learns of news.
    pub flag: Arc<EventFlag>,
    /// The real-time caller's lane to which the thread is dedicated.
    pub dedicated_to: Option<LaneId>,
    /// The lane to which it was dedicated, from its relief until it comes back to the driver. It
    /// has a priority that is not its own, and may have been woken for a request of which no other
    /// thread has been told.
    pub relieved_of: Option<LaneId>,
    /// The lane to which the driver's own thread is dedicated.
    pub driver_looper_of: Option<LaneId>,
    /// It has a real-time sender's priority, whose one-way transaction waits for the one that it
    /// serves.
    pub raised: Option<Raise>,
    /// It has served a one-way transaction at a priority that is not its own.
    pub is_off_priority: bool,
    /// It is dedicated, or was.
    pub was_dedicated: bool,
    /// The pool has lacked this looper while it was dedicated: it becomes dedicated again only when
    /// the pool has no work.
    pub is_missed: bool,
    /// Its program has given it a scheduling policy of its own: it never becomes dedicated.
    pub is_unsuited: bool,
    /// The thread's next read returns even without work, as the first ioctl of a thread does in the
    /// kernel.
    pub return_once: bool,
    /// Its last failure.
    pub error: ExtendedError,
}

impl Thread {
    /// Whether the thread is in the driver, and sleeps on this lane or is about to.
    pub fn waits_on(&self, via: LaneId) -> bool {
        self.waiting == Waiting::Lane(via) && !self.is_busy_past_state()
    }

    /// Whether the thread is dedicated to this lane.
    pub fn is_looper_of(&self, via: LaneId) -> bool {
        self.dedicated_to == Some(via) || self.driver_looper_of == Some(via)
    }

    /// Whether the thread is out of the driver.
    pub fn is_out(&self) -> bool {
        self.waiting == Waiting::No || self.is_busy_past_state()
    }

    fn is_busy_past_state(&self) -> bool {
        self.bypasses_state && !self.flag.is_waiting()
    }

    /// Whether the thread may take the process's work: it owes no answer and has no work of its
    /// own.
    pub fn is_available(&self) -> bool {
        self.stack.is_empty() && self.todo.is_empty()
    }

    /// Whether the thread, which has served a one-way transaction and reads next, can serve the one
    /// for which it was raised: it serves nothing else, and has no other priority to give back.
    pub(crate) fn may_serve_on(&self, next: &Incoming) -> bool {
        self.is_available() && !self.is_off_priority && self.was_raised_for(next)
    }

    /// Whether the thread keeps the priority to which it was raised: the transaction that it reads
    /// next is the one for which it was.
    pub fn serves_on(&self) -> bool {
        let next = self.todo.first();
        matches!(next, Some(Work::Transaction(next)) if self.was_raised_for(next))
    }

    /// Whether the thread was raised, and does not serve the transaction next for which it was.
    pub fn raise_is_over(&self) -> bool {
        self.raised.is_some() && !self.serves_on()
    }

    fn was_raised_for(&self, next: &Incoming) -> bool {
        self.raised.is_some_and(|raise| next.real_time() == Some(raise.to))
    }

    /// The lane whose answer it waits for.
    pub fn calls_on(&self) -> Option<&Calling> {
        match self.stack.last() {
            Some(Frame::Calling(calling)) => Some(calling),
            _ => None,
        }
    }

    /// Whether it has called and not been answered.
    pub fn calls(&self) -> bool {
        self.stack.iter().any(|frame| matches!(frame, Frame::Calling(_)))
    }

    /// Whether it waits on this lane further out than what it serves: the transaction that it
    /// serves came to it on the lane of its own call.
    pub fn calls_further_out_on(&self, via: LaneId) -> bool {
        let is_it = |frame: &Frame| matches!(frame, Frame::Calling(calling) if calling.via == via);
        self.stack.iter().any(is_it)
    }

    /// How many two-way transactions it has to answer.
    pub fn served(&self) -> usize {
        self.stack.iter().filter(|frame| matches!(frame, Frame::Serving(_))).count()
    }

    /// The transaction that it serves right now.
    pub fn serves(&self) -> Option<&Serving> {
        match self.stack.last() {
            Some(Frame::Serving(serving)) => Some(serving),
            _ => None,
        }
    }
}

/// All threads of the process. The thread that was looked up last is found at once: most commands
/// in a row come from one thread.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    all: Vec<(Tid, Thread)>,
    places: FxHashMap<Tid, usize>,
    last: usize,
}

impl Threads {
    fn place(&self, tid: Tid) -> Option<usize> {
        match self.all.get(self.last) {
            Some((last, _)) if *last == tid => Some(self.last),
            _ => self.places.get(&tid).copied(),
        }
    }

    /// The thread, if it is known.
    pub fn get(&self, tid: Tid) -> Option<&Thread> {
        self.place(tid).map(|place| &self.all[place].1)
    }

    /// The thread, if it is known.
    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut Thread> {
        let place = self.place(tid)?;
        self.last = place;
        Some(&mut self.all[place].1)
    }

    /// The thread, new if it was not known.
    #[inline]
    pub fn get_or_add(&mut self, tid: Tid) -> &mut Thread {
        if self.all.get(self.last).is_none_or(|(last, _)| *last != tid) {
            self.last = self.find_or_add(tid);
        }
        &mut self.all[self.last].1
    }

    fn find_or_add(&mut self, tid: Tid) -> usize {
        self.places.get(&tid).copied().unwrap_or_else(|| {
            self.places.insert(tid, self.all.len());
            self.all.push((tid, Thread { return_once: true, ..Thread::default() }));
            self.all.len() - 1
        })
    }

    /// Takes the thread out.
    pub fn remove(&mut self, tid: Tid) -> Option<Thread> {
        let place = self.places.remove(&tid)?;
        let (_, thread) = self.all.swap_remove(place);
        if let Some((moved, _)) = self.all.get(place) {
            self.places.insert(*moved, place);
        }
        Some(thread)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Tid, &Thread)> {
        self.all.iter().map(|(tid, thread)| (*tid, thread))
    }

    /// All of them, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Tid, &mut Thread)> {
        self.all.iter_mut().map(|(tid, thread)| (*tid, thread))
    }

    /// The threads that match, in the order of their ids.
    pub(crate) fn matching(&self, matches: impl Fn(&Thread) -> bool) -> Vec<Tid> {
        let found = self.iter().filter(|(_, thread)| matches(thread));
        let mut tids: Vec<Tid> = found.map(|(tid, _)| tid).collect();
        tids.sort_unstable();
        tids
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
