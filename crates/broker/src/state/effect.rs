//! What the runner has to do after [`super::State`] has decided.

use super::Thread;
use baton_abi::control::{ChannelId, Event, ProcessId};
use baton_abi::sched_priority::SchedPriority;

/// One step for the runner, in the order in which it was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append to a process's event stream.
    Event {
        /// The process, alive when this was decided.
        to: ProcessId,
        /// What it is told.
        event: Event,
    },
    /// Make a channel's memory and socket pair and tell both ends by [`Event::Channel`].
    /// If that fails: [`super::State::end_channel`].
    OpenChannel {
        /// Its name.
        channel: ChannelId,
        /// Who sends requests.
        client: ProcessId,
        /// Who receives them.
        server: ProcessId,
    },
    /// Write `FROZEN` on a process's front page.
    SetFrozen {
        /// Whose.
        process: ProcessId,
        /// What.
        frozen: bool,
    },
    /// The looper of a lane has waited for it: it gets the priority, unless the system does not
    /// allow that. [`State::set_looper`](super::State::set_looper) hears of it.
    Promote {
        /// The lane.
        place: (ChannelId, u32),
        /// Which thread.
        thread: Thread,
        /// What it is to have.
        priority: SchedPriority,
    },
    /// A thread that was given a caller's priority is to have another one, or none.
    SetPriority {
        /// Which.
        thread: Thread,
        /// What.
        priority: Option<SchedPriority>,
    },
    /// Close a process's connections, then call [`super::State::gone`] for it.
    Disconnect {
        /// The violator.
        process: ProcessId,
        /// What it did.
        why: Violation,
    },
}

/// What no correct engine does. It costs the violator its connection and nobody else anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A greeting on a connection that has been greeted.
    #[error("a second greeting")]
    Greeting,
    /// More grants came back than were given, or of a handle that does not exist.
    #[error("returned more grants of handle {handle} than it has")]
    OverReturn {
        /// The handle.
        handle: u32,
    },
    /// Claims that no engine can have, or something else than claims where they were due.
    #[error("came back with claims that nothing can have left it")]
    Claims,
    /// A ticket cancelled for a process that it has no channel with.
    #[error("cancelled a ticket of process {target:?}, which it has no channel with")]
    Stranger {
        /// The process.
        target: ProcessId,
    },
}
