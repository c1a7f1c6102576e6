//! The names of processes, nodes, channels and tickets in messages between broker and engines.

use serde::{Deserialize, Serialize};

/// The broker's name for one opened device. No name is used twice: see [`crate::claim`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct ProcessId(pub u64);

impl ProcessId {
    /// The broker itself, as the giver of a [`crate::control::Event::Ticket`].
    pub const BROKER: ProcessId = ProcessId(0);
}

/// The owner's name for one of its nodes. An owner uses no name twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u64);

/// A channel: the memory and the socket pair between one client and one server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChannelId(pub u64);

/// The references that one transaction carries. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TicketId(pub u64);

/// The end of a channel that a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The end that sends requests.
    Client,
    /// The end that receives requests.
    Server,
}
