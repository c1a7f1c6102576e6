//! One simulated process: its engine's state, its program, and its threads inside the driver.

use crate::glue::Blocked;
use crate::program::{Pins, Program, Underway};
use crate::wire::Subject;
use baton_abi::control::{ChannelId, Event, Identity, ProcessId, Reply, Request, TicketId};
use baton_abi::lane::ChainEntry;
use baton_state::State;
use baton_state::thread::{Frame, Waiting};
use baton_state::transaction::{Departure, LaneId};
use baton_state::work::{Completion, Tid};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Size of a receive buffer: small, so that histories fill it.
pub const BUFFER_BYTES: usize = 8192;

pub struct Party {
    pub identity: Identity,
    /// Of the broker that it was connected to last.
    pub era: u32,
    pub state: State,
    pub program: Program,
    pub threads: BTreeMap<Tid, Thread>,
    /// The broker's events that this process has not read.
    pub events: VecDeque<Event>,
    /// Requests that the broker has not read, with the thread that waits for an answer.
    pub requests: VecDeque<(Request, Option<Tid>)>,
    /// Which thread has a question open, and to the broker of which era: one at a time.
    pub asking: Option<(Tid, u32)>,
    pub link: Link,
    /// The control thread waits for this barrier, with what was blocked before.
    pub control: Option<(u64, Vec<Blocked>)>,
    pub barriers: u64,
    pub barrier_seen: u64,
    /// The broker's word on the status page.
    pub frozen: bool,
    pub fds: BTreeSet<i32>,
    pub last_fd: i32,
    pub last_tid: Tid,
    /// Descriptors that came with a buffer and are the program's to close.
    pub arrived: BTreeMap<usize, Vec<i32>>,
}

/// How the party stands with the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Up,
    /// It has died; what it sent has not all been read.
    HungUp,
    /// It has died, and the party knows.
    Lost,
}

#[derive(Debug)]
pub struct Thread {
    pub stage: Stage,
    pub answer: Option<Reply>,
    pub underway: Underway,
    /// The last transaction was refused, and the thread has not read so: it will, after this many
    /// ends of calls.
    pub refused: Option<u32>,
    /// Calls that were posted and have not been answered.
    pub calls: u32,
    /// A looper that never leaves.
    pub main: bool,
}

/// Where a thread is; each variant is a point between two of the driver's critical sections.
#[derive(Debug)]
pub enum Stage {
    Program,
    FindManager(After),
    Route(Box<Sending>),
    OpenChannel(Box<Sending>),
    Translate(Box<Sending>),
    Translated(Box<Sending>),
    Post(Box<Sending>),
    Posted(Box<Sending>),
    BecomeManager { ptr: u64, node: baton_abi::control::NodeId },
    IsFrozen { handle: u32, cookie: u64 },
    Freeze,
    Read { process_work: bool, nonblocking: bool },
    Asleep { process_work: bool, waiting: Waiting, awake: bool },
    CatchUp { process_work: bool, nonblocking: bool, number: u64, before: Vec<Blocked> },
}

/// What the thread wanted handle 0 for.
#[derive(Debug)]
pub enum After {
    Send(Box<Sending>),
    Count(baton_abi::control::Strength),
}

/// A transaction on its way out.
#[derive(Debug)]
pub struct Sending {
    pub target: baton_state::transaction::Target,
    pub flags: u32,
    pub pins: Pins,
    pub sent: baton_state::parcel::Sent,
    pub data_bytes: u32,
    pub departure: Option<Departure>,
    pub subjects: Vec<Subject>,
    pub via: Option<LaneId>,
    pub reply_to: Option<LaneId>,
    pub channel: ChannelId,
    pub ticket: Option<TicketId>,
    pub token: u64,
    pub chain: Vec<ChainEntry>,
    pub completion: Completion,
    pub posted: bool,
}

impl Thread {
    pub fn new(main: bool) -> Thread {
        Thread {
            stage: Stage::Program,
            answer: None,
            underway: Underway::new(),
            refused: None,
            calls: 0,
            main,
        }
    }
}

