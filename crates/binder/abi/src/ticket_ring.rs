//! Tickets that need not wake anybody: a ring in an engine's tally page, beside the event socket.
//!
//! A ticket is of no use before its message comes, and whoever takes the message in looks for
//! events first. So the broker puts the ticket of one object here, if there is room, and every
//! other event into the socket, which wakes the engine's control thread.
//!
//! ```text
//!  tally page   EVENTS | LANES | TAIL | HEAD | record 0 | record 1 | ... | 63
//! ```
//!
//! **Order.** The broker numbers the events of a connection, whichever way they go. The engine has
//! taken `n` events: the next one is the ring's first record if that has the number `n`, else the
//! socket's first packet. A packet may be received while an earlier ticket is being put: the engine
//! looks into the ring once more before it applies the packet.
//!
//! Neither end trusts the other's words: the engine can write the whole page, and harms itself
//! alone. Records of an earlier connection have another connection's number and are skipped.

use crate::control::{Event, Granted, NodeId, ProcessId, Strength, TicketId};
use bytemuck::{Pod, Zeroable};

/// u32 of the tally page, written by the broker: tickets put so far.
pub const TAIL: usize = 192;
/// u32 of the tally page, written by the engine: tickets taken so far.
pub const HEAD: usize = 256;
/// Records in the ring.
pub const RECORDS: u32 = 64;
const RECORDS_AT: usize = 320;

const _: () = assert!(RECORDS.is_power_of_two(), "positions wrap around");
const _: () = assert!(
    RECORDS_AT + RECORDS as usize * size_of::<Record>() <= crate::lane::TALLY_BYTES,
    "the ring lies in the tally page"
);

/// Offset of the record at a position of the ring.
pub fn record_at(position: u32) -> usize {
    RECORDS_AT + (position % RECORDS) as usize * size_of::<Record>()
}

/// A ticket of one object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Record {
    /// The engine's number of the connection, by its greeting.
    pub connection: u32,
    /// The number of the event in the connection, modulo 2^32.
    pub number: u32,
    from: u64,
    ticket: u64,
    owner: u64,
    node: u64,
    flags: u32,
    is_strong: u32,
    manages: u32,
    unused: u32,
}

impl Record {
    /// The record of an event. `None` unless it is a ticket of one object.
    pub fn of(event: &Event, connection: u32, number: u32) -> Option<Record> {
        let Event::Ticket { from, ticket, objects } = event else { return None };
        let &[Granted { owner, node, strength, flags, manages }] = &objects[..] else {
            return None;
        };
        Some(Record {
            connection,
            number,
            from: from.0,
            ticket: ticket.0,
            owner: owner.0,
            node: node.0,
            flags,
            is_strong: u32::from(strength == Strength::Strong),
            manages: u32::from(manages),
            unused: 0,
        })
    }

    /// The event.
    pub fn event(&self) -> Event {
        let strength = if self.is_strong != 0 { Strength::Strong } else { Strength::Weak };
        let granted = Granted {
            owner: ProcessId(self.owner),
            node: NodeId(self.node),
            strength,
            flags: self.flags,
            manages: self.manages != 0,
        };
        let (from, ticket) = (ProcessId(self.from), TicketId(self.ticket));
        Event::Ticket { from, ticket, objects: vec![granted] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(objects: Vec<Granted>) -> Event {
        Event::Ticket { from: ProcessId(3), ticket: TicketId(1 << 40), objects }
    }

    #[test]
    fn a_ticket_of_one_object_is_a_record_and_comes_back() {
        for (strength, manages) in [(Strength::Strong, false), (Strength::Weak, true)] {
            let (owner, node) = (ProcessId(1 << 33), NodeId(u64::MAX));
            let event = ticket(vec![Granted { owner, node, strength, flags: 0x117f, manages }]);
            let record = Record::of(&event, 2, 9).unwrap();
            assert_eq!((record.connection, record.number), (2, 9));
            assert_eq!(record.event(), event);
            let Event::Ticket { objects, .. } = &event else { unreachable!() };
            assert_eq!(Record::of(&ticket([&objects[..], &objects[..]].concat()), 2, 9), None);
        }
        assert_eq!(Record::of(&ticket(Vec::new()), 2, 9), None);
        assert_eq!(Record::of(&Event::Barrier { number: 1 }, 2, 9), None);
    }
}
