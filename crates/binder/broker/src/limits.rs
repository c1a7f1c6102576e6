//! Limits of what the broker remembers for one process, for one user with all its processes, and
//! for all users.
//!
//! **Invariant**: a hostile process exhausts its own user's share and no other user's.

use baton_abi::control::{MAX_OBJECTS, MAX_PACKET_BYTES};

/// A kind of object that the broker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Opened devices.
    Processes,
    /// Handles in a process's table.
    Handles,
    /// Nodes that others hold, or that manage a context.
    Nodes,
    /// Channels as client. Channels as server do not count here, or clients could use up a server's
    /// share.
    Channels,
}

impl Resource {
    pub(crate) const ALL: [Resource; 4] =
        [Resource::Processes, Resource::Handles, Resource::Nodes, Resource::Channels];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Resource::Processes => "processes",
            Resource::Handles => "handles",
            Resource::Nodes => "nodes",
            Resource::Channels => "channels",
        }
    }
}

/// A number for every [`Resource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// [`Resource::Processes`]
    pub processes: u32,
    /// [`Resource::Handles`]
    pub handles: u32,
    /// [`Resource::Nodes`]
    pub nodes: u32,
    /// [`Resource::Channels`]
    pub channels: u32,
}

impl Usage {
    /// No bound.
    pub const MOST: Usage =
        Usage { processes: u32::MAX, handles: u32::MAX, nodes: u32::MAX, channels: u32::MAX };

    pub(crate) fn of(&self, resource: Resource) -> u32 {
        match resource {
            Resource::Processes => self.processes,
            Resource::Handles => self.handles,
            Resource::Nodes => self.nodes,
            Resource::Channels => self.channels,
        }
    }

    pub(crate) fn of_mut(&mut self, resource: Resource) -> &mut u32 {
        match resource {
            Resource::Processes => &mut self.processes,
            Resource::Handles => &mut self.handles,
            Resource::Nodes => &mut self.nodes,
            Resource::Channels => &mut self.channels,
        }
    }
}

/// Rights that the configuration gives a process, by its user, group or label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The process takes from the reserve, as root and the broker's own user do.
    pub reserve: bool,
    /// The process may become its context's manager.
    pub manages: bool,
    /// The most that the process's user may have.
    pub most: Usage,
}

impl Default for Rights {
    /// The rights of a process that the configuration does not mention, in a context that any
    /// process may manage.
    fn default() -> Rights {
        Rights { reserve: false, manages: true, most: Usage::MOST }
    }
}

/// The broker's limits. A request that would exceed one gets the errno that is given here; see
/// `docs/limits.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limits of one process: `EMFILE` for handles and channels, `ENOSPC` for nodes.
    pub process: Usage,
    /// Limits of one user that has no right to the reserve, whatever is left: `EDQUOT`, but
    /// `EMFILE` for channels.
    pub user: Usage,
    /// Limits of all users together, shared as a [`Quota`](baton_abi::quota::Quota) defines. The
    /// errors are those of a user's limit.
    pub all: Usage,
    /// Handles that all processes of one user have, shared by the users that gave them: `EDQUOT`.
    pub handles_received: u32,
    /// Channels from one client to one server: `EMFILE`.
    pub channels_per_server: usize,
    /// Channels of one server, shared by the clients' users: `EMFILE`. A server may ask for fewer.
    pub channels_served: u32,
    /// Real-time callers' lanes at one server, each of which has a looper of its own: `EMFILE`.
    pub real_time_lanes_per_server: usize,
    /// Lanes of one user's real-time callers at one server: `EDQUOT`.
    pub real_time_lanes_per_user: usize,
    /// Objects in one transaction: `ENOSPC`, like for a transaction that is too large.
    pub objects_per_ticket: usize,
    /// Contexts: `ENOSPC`. All fit into one packet.
    pub contexts: usize,
    /// Bytes of the names of all contexts: `ENOSPC`.
    pub context_name_bytes: usize,
    /// Claims of a process that rejoins. The broker disconnects a process with more.
    pub claims: usize,
    /// Bytes of events that wait for one process to read, shared by the users that caused them:
    /// `ENOSPC` for objects, `EAGAIN` for requests that may be repeated.
    pub queued_bytes: u64,
    /// Bytes of events that wait for all processes of one user, with the errors of `queued_bytes`.
    pub queued_bytes_per_user: u64,
    /// Cancelled tickets of one process that wait for one other process. The broker disconnects a
    /// sender with more.
    pub queued_cancels: usize,
    /// Barriers that a process has asked for and not read. The broker disconnects a process with
    /// more.
    pub queued_barriers: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            process: Usage { processes: 1, handles: 65_536, nodes: 65_536, channels: 1_024 },
            user: Usage { processes: 8_192, handles: 1 << 20, nodes: 1 << 20, channels: 65_536 },
            all: Usage { processes: 32_768, handles: 1 << 21, nodes: 1 << 21, channels: 1 << 18 },
            handles_received: 1 << 20,
            channels_per_server: 16,
            channels_served: 16_384,
            real_time_lanes_per_server: 64,
            real_time_lanes_per_user: 32,
            objects_per_ticket: MAX_OBJECTS,
            contexts: CONTEXTS,
            context_name_bytes: CONTEXT_NAME_BYTES,
            claims: 1 << 20,
            queued_bytes: 4 << 20,
            queued_bytes_per_user: 64 << 20,
            queued_cancels: 1_024,
            queued_barriers: 65_536,
        }
    }
}

const CONTEXTS: usize = 2_048;
const CONTEXT_NAME_BYTES: usize = 48 << 10;
// In a report's first page a context has its name's length, its manager and a list's length.
const _: () = assert!(CONTEXT_NAME_BYTES + CONTEXTS * 16 < MAX_PACKET_BYTES * 3 / 4);
