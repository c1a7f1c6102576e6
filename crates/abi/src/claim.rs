//! What an engine tells the broker that comes after its own has died.
//!
//! Brokers that follow one another at one socket count **eras**. The upper half of every number
//! that a broker gives out ([`ProcessId`], [`ChannelId`], [`TicketId`]) is its era, so that no two
//! of them ever give the same one.
//!
//! **Invariant**: a claim gives nothing to who makes it. A handle counts as far as the node's
//! owner names the claimant as holder, a channel if both ends claim it.

use crate::id::{ChannelId, End, NodeId, ProcessId, TicketId};
use serde::{Deserialize, Serialize};

/// Most claims in one packet.
pub const MAX_CLAIMS: usize = 2048;

/// One thing that an engine had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// A node of its own, and one process that holds it.
    Node {
        /// Which.
        node: NodeId,
        /// The node's flags.
        flags: u32,
        /// Somebody holds it strongly, maybe this one.
        strong: bool,
        /// Who holds it.
        holder: ProcessId,
    },
    /// A handle.
    Handle {
        /// Its number.
        handle: u32,
        /// Who owns the node.
        owner: ProcessId,
        /// The owner's name for it.
        node: NodeId,
        /// Strong grants that have not been returned.
        strong: u32,
        /// All grants that have not been returned.
        grants: u32,
    },
    /// A channel.
    Channel {
        /// Its name.
        channel: ChannelId,
        /// The claimant's end.
        end: End,
        /// Who has the other.
        peer: ProcessId,
    },
}

/// The era in which a broker gave out a number.
pub const fn era_of(number: u64) -> u32 {
    (number >> 32) as u32
}

/// What an era's broker counts up from.
pub const fn first_of(era: u32) -> u64 {
    (era as u64) << 32
}

impl ProcessId {
    /// When it was admitted first.
    pub const fn era(self) -> u32 {
        era_of(self.0)
    }
}

impl TicketId {
    /// Whose it is: no other broker's engine holds it.
    pub const fn era(self) -> u32 {
        era_of(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{MAX_PACKET_BYTES, Request, encode};

    #[test]
    fn the_most_claims_fit_a_packet() {
        let (node, id) = (NodeId(u64::MAX), ProcessId(u64::MAX));
        let largest = [
            Claim::Node { node, flags: u32::MAX, strong: true, holder: id },
            Claim::Handle { handle: u32::MAX, owner: id, node, strong: u32::MAX, grants: u32::MAX },
            Claim::Channel { channel: ChannelId(u64::MAX), end: End::Server, peer: id },
        ];
        for claim in largest {
            let request = Request::Claim { claims: vec![claim; MAX_CLAIMS] };
            assert!(encode(&request).len() <= MAX_PACKET_BYTES);
        }
    }
}
