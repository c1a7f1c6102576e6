//! The real-time part of an engine: the lanes that real-time threads keep, and the loopers of such
//! lanes.

use crate::channel::{Channel, Lane};
use baton_abi::control::ProcessId;
use baton_abi::sched_priority::SchedPriority;
use baton_shm::lock::Lock;
use baton_state::transaction::LaneId;
use baton_state::work::Tid;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The real-time part of one engine.
#[derive(Debug, Default)]
pub(crate) struct RealTime {
    pub loopers: DedicatedLoopers,
    pub standby: Lock<StandbyPlace>,
    pub reservations: Reservations,
    /// The engine's own pages have been locked in memory.
    pub pages_are_locked: AtomicBool,
    /// The log has said that pages cannot be locked in memory.
    pub has_warned_of_paging: AtomicBool,
}

/// The front end's function that starts a thread for a lane, or, for `None`, a standby looper
/// (`Engine::await_lane`).
type Provider = Box<dyn Fn(Option<Arc<DedicatedLooper>>) + Send + Sync>;

/// All dedicated loopers of the process.
#[derive(Default)]
pub(crate) struct DedicatedLoopers {
    pub provider: OnceLock<Provider>,
    pub all: Lock<Vec<Arc<DedicatedLooper>>>,
    /// How many there have been.
    pub count: AtomicU64,
    /// The log has said that loopers do not get their callers' priority.
    pub has_warned: AtomicBool,
    /// The log has said that the pool serves real-time callers, too.
    pub has_warned_of_pool: AtomicBool,
}

impl std::fmt::Debug for DedicatedLoopers {
    fn fmt(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        form.debug_struct("DedicatedLoopers").field("all", &self.all).finish_non_exhaustive()
    }
}

/// One lane that has, or waits for, a looper of its own.
#[derive(Debug)]
pub struct DedicatedLooper {
    /// The caller's channel.
    pub channel: Arc<Channel>,
    /// The lane's number in it.
    pub lane: u32,
    /// No other one of the process has this number.
    pub(crate) number: u64,
    /// The caller's priority, by the broker's word.
    pub(crate) priority: Lock<SchedPriority>,
    /// The front end has been asked for a thread, or the broker has chosen one.
    pub(crate) is_given: AtomicBool,
    /// The caller is no real-time thread any more, or has left: the looper leaves the lane.
    pub(crate) is_over: AtomicBool,
    /// The looper has to be registered: the caller's priority has changed, or the broker.
    pub(crate) is_news: AtomicBool,
    /// The lane's ring has been locked in memory.
    pub(crate) ring_is_locked: AtomicBool,
    /// The caller lends its priority to the looper, which does not have it.
    pub(crate) borrows: AtomicBool,
}

impl DedicatedLooper {
    /// The lane.
    pub fn via(&self) -> LaneId {
        self.channel.via(self.lane as usize)
    }

    pub(crate) fn areas(&self) -> Result<Lane<'_>, Errno> {
        self.channel.lane(self.lane as usize)
    }

    /// The caller's priority, by the broker's word.
    pub(crate) fn priority(&self) -> SchedPriority {
        *self.priority.lock()
    }

    /// Whether the looper has to leave the lane.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Notes that the broker has given the looper the caller's priority.
    pub fn set_registered(&self) {
        self.is_news.store(false, Ordering::Release);
    }

    /// Whether the broker has to be told of the looper.
    pub fn is_news(&self) -> bool {
        self.is_news.load(Ordering::Acquire)
    }

    /// Notes that another thread is the looper: it has to be registered.
    pub fn renew(&self) {
        self.is_news.store(true, Ordering::Release);
    }

    /// Lets the caller lend the looper its priority, if the looper needs that.
    pub(crate) fn borrow(&self) {
        if self.borrows.load(Ordering::Relaxed) {
            self.channel.borrow(self.lane);
        }
    }

    pub(crate) fn raise(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::Release);
        if let Ok(areas) = self.areas() {
            areas.inbox().nudge();
        }
    }
}

/// The standby looper, if there is one.
#[derive(Debug, Default)]
pub(crate) struct StandbyPlace {
    /// The thread that waits.
    pub waits: Option<Tid>,
    /// The lane that it gets.
    pub dedicated: Option<Arc<DedicatedLooper>>,
}

/// The era of no broker.
pub(crate) const UNASKED: u32 = u32::MAX;

/// The use for which a lane is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A call that is made at once.
    Call,
    /// A call that may be made later, or never.
    Loan,
}

/// The reservations of all threads.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    pub all: Lock<Vec<Reservation>>,
    /// Their number.
    pub count: AtomicUsize,
    /// The log has said that some caller is not served at its priority.
    pub has_warned: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Reservation {
    pub tid: Tid,
    pub peer: ProcessId,
    pub channel: Weak<Channel>,
    pub lane: u32,
    /// The priority for which the broker was asked, whatever it answered.
    pub priority: SchedPriority,
    /// The lane's ring has been locked in memory.
    pub ring_is_locked: bool,
    /// The broker that was asked, or [`UNASKED`] if it is to be asked by the next call.
    pub era: u32,
}

impl Reservation {
    /// Whether the lane is this one.
    pub fn is_of(&self, channel: &Channel, lane: u32) -> bool {
        self.lane == lane && std::ptr::eq(self.channel.as_ptr(), channel)
    }
}

#[cfg(simulated)]
impl super::Engine {
    /// The lanes that threads of this process reserve, each with its thread: for the simulator.
    pub fn reserved_lanes(&self) -> Vec<(LaneId, Tid)> {
        let all = self.real_time.reservations.all.lock();
        let lane = |ours: &Reservation| {
            let channel = ours.channel.upgrade()?;
            Some((channel.via(ours.lane as usize), ours.tid))
        };
        all.iter().filter_map(lane).collect()
    }

    /// What this process keeps for real-time callers at either end, each thing with its lane, if it
    /// is a lane's: for the simulator.
    pub fn kept_for_real_time(&self) -> Vec<(Option<LaneId>, String)> {
        let loopers = self.real_time.loopers.all.lock();
        let lane =
            |dedicated: &Arc<DedicatedLooper>| (Some(dedicated.via()), "a looper".to_owned());
        let mut kept: Vec<_> = loopers.iter().map(lane).collect();
        drop(loopers);
        for channel in self.pool.channels.all() {
            let of_channel = channel.kept_for_real_time().into_iter();
            kept.extend(of_channel.map(|(lane, what)| (Some(lane), what)));
        }
        kept.extend(self.lock().kept_for_real_time());
        kept
    }
}

/// The result of a look by a dedicated looper at its lane's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnRing {
    /// Every transaction is in, but those without room.
    Taken,
    /// The transaction at this position waits for an event of the broker.
    Waits(u64),
    /// The look ended after so many transactions, so that other threads have the state.
    Cut,
}
