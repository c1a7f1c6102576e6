//! Claims: an engine's description of its state for the broker that succeeds a dead one.
//!
//! Brokers that succeed one another at one socket count **eras**. The upper half of every id that a
//! broker gives out ([`ProcessId`], [`ChannelId`], [`TicketId`]) is its era, so no two brokers give
//! out the same id.
//!
//! **Invariant**: a claim gives its maker nothing. A grant is valid as far as the node's owner
//! names the claimant as a holder, a channel if both ends claim it.

use crate::id::{ChannelId, End, NodeId, ProcessId, TicketId};
use serde::{Deserialize, Serialize};

/// Most claims in one packet.
pub const MAX_CLAIMS: usize = 2048;

/// One object that an engine had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// A node of the engine, and one process that holds it by a grant of the broker's.
    Node {
        /// The node.
        node: NodeId,
        /// The node's flags.
        flags: u32,
        /// Whether any process holds the node strongly.
        strong: bool,
        /// The holder.
        holder: ProcessId,
    },
    /// Grants of the broker's on a node of another process.
    Granted {
        /// The owner of the node.
        owner: ProcessId,
        /// The owner's id of the node.
        node: NodeId,
        /// Strong grants that have not been returned.
        strong: u32,
        /// All grants that have not been returned.
        grants: u32,
    },
    /// A process that holds nodes of the engine, or owns nodes that it holds, by grants that the
    /// broker does not see. Each of the two is told of the other's death.
    Peer {
        /// The process.
        peer: ProcessId,
    },
    /// A channel.
    Channel {
        /// The channel's id.
        channel: ChannelId,
        /// The claimant's end.
        end: End,
        /// The process at the other end.
        peer: ProcessId,
    },
}

/// The era of an id.
pub const fn era_of(number: u64) -> u32 {
    (number >> 32) as u32
}

/// The number from which the broker of an era counts its ids.
pub const fn first_of(era: u32) -> u64 {
    (era as u64) << 32
}

impl ProcessId {
    /// The era in which the process was first admitted.
    pub const fn era(self) -> u32 {
        era_of(self.0)
    }
}

impl TicketId {
    /// The era of the broker that gave out the ticket. Engines of other brokers never have the
    /// ticket.
    pub const fn era(self) -> u32 {
        era_of(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{MAX_PACKET_BYTES, Request, encode};

    #[test]
    fn the_largest_number_of_claims_fits_a_packet() {
        let (node, id) = (NodeId(u64::MAX), ProcessId(u64::MAX));
        let largest = [
            Claim::Node { node, flags: u32::MAX, strong: true, holder: id },
            Claim::Granted { owner: id, node, strong: u32::MAX, grants: u32::MAX },
            Claim::Channel { channel: ChannelId(u64::MAX), end: End::Server, peer: id },
        ];
        for claim in largest {
            let request = Request::Claim { claims: vec![claim; MAX_CLAIMS] };
            assert!(encode(&request).len() <= MAX_PACKET_BYTES);
        }
    }
}
