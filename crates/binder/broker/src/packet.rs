//! Sends and receives packets: one message each, with descriptors. Never blocks.

use crate::shortage::is_shortage;
use baton_abi::control::MAX_PACKET_BYTES;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Most descriptors in a packet: memory, sockets and status page of a channel.
const MAX_FDS: usize = 4;

/// Number of descriptors of a greeting. No other packet has any.
const GREETING_FDS: usize = 2;

/// The result of an attempt to receive.
#[derive(Debug)]
pub(crate) enum Received {
    /// A packet without descriptors, of this many bytes at the start of the buffer.
    Packet(usize),
    /// A packet with descriptors, likewise. It is still in the socket: see [`look_at_files`].
    WithDescriptors(usize),
    /// No packet has arrived.
    Nothing,
    /// The system lacked resources to receive now.
    Later,
    /// The peer has closed the connection.
    Closed,
    /// A packet that is too long.
    Malformed,
}

/// A buffer for one packet of the largest legal size. The kernel's flags mark a longer packet.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; MAX_PACKET_BYTES]
}

/// Receives one packet into `buffer`. Takes none of its descriptors: whoever closes the last
/// descriptor of a file may wait for the sender (see [`crate::closing`]), and so does the kernel
/// where it drops a descriptor of a packet that somebody receives.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Received {
    let message = match receive_with(&socket, buffer, &mut [], RecvFlags::PEEK) {
        Ok((message, _)) => message,
        Err(Errno::AGAIN) => return Received::Nothing,
        Err(errno) if is_shortage(errno) => return Received::Later,
        Err(_) => return Received::Closed,
    };
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Received::Malformed;
    }
    // There was no room for descriptors.
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Received::WithDescriptors(message.bytes);
    }
    if message.bytes == 0 {
        // An empty packet looks like the end of the connection and is treated as the end.
        return Received::Closed;
    }
    match discard(socket) {
        Ok(()) => Received::Packet(message.bytes),
        Err(_) => Received::Later,
    }
}

/// Removes the first packet. The kernel drops its descriptors. An error is a shortage of the
/// system, or says that there is none.
pub(crate) fn discard(socket: impl AsFd) -> Result<(), Errno> {
    receive_with(socket, &mut [], &mut [], RecvFlags::empty()).map(drop)
}

/// Copies of the descriptors of a packet that is still in its socket.
pub(crate) enum Files {
    /// As many as a greeting has.
    Both([OwnedFd; GREETING_FDS]),
    /// Those that were there, or the first of them.
    Others(Vec<OwnedFd>),
    /// This process had no room for them.
    Lost,
}

/// Copies the descriptors of the packet that [`receive`] has left in the socket.
pub(crate) fn look_at_files(socket: impl AsFd) -> Files {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GREETING_FDS))];
    match receive_with(socket, &mut [], &mut space, RecvFlags::PEEK) {
        // If there had been more than two descriptors, two would have arrived.
        Ok((message, found)) if message.flags.contains(ReturnFlags::CTRUNC) => {
            if found.len() < GREETING_FDS { Files::Lost } else { Files::Others(found) }
        }
        Ok((_, found)) => found.try_into().map_or_else(Files::Others, Files::Both),
        Err(_) => Files::Lost,
    }
}

/// Receives without waiting. Returns the descriptors for which there was space, too.
fn receive_with(
    socket: impl AsFd,
    buffer: &mut [u8],
    space: &mut [MaybeUninit<u8>],
    flags: RecvFlags,
) -> Result<(RecvMsg, Vec<OwnedFd>), Errno> {
    let mut control = RecvAncillaryBuffer::new(space);
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = loop {
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            // A peer that closes its socket with unread packets leaves one such error ahead of its
            // own packets.
            Err(Errno::INTR | Errno::CONNRESET) => (),
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(these) = part {
            descriptors.extend(these);
        }
    }
    Ok((message, descriptors))
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
