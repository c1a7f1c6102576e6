//! Effects: the actions that the runner carries out after [`super::State`] has decided.

use super::lane::{LaneId, Thread};
use baton_abi::control::{ChannelId, Event, NodeId, ProcessId};
use baton_abi::sched_priority::SchedPriority;

/// One action for the runner, in the order of the decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append an event to a process's event stream.
    Event {
        /// The receiving process, alive when this was decided.
        to: ProcessId,
        /// The event.
        event: Event,
    },
    /// Make a channel's memory and socket pairs and announce it to both ends by [`Event::Channel`].
    /// If that fails, the runner calls [`super::State::end_channel`].
    OpenChannel {
        /// Id of the channel.
        channel: ChannelId,
        /// The process that sends requests.
        client: ProcessId,
        /// The process that receives requests.
        server: ProcessId,
    },
    /// Write `FROZEN` on a process's status page.
    SetFrozen {
        /// The process.
        process: ProcessId,
        /// Whether the process is frozen.
        frozen: bool,
    },
    /// Give a standby looper, which becomes the looper of a lane, the lane's priority, unless the
    /// kernel forbids it. The runner reports the result by
    /// [`State::set_looper`](super::State::set_looper).
    Promote {
        /// The lane.
        lane: LaneId,
        /// The looper.
        thread: Thread,
        /// The priority of the lane.
        priority: SchedPriority,
    },
    /// Change or remove the priority that a thread got from a caller.
    SetPriority {
        /// The thread.
        thread: Thread,
        /// The new priority; `None` removes it.
        priority: Option<SchedPriority>,
    },
    /// Close a process's connections, then call [`super::State::remove_process`] for it.
    Disconnect {
        /// The violating process.
        process: ProcessId,
        /// Its violation.
        why: Violation,
    },
}

/// An action that no correct engine takes. It costs the violator its connection and harms no other
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A greeting on a connection that has had one.
    #[error("a second greeting")]
    Greeting,
    /// The process returned more grants on a living owner's node than the broker gave it.
    #[error("returned more grants on node {node:?} of {owner:?} than it has")]
    OverReturn {
        /// The owner of the node.
        owner: ProcessId,
        /// The owner's id of the node.
        node: NodeId,
    },
    /// Claims that no engine can have, or another request where claims were due.
    #[error("rejoined with impossible claims")]
    Claims,
}
