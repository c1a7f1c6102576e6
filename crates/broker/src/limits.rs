//! How much one process, one user with all its processes, and all users may have the broker
//! remember.
//!
//! **Invariant**: a hostile process exhausts its own user's share and no other's.

use baton_abi::control::{MAX_CONTEXT_NAME_BYTES, MAX_OBJECTS, MAX_PACKET_BYTES};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Opened devices.
    Processes,
    /// Handles in a process's table.
    Handles,
    /// Nodes that others hold, or that manage a context.
    Nodes,
    /// Channels as client. As server they are free, or clients could use up a server's share.
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

/// The configuration's word on a process, by its user, group or label.
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
    /// A stranger in a context that anybody may manage.
    fn default() -> Rights {
        Rights { reserve: false, manages: true, most: Usage::MOST }
    }
}

/// The broker's bounds. Each has an errno for the request that would pass it; see `docs/limits.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one process: `EMFILE` for handles and channels, `ENOSPC` for nodes.
    pub process: Usage,
    /// Of one user that has no right to the reserve, whatever is left: `EDQUOT`, but `EMFILE` for
    /// channels.
    pub user: Usage,
    /// Of all users together, who share it as a [`Quota`](baton_abi::quota::Quota) says: as for a
    /// user.
    pub all: Usage,
    /// Handles that all processes of one user have, by those who gave them: `EDQUOT`.
    pub handles_received: u32,
    /// Channels from one client to one server: `EMFILE`.
    pub channels_per_server: usize,
    /// Channels of one server, by users of clients: `EMFILE`. Fewer if the server says so.
    pub channels_served: u32,
    /// Lanes of real-time callers that one server has loopers for: `EMFILE`.
    pub real_time_lanes_per_server: usize,
    /// Lanes of real-time callers of one user at one server: `EDQUOT`.
    pub real_time_lanes_per_user: usize,
    /// Objects in one transaction: `ENOSPC`, as for a transaction too large.
    pub objects_per_ticket: usize,
    /// Contexts: `ENOSPC`. Few enough for all their names to fit one packet.
    pub contexts: usize,
    /// Claims of a process that comes back; past it, it is disconnected.
    pub claims: usize,
    /// Bytes of events that wait for one process that does not read them, by the users that
    /// caused them: `ENOSPC` for objects, `EAGAIN` for what may be asked again.
    pub queued_bytes: u64,
    /// Bytes of events that wait for all processes of one user: the same errors.
    pub queued_bytes_per_user: u64,
    /// Cancelled tickets of one process that wait for one other; past it, it is disconnected.
    pub queued_cancels: usize,
    /// Barriers that a process has asked for and not read; past it, it is disconnected.
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
            contexts: 256,
            claims: 1 << 20,
            queued_bytes: 16 << 20,
            queued_bytes_per_user: 64 << 20,
            queued_cancels: 1_024,
            queued_barriers: 65_536,
        }
    }
}

const _: () = assert!(256 * (MAX_CONTEXT_NAME_BYTES + 2) < MAX_PACKET_BYTES);
