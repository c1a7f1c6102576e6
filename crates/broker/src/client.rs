//! One connection: its sockets, its front page, and the events that wait for it.

use baton_abi::control::{Event, Identity, MAX_PACKET_BYTES, decode, encode};
use baton_abi::lane::{FRONT_BYTES, front};
use baton_shm::mapping::{self, Access, Mapping};
use baton_shm::sync::Ordering;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Most descriptors that one packet to or from the broker carries.
const MAX_FDS: usize = 4;

/// An admitted process, as the runner sees it.
#[derive(Debug)]
pub struct Engine {
    /// Who it is.
    pub identity: Identity,
    /// Our end of its event stream.
    pub events: OwnedFd,
    /// Its front page, and the file to hand to its clients.
    pub front: Mapping,
    /// The front page's file.
    pub page: OwnedFd,
    queue: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the socket.
    Now,
    /// It waits until the process reads.
    Queued,
    /// The process is gone.
    Lost,
}

impl Engine {
    /// Takes a front page that an engine has sent. `EINVAL` if it could shrink under us, `EPERM` if
    /// it cannot be closed to writers: the engine's fault.
    pub fn new(identity: Identity, events: OwnedFd, page: OwnedFd) -> Result<Engine, Errno> {
        let front = Mapping::new(&page, FRONT_BYTES, Access::ReadWrite)?;
        mapping::forbid_new_writers(&page)?;
        Ok(Engine { identity, events, front, page, queue: VecDeque::new() })
    }

    /// Sends an event, in order behind those that wait.
    pub fn send(&mut self, event: &Event, fds: Vec<OwnedFd>) -> Sent {
        let packet = encode(event);
        if !self.queue.is_empty() {
            self.queue.push_back((packet, fds));
            return Sent::Queued;
        }
        match send(&self.events, &packet, &fds, SendFlags::DONTWAIT) {
            Ok(()) => Sent::Now,
            Err(Errno::AGAIN) => {
                self.queue.push_back((packet, fds));
                Sent::Queued
            }
            Err(_) => Sent::Lost,
        }
    }

    /// Sends what waits, as far as the process reads. True when nothing waits any more.
    pub fn flush(&mut self) -> bool {
        while let Some((packet, fds)) = self.queue.front() {
            match send(&self.events, packet, fds, SendFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return false,
                _ => self.queue.pop_front(),
            };
        }
        true
    }

    /// How many events wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// A number of its front page. The process may write anything there.
    pub fn word(&self, offset: usize) -> u32 {
        self.front.word(offset).load(Ordering::Relaxed)
    }

    /// Tells its clients.
    pub fn set_frozen(&self, frozen: bool) {
        self.front.word(front::FROZEN).store(frozen.into(), Ordering::Release);
    }
}

/// Sends one packet.
pub fn send(
    socket: impl AsFd,
    packet: &[u8],
    fds: &[OwnedFd],
    flags: SendFlags,
) -> Result<(), Errno> {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let slices = [IoSlice::new(packet)];
    let flags = flags | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(&socket, &slices, &mut ancillary, flags).map(drop)
}

/// Receives one packet of a client. `Ok(None)` if there is none, `Err` at the end of the connection
/// or for bytes that are no message: either way the connection is over.
pub fn receive<T: serde::de::DeserializeOwned>(
    socket: impl AsFd,
    packet: &mut [u8],
) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
    debug_assert!(packet.len() >= MAX_PACKET_BYTES);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = {
        let mut slices = [IoSliceMut::new(packet)];
        match rustix::net::recvmsg(&socket, &mut slices, &mut ancillary, flags) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            other => other?,
        }
    };
    let mut fds = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    if message.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    if message.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let message = decode(&packet[..message.bytes]).ok_or(Errno::BADMSG)?;
    Ok(Some((message, fds)))
}
