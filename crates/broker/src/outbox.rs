//! The broker's end of one engine's event socket.
//!
//! The broker never waits for an engine. What the socket does not take is kept here, in order, up
//! to a bound; an engine that lets even that fill up is disconnected. Before that, from half the
//! bound on, requests of others that would add to it are refused, so that nobody can have an
//! engine disconnected that was stopped for a while.

use crate::packet::{self, Sent};
use baton_abi::control::{self, Event, ProcessId};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};

/// Most bytes kept: packets are small, but for tickets of many objects.
const MAX_BYTES: usize = 32 << 20;
/// Descriptors kept from which on no channel is opened.
const MANY_DESCRIPTORS: usize = 2_048;

/// Why an engine gets no more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failed {
    #[error("does not read its events")]
    Full,
    #[error("its event socket failed: {0}")]
    Socket(Errno),
}

/// What waits here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// Nothing: everything is in the socket.
    Empty,
    /// The first packet: flush when the socket takes more.
    Begun,
    /// What had begun before.
    Standing,
}

struct Packet {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    cancelled_by: Option<ProcessId>,
}

pub(crate) struct Outbox {
    socket: OwnedFd,
    max_packets: usize,
    packets: VecDeque<Packet>,
    bytes: usize,
    descriptors: usize,
    cancels: BTreeMap<ProcessId, usize>,
}

impl Outbox {
    /// Keeps at most so many packets.
    pub fn new(socket: OwnedFd, max_packets: usize) -> Outbox {
        Outbox {
            socket,
            max_packets,
            packets: VecDeque::new(),
            bytes: 0,
            descriptors: 0,
            cancels: BTreeMap::new(),
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether so much waits that nobody should add to it who can be refused.
    pub fn is_crowded(&self) -> bool {
        self.packets.len() >= self.max_packets / 2
            || self.bytes >= MAX_BYTES / 2
            || self.descriptors >= MANY_DESCRIPTORS
    }

    /// Cancelled tickets of a sender that wait. To cancel cannot be refused.
    pub fn cancels_of(&self, sender: ProcessId) -> usize {
        self.cancels.get(&sender).copied().unwrap_or_default()
    }

    /// Appends an event.
    pub fn push(&mut self, event: &Event, descriptors: Vec<OwnedFd>) -> Result<Backlog, Failed> {
        let bytes = control::encode(event);
        let cancelled_by = match event {
            Event::TicketCancelled { from, .. } => Some(*from),
            _ => None,
        };
        let packet = Packet { bytes, descriptors, cancelled_by };
        if self.packets.is_empty() && self.try_send(&packet)? == Attempt::Done {
            return Ok(Backlog::Empty);
        }
        self.bytes += packet.bytes.len();
        if self.packets.len() >= self.max_packets || self.bytes > MAX_BYTES {
            return Err(Failed::Full);
        }
        self.descriptors += packet.descriptors.len();
        if let Some(sender) = packet.cancelled_by {
            *self.cancels.entry(sender).or_default() += 1;
        }
        self.packets.push_back(packet);
        Ok(if self.packets.len() == 1 { Backlog::Begun } else { Backlog::Standing })
    }

    /// Sends what has been waiting, as far as the socket takes it.
    pub fn flush(&mut self) -> Result<Backlog, Failed> {
        while let Some(packet) = self.packets.front() {
            if self.try_send(packet)? == Attempt::Later {
                return Ok(Backlog::Standing);
            }
            let packet = self.packets.pop_front().expect("just sent");
            self.bytes -= packet.bytes.len();
            self.descriptors -= packet.descriptors.len();
            if let Some(sender) = packet.cancelled_by {
                let waiting = self.cancels.get_mut(&sender).expect("was counted");
                *waiting -= 1;
                if *waiting == 0 {
                    self.cancels.remove(&sender);
                }
            }
        }
        Ok(Backlog::Empty)
    }

    fn try_send(&self, packet: &Packet) -> Result<Attempt, Failed> {
        let descriptors: Vec<_> = packet.descriptors.iter().map(AsFd::as_fd).collect();
        match packet::send(&self.socket, &packet.bytes, &descriptors).map_err(Failed::Socket)? {
            Sent::Now | Sent::Closed => Ok(Attempt::Done),
            Sent::Full => Ok(Attempt::Later),
        }
    }
}

#[derive(PartialEq)]
enum Attempt {
    Done,
    Later,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::socket_pair;
    use crate::packet::Received;

    fn barrier(number: u64) -> Event {
        Event::Barrier { number }
    }

    #[test]
    fn what_comes_later_does_not_overtake_what_waits() {
        let (ours, theirs) = socket_pair().unwrap();
        let mut outbox = Outbox::new(ours, 10);
        let mut sent = 0;
        while outbox.push(&barrier(sent), Vec::new()).unwrap() == Backlog::Empty {
            sent += 1;
        }
        let mut buffer = packet::buffer();
        let mut next = || match packet::receive(&theirs, &mut buffer) {
            Received::Packet(bytes, None) => control::decode::<Event>(&buffer[..bytes]),
            _ => None,
        };
        // There is room in the socket again, and one packet in the queue.
        assert_eq!((next(), next()), (Some(barrier(0)), Some(barrier(1))));
        assert_eq!(outbox.push(&barrier(sent + 1), Vec::new()), Ok(Backlog::Standing));
        let rest = std::iter::from_fn(|| {
            let _ = outbox.flush().unwrap();
            next()
        });
        assert!(rest.eq((2..sent + 2).map(barrier)));
        assert_eq!(outbox.flush(), Ok(Backlog::Empty));
        assert_eq!((outbox.bytes, outbox.packets.len()), (0, 0));
    }

    #[test]
    fn descriptors_and_cancels_are_counted_while_they_wait() {
        let (ours, theirs) = socket_pair().unwrap();
        let mut outbox = Outbox::new(ours, 10);
        let from = ProcessId(3);
        while outbox.push(&barrier(0), Vec::new()).unwrap() == Backlog::Empty {}
        let cancelled = Event::TicketCancelled { from, ticket: baton_abi::control::TicketId(1) };
        let (file, _) = socket_pair().unwrap();
        outbox.push(&cancelled, vec![file]).unwrap();
        assert_eq!((outbox.cancels_of(from), outbox.descriptors), (1, 1));
        let mut buffer = packet::buffer();
        while outbox.flush().unwrap() != Backlog::Empty {
            packet::receive(&theirs, &mut buffer);
        }
        assert_eq!((outbox.cancels_of(from), outbox.descriptors), (0, 0));
        // Nobody reads any more: nothing waits for nobody.
        drop(theirs);
        assert_eq!(outbox.push(&barrier(1), Vec::new()), Ok(Backlog::Empty));
    }

    #[test]
    fn a_full_queue_is_an_error_and_half_a_one_a_crowd() {
        let (ours, _theirs) = socket_pair().unwrap();
        let mut outbox = Outbox::new(ours, 10);
        while outbox.push(&barrier(0), Vec::new()).unwrap() == Backlog::Empty {}
        for waiting in 1..10 {
            assert_eq!(outbox.is_crowded(), waiting >= 5);
            assert_eq!(outbox.push(&barrier(0), Vec::new()), Ok(Backlog::Standing));
        }
        assert_eq!(outbox.push(&barrier(0), Vec::new()), Err(Failed::Full));
    }
}
