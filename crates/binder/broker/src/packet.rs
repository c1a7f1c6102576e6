//! Sends and receives packets: one message each, with descriptors. Never blocks.

use crate::shortage::is_shortage;
use baton_abi::control::MAX_PACKET_BYTES;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Most descriptors in a packet: memory, sockets and status page of a channel.
const MAX_FDS: usize = 4;

/// The result of an attempt to receive.
#[derive(Debug)]
pub(crate) enum Received {
    /// A packet of this many bytes at the start of the buffer, and its descriptors. A greeting has
    /// two descriptors, every other packet none.
    Packet(usize, Option<[OwnedFd; 2]>),
    /// A packet of this many bytes, whose descriptors this process had no room for.
    Stripped(usize),
    /// No packet has arrived.
    Nothing,
    /// The system lacked resources to receive now.
    Later,
    /// The peer has closed the connection.
    Closed,
    /// A packet that is too long or has too many descriptors.
    Malformed,
}

/// A buffer for one packet of the largest legal size. The kernel's flags mark a longer packet.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; MAX_PACKET_BYTES]
}

/// Receives one packet into `buffer`.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Received {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(&socket, &mut parts, &mut control, flags) {
            // A peer that closes its socket with unread packets leaves one such error ahead of its
            // own packets.
            Err(Errno::INTR | Errno::CONNRESET) => (),
            other => break other,
        }
    };
    let message = match received {
        Ok(message) => message,
        Err(Errno::AGAIN) => return Received::Nothing,
        Err(errno) if is_shortage(errno) => return Received::Later,
        Err(_) => return Received::Closed,
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(these) = part {
            descriptors.extend(these);
        }
    }
    // If there had been more than two descriptors, two would have arrived.
    let no_room = message.flags.contains(ReturnFlags::CTRUNC) && descriptors.len() < 2;
    if no_room && !message.flags.contains(ReturnFlags::TRUNC) {
        return Received::Stripped(message.bytes);
    }
    let greeting = <[OwnedFd; 2]>::try_from(descriptors);
    let wrong = greeting.as_ref().is_err_and(|others| !others.is_empty());
    if wrong || message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        Received::Malformed
    } else if message.bytes == 0 {
        // An empty packet looks like the end of the connection and is treated as the end.
        Received::Closed
    } else {
        Received::Packet(message.bytes, greeting.ok())
    }
}

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The receiver has it.
    Now,
    /// The receiver's queue is full.
    Full,
    /// The receiver closed its end. The broker learns of the receiver's death from other
    /// descriptors, after the receiver's last requests.
    Closed,
}

/// Sends one packet with at most [`MAX_FDS`] descriptors. An error is the system's: a shortage, or
/// a broken socket.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<Sent, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "at most MAX_FDS");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return Ok(Sent::Now),
            Err(Errno::INTR) => (),
            Err(Errno::AGAIN) => return Ok(Sent::Full),
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(Sent::Closed),
            Err(errno) => return Err(errno),
        }
    }
}
