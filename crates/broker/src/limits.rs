//! How much of the broker one process and one user may take.

/// Bounds; what goes past one is refused, and nothing else is touched.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Opened devices of one user.
    pub processes_per_uid: u32,
    /// Handles of one process.
    pub handles: usize,
    /// Nodes of one process that others know.
    pub nodes: usize,
    /// Channels of one process, at both ends together.
    pub channels: usize,
    /// Contexts of the broker.
    pub contexts: usize,
    /// Events that wait for a process that does not read.
    pub queued_events: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            processes_per_uid: 4096,
            handles: 1 << 16,
            nodes: 1 << 16,
            channels: 4096,
            contexts: 256,
            queued_events: 1 << 16,
        }
    }
}
