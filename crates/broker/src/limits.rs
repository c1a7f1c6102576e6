//! How much one process, and one user with all its processes, may have the broker remember.
//!
//! A hostile process can then exhaust its user's share and no other's.

use baton_abi::control::{MAX_CONTEXT_NAME_BYTES, MAX_OBJECTS, MAX_PACKET_BYTES};
use rustix::io::Errno;

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

/// The broker's bounds. Each has an errno for the request that would pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one process: `EMFILE` for handles and channels, `ENOSPC` for nodes.
    pub process: Usage,
    /// Of one effective user id: `EDQUOT`, but `EMFILE` for channels.
    pub user: Usage,
    /// Channels from one client to one server: `EMFILE`.
    pub channels_per_server: usize,
    /// Lanes of real-time callers that one server has loopers for: `EMFILE`.
    pub real_time_lanes_per_server: usize,
    /// The same of callers of one user at one server: `EDQUOT`.
    pub real_time_lanes_per_user: usize,
    /// Objects in one transaction: `ENOSPC`, as for a transaction too large.
    pub objects_per_ticket: usize,
    /// Contexts: `ENOSPC`. Few enough for all their names to fit one packet.
    pub contexts: usize,
    /// Claims of a process that comes back; past it, it is disconnected.
    pub claims: usize,
    /// Events that wait for a process that does not read them; past it, it is disconnected.
    pub queued_events: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            process: Usage { processes: 1, handles: 65_536, nodes: 65_536, channels: 1_024 },
            user: Usage { processes: 8_192, handles: 1 << 20, nodes: 1 << 20, channels: 65_536 },
            channels_per_server: 16,
            real_time_lanes_per_server: 64,
            real_time_lanes_per_user: 32,
            objects_per_ticket: MAX_OBJECTS,
            contexts: 256,
            claims: 1 << 20,
            queued_events: 65_536,
        }
    }
}

const _: () = assert!(256 * (MAX_CONTEXT_NAME_BYTES + 2) < MAX_PACKET_BYTES);

impl Limits {
    /// Whether `more` of a resource fit what a process and its user have.
    pub(crate) fn check(
        &self,
        resource: Resource,
        process: &Usage,
        user: &Usage,
        more: usize,
    ) -> Result<(), Errno> {
        let fits = |used: &Usage, limit: &Usage| {
            used.of(resource) as usize + more <= limit.of(resource) as usize
        };
        let (over_process, over_user) = match resource {
            Resource::Processes => (Errno::DQUOT, Errno::DQUOT),
            Resource::Handles => (Errno::MFILE, Errno::DQUOT),
            Resource::Nodes => (Errno::NOSPC, Errno::DQUOT),
            Resource::Channels => (Errno::MFILE, Errno::MFILE),
        };
        if more == 0 {
            Ok(())
        } else if !fits(process, &self.process) {
            Err(over_process)
        } else if !fits(user, &self.user) {
            Err(over_user)
        } else {
            Ok(())
        }
    }
}
