//! Lanes of real-time callers, with their loopers.

use baton_abi::control::{ChannelId, ProcessId};
use baton_abi::sched_priority::SchedPriority;

/// A channel and the number of a lane in it.
pub type LaneId = (ChannelId, u32);

/// A thread, identified so that no other thread ever has the same identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread's process, in the broker's pid namespace.
    pub pid: u32,
    /// The thread's id, in the broker's pid namespace.
    pub tid: u32,
    /// Start time of the thread, in the kernel's ticks since boot.
    pub started: u64,
}

/// A lane that a real-time caller has asked for.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub client: ProcessId,
    pub server: ProcessId,
    pub priority: SchedPriority,
    pub looper: Option<Looper>,
}

/// The looper of a lane. `promoted` if it has the priority of the lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looper {
    pub thread: Thread,
    pub promoted: bool,
}

/// A thread that waits to be the looper of the next real-time caller's lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct StandbyLooper {
    pub thread: Thread,
    /// The thread's id as its engine knows it.
    pub tid: u32,
}
