//! Packets with descriptors over sockets.

use baton_abi::control::MAX_PACKET_BYTES;
use baton_shm::blocking::{before_read, before_write, pause};
use baton_shm::fd_numbers::set_apart;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use smallvec::{SmallVec, smallvec};
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Pause after a temporary failure of the system.
pub const PAUSE: Duration = Duration::from_millis(1);

/// Room for a few descriptors in place.
type Space = SmallVec<[MaybeUninit<u8>; 64]>;

/// One packet. The packet always arrives; its descriptors may not.
#[derive(Debug)]
pub struct Packet {
    /// The packet's length.
    pub bytes: usize,
    /// The descriptors, close-on-exec. `EMFILE` if the process has no room for all of them:
    /// installed ones are closed again, the others are lost.
    pub fds: Result<Vec<OwnedFd>, Errno>,
}

/// Whether a failure is temporary: the system lacks memory or descriptors, and the connection
/// stands.
pub fn passes(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOMEM
            | Errno::NOBUFS
            | Errno::MFILE
            | Errno::NFILE
            | Errno::TOOMANYREFS
            | Errno::AGAIN
            | Errno::DQUOT
    )
}

/// The number of descriptors that this process may have at this moment.
pub fn descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.unwrap_or(u64::MAX)
}

/// The program's descriptor of this number, for one system call. `EBADF` if it can be none; whether
/// it is open, that call says.
pub fn borrowed<'a>(fd: i32) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: a closed number is EBADF, and the program answers for a number that it uses twice.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Sends one packet with descriptors; `flags` say whether it waits for room.
pub fn send(
    socket: impl AsFd,
    packet: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space: Space =
        smallvec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(fds.len()))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let slices = [IoSlice::new(packet)];
    loop {
        if !flags.contains(SendFlags::DONTWAIT) {
            before_write(&socket);
        }
        match rustix::net::sendmsg(&socket, &slices, &mut ancillary, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

thread_local! {
    /// Room for one packet, or none while the thread receives one: to zero a new buffer takes
    /// longer than to receive a packet.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn take_buffer() -> Vec<u8> {
    // A signal handler may receive while its thread does, and so may the end of a thread.
    let mut buffer = SPARE.try_with(Cell::take).unwrap_or_default();
    if buffer.is_empty() {
        buffer = vec![0; MAX_PACKET_BYTES];
    }
    buffer
}

fn give_buffer(buffer: Vec<u8>) {
    let _ = SPARE.try_with(|spare| spare.set(buffer));
}

/// A packet's bytes, and its descriptors as in [`Packet`].
pub type Received = (Vec<u8>, Result<Vec<OwnedFd>, Errno>);

/// Receives one packet of the broker, with descriptors for the driver's own use. The end is
/// `ECONNRESET`.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Received, Errno> {
    let mut buffer = take_buffer();
    let received = receive_into(socket, &mut buffer, 4, flags);
    let received = received.map(|Packet { bytes, fds }| {
        let fds = fds.map(|fds| fds.into_iter().map(set_apart).collect());
        (buffer[..bytes].to_vec(), fds)
    });
    give_buffer(buffer);
    received
}

/// Waits for a packet for as long as the connection stands.
pub fn receive_patiently(socket: impl AsFd) -> Result<Received, Errno> {
    loop {
        before_read(&socket);
        match receive(&socket, RecvFlags::empty()) {
            Err(errno) if passes(errno) => pause(PAUSE),
            outcome => return outcome,
        }
    }
}

/// Receives one packet into `packet`, with up to `max_fds` descriptors. The kernel says of a packet
/// that has more, also if `max_fds` is 0.
pub fn receive_into(
    socket: impl AsFd,
    packet: &mut [u8],
    max_fds: usize,
    flags: RecvFlags,
) -> Result<Packet, Errno> {
    // Space for none would have room for one, because of its alignment.
    let bytes = if max_fds == 0 { 0 } else { rustix::cmsg_space!(ScmRights(max_fds)) };
    let mut space: Space = smallvec![MaybeUninit::uninit(); bytes];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message = loop {
        let mut slices = [IoSliceMut::new(packet)];
        match rustix::net::recvmsg(&socket, &mut slices, &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
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
    let is_cut = message.flags.contains(rustix::net::ReturnFlags::CTRUNC);
    Ok(Packet { bytes: message.bytes, fds: if is_cut { Err(Errno::MFILE) } else { Ok(fds) } })
}

/// Like [`receive_into`], also for the last packets of a peer that has closed its end with unread
/// packets: the kernel reports that once, before them.
pub fn receive_last_words(
    socket: impl AsFd,
    packet: &mut [u8],
    max_fds: usize,
    flags: RecvFlags,
) -> Result<Packet, Errno> {
    match receive_into(&socket, packet, max_fds, flags) {
        Err(Errno::CONNRESET) => receive_into(&socket, packet, max_fds, flags),
        received => received,
    }
}
