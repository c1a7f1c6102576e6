//! Packets of the control protocol and of channels' sockets, with descriptors.

use baton_abi::control::MAX_PACKET_BYTES;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

/// Timeout of a receive, so that a program that waits in vain ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Most descriptors of one packet: the limit of an SCM_RIGHTS message.
pub const MAX_DESCRIPTORS: usize = 253;

/// A packet and its descriptors.
pub type Packet = (Vec<u8>, Vec<OwnedFd>);

/// Connects without a greeting. Errors are those of `connect`.
pub fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

/// Sends one packet, and waits for room if necessary.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    send_with(socket, bytes, descriptors, SendFlags::NOSIGNAL)
}

/// Sends one packet. `EAGAIN` if there is no room.
pub fn send_now(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    send_with(socket, bytes, descriptors, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags).map(drop)
}

thread_local! {
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_PACKET_BYTES]);
}

/// Receives the next packet. `ECONNRESET` at the end of the connection.
pub fn receive(socket: impl AsFd) -> Result<Packet, Errno> {
    receive_with(socket, RecvFlags::CMSG_CLOEXEC)
}

/// Receives the next packet. `EAGAIN` if none has arrived.
pub fn receive_now(socket: impl AsFd) -> Result<Packet, Errno> {
    receive_with(socket, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
}

fn receive_with(socket: impl AsFd, flags: RecvFlags) -> Result<Packet, Errno> {
    ROOM.with_borrow_mut(|room| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(room)];
        let bytes = rustix::net::recvmsg(socket, &mut parts, &mut control, flags)?.bytes;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(these) = message {
                descriptors.extend(these);
            }
        }
        if bytes == 0 {
            return Err(Errno::CONNRESET);
        }
        Ok((room[..bytes].to_vec(), descriptors))
    })
}