impl Party {
    pub fn new(identity: Identity) -> Party {
        let mut state = State::new(identity.process);
        state.buffers.map(BUFFER_BYTES);
        Party {
            era: identity.process.era(),
            identity,
            state,
            program: Program::default(),
            threads: BTreeMap::new(),
            events: VecDeque::new(),
            requests: VecDeque::new(),
            asking: None,
            link: Link::Up,
            control: None,
            barriers: 0,
            barrier_seen: 0,
            frozen: false,
            fds: BTreeSet::new(),
            last_fd: 0,
            last_tid: 0,
            arrived: BTreeMap::new(),
        }
    }

    pub fn id(&self) -> ProcessId {
        self.identity.process
    }

    pub fn start_thread(&mut self, main: bool, looper: bool) -> Tid {
        self.last_tid += 1;
        let tid = self.last_tid;
        self.threads.insert(tid, Thread::new(main));
        self.state.thread(tid);
        if looper {
            self.state.enter_looper(tid);
        }
        tid
    }

    /// Calls that have ended and whose ends the thread has not read.
    pub fn unread_ends(&self, tid: Tid) -> u32 {
        let stack = &self.state.threads.get(tid).expect("known").stack;
        let open = stack.iter().filter(|frame| matches!(frame, Frame::Calling(_))).count();
        self.threads[&tid].calls - open as u32
    }

    /// A thread that sent an object stays until it has read that it is acquired: nobody else keeps
    /// the object until then.
    pub fn may_exit(&self, tid: Tid) -> bool {
        let thread = &self.threads[&tid];
        !thread.main && thread.underway.iter().all(|pins| pins.objects.is_empty())
    }

    pub fn thread(&mut self, tid: Tid) -> &mut Thread {
        self.threads.get_mut(&tid).expect("a thread of this process")
    }

    /// Whether a thread could go on.
    pub fn is_runnable(&self, tid: Tid) -> bool {
        let thread = &self.threads[&tid];
        match &thread.stage {
            Stage::Asleep { awake, .. } => *awake,
            Stage::CatchUp { number, .. } => self.has_caught_up(*number) || !self.events.is_empty(),
            _ if self.asking.is_some_and(|(asker, _)| asker == tid) => thread.answer.is_some(),
            _ => true,
        }
    }

    /// Asks the broker. False if another thread's question is open: try again.
    pub fn ask(&mut self, tid: Tid, request: Request) -> bool {
        if self.asking.is_some() {
            return false;
        }
        self.asking = Some((tid, self.era));
        self.requests.push_back((request, Some(tid)));
        if self.link != Link::Up {
            self.nobody_listens();
        }
        true
    }

    /// What the party has sent is lost, and what it has asked is refused.
    pub fn nobody_listens(&mut self) {
        self.requests.clear();
        if let Some((tid, _)) = self.asking {
            let errno = Errno::CONNREFUSED.raw_os_error();
            self.thread(tid).answer.get_or_insert(Reply::Refused { errno });
        }
    }

    /// The answer to the thread's question, and whose it is.
    pub fn answer_of(&mut self, tid: Tid) -> (Reply, u32) {
        let (asker, era) = self.asking.take().expect("it has asked");
        assert_eq!(asker, tid);
        (self.thread(tid).answer.take().expect("runnable only with its answer"), era)
    }

    /// The answer to the thread's question.
    pub fn answer(&mut self, tid: Tid) -> Reply {
        self.answer_of(tid).0
    }

    pub fn has_caught_up(&self, number: u64) -> bool {
        self.barrier_seen >= number || self.link == Link::Lost
    }

    pub fn install_fd(&mut self) -> i32 {
        self.last_fd += 1;
        self.fds.insert(self.last_fd);
        self.last_fd
    }

    pub fn wake(&mut self, matches: impl Fn(Waiting) -> bool) -> bool {
        for thread in self.threads.values_mut() {
            if let Stage::Asleep { waiting, awake: awake @ false, .. } = &mut thread.stage
                && matches(*waiting)
            {
                *awake = true;
                return true;
            }
        }
        false
    }
}
