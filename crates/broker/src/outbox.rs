//! The broker's end of one engine's event socket.
//!
//! The broker never waits for an engine. What the socket does not take is kept here, in order, up
//! to a bound; an engine that lets even that fill up is disconnected.

use crate::packet::{self, Sent};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;

/// Most bytes kept: packets are small, but for tickets of many objects.
const MAX_BYTES: usize = 32 << 20;
/// Most descriptors kept, of those that the broker itself may have open.
const MAX_DESCRIPTORS: usize = 4_096;

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
}

pub(crate) struct Outbox {
    socket: OwnedFd,
    max_packets: usize,
    packets: VecDeque<Packet>,
    bytes: usize,
    descriptors: usize,
}

impl Outbox {
    /// Keeps at most so many packets.
    pub fn new(socket: OwnedFd, max_packets: usize) -> Outbox {
        Outbox { socket, max_packets, packets: VecDeque::new(), bytes: 0, descriptors: 0 }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Appends an event. The descriptors are duplicated only if it has to wait.
    pub fn push(
        &mut self,
        bytes: Vec<u8>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Backlog, Failed> {
        if self.packets.is_empty() {
            match packet::send(&self.socket, &bytes, descriptors).map_err(Failed::Socket)? {
                Sent::Now | Sent::Closed => return Ok(Backlog::Empty),
                Sent::Full => (),
            }
        }
        self.bytes += bytes.len();
        self.descriptors += descriptors.len();
        if self.packets.len() >= self.max_packets
            || self.bytes > MAX_BYTES
            || self.descriptors > MAX_DESCRIPTORS
        {
            return Err(Failed::Full);
        }
        let descriptors = descriptors
            .iter()
            .map(|descriptor| rustix::io::fcntl_dupfd_cloexec(descriptor, 0))
            .collect::<Result<Vec<OwnedFd>, Errno>>()
            .map_err(Failed::Socket)?;
        self.packets.push_back(Packet { bytes, descriptors });
        Ok(if self.packets.len() == 1 { Backlog::Begun } else { Backlog::Standing })
    }

    /// Sends what has been waiting, as far as the socket takes it.
    pub fn flush(&mut self) -> Result<Backlog, Failed> {
        while let Some(packet) = self.packets.front() {
            let descriptors: Vec<_> = packet.descriptors.iter().map(|fd| fd.as_fd()).collect();
            match packet::send(&self.socket, &packet.bytes, &descriptors).map_err(Failed::Socket)? {
                Sent::Now | Sent::Closed => {
                    self.bytes -= packet.bytes.len();
                    self.descriptors -= packet.descriptors.len();
                    self.packets.pop_front();
                }
                Sent::Full => return Ok(Backlog::Standing),
            }
        }
        Ok(Backlog::Empty)
    }
}
