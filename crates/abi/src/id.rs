//! The names of processes, nodes, channels and tickets in messages between broker and engines.

use serde::{Deserialize, Serialize};

/// One opened device: the broker's name for a party. Never used twice, see [`crate::claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

impl ProcessId {
    /// The broker itself, as the giver of a [`Event::Ticket`].
    pub const BROKER: ProcessId = ProcessId(0);
}

/// A node within its owner. Chosen by the owner, never used twice by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u64);

/// A channel: the memory and the socket pair between one client and one server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChannelId(pub u64);

/// The references that one transaction carries. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TicketId(pub u64);

/// Which end of a channel a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It sends requests.
    Client,
    /// It receives them.
    Server,
}
