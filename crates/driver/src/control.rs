//! The engine's side of the broker's two sockets.

use crate::device::OpenError;
use baton_abi::control::{
    Event, Identity, MAX_PACKET_BYTES, Reply, Request, VERSION, decode, encode,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Mutex;

/// A connection to the broker.
#[derive(Debug)]
pub struct Broker {
    requests: OwnedFd,
    /// Held from a question to its answer.
    question: Mutex<()>,
    events: OwnedFd,
}

impl Broker {
    /// Connects, and introduces the engine with its front page.
    pub fn connect(
        socket: &Path,
        context: &str,
        front: BorrowedFd<'_>,
    ) -> Result<(Broker, Identity), OpenError> {
        let requests = dial(socket)?;
        let hello = Request::Hello { version: VERSION, context: context.to_owned() };
        let failed = |errno| OpenError::System { operation: "talk to the broker", errno };
        send(&requests, &encode(&hello), &[front], SendFlags::empty()).map_err(failed)?;
        let (packet, mut fds) = receive(&requests, RecvFlags::empty()).map_err(failed)?;
        match decode(&packet) {
            Some(Reply::Welcome { identity }) if fds.len() == 1 => {
                let events = fds.remove(0);
                Ok((Broker { requests, question: Mutex::new(()), events }, identity))
            }
            Some(Reply::Refused { errno }) => Err(OpenError::Refused {
                context: context.to_owned(),
                errno: Errno::from_raw_os_error(errno),
            }),
            _ => Err(failed(Errno::PROTO)),
        }
    }

    /// A request and its answer; a refusal is its errno. `ECONNREFUSED` once the broker is gone.
    pub fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        let _question = self.question.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let gone = |_| Errno::CONNREFUSED;
        send(&self.requests, &encode(request), &[], SendFlags::empty()).map_err(gone)?;
        let (packet, _) = receive(&self.requests, RecvFlags::empty()).map_err(gone)?;
        match decode(&packet) {
            Some(Reply::Refused { errno }) => Err(Errno::from_raw_os_error(errno)),
            Some(reply) => Ok(reply),
            None => Err(Errno::CONNREFUSED),
        }
    }

    /// A request without an answer. Lost with the broker if that is gone.
    pub fn tell(&self, request: &Request) {
        let _ = send(&self.requests, &encode(request), &[], SendFlags::empty());
    }

    /// The next event, if there is one. `Err` once the broker is gone.
    pub fn next_event(&self) -> Result<Option<(Event, Vec<OwnedFd>)>, Errno> {
        let (packet, fds) = match receive(&self.events, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => return Ok(None),
            other => other?,
        };
        decode(&packet).map(|event| Some((event, fds))).ok_or(Errno::PROTO)
    }

    /// To poll for events.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// To be closed in a child of fork.
    pub fn sockets(&self) -> [BorrowedFd<'_>; 2] {
        [self.requests.as_fd(), self.events.as_fd()]
    }
}

/// Connects to the broker's socket, and makes sure of who listens: its directory may be one that
/// anybody can make, and whoever listens there could tell this process anything.
pub fn dial(socket: &Path) -> Result<OwnedFd, OpenError> {
    let system = |operation| move |errno| OpenError::System { operation, errno };
    let fd = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(system("socket"))?;
    let address = SocketAddrUnix::new(socket).map_err(system("the broker's socket path"))?;
    rustix::net::connect(&fd, &address)
        .map_err(|errno| OpenError::NoBroker { socket: socket.display().to_string(), errno })?;
    let listener = rustix::net::sockopt::socket_peercred(&fd).map_err(system("SO_PEERCRED"))?.uid;
    if !listener.is_root() && listener != rustix::process::geteuid() {
        let (socket, uid) = (socket.display().to_string(), listener.as_raw());
        return Err(OpenError::Stranger { socket, uid });
    }
    Ok(fd)
}

/// Sends one packet with descriptors; `flags` say whether it waits for room.
pub fn send(
    socket: impl AsFd,
    packet: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(fds.len()))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let slices = [IoSlice::new(packet)];
    loop {
        match rustix::net::sendmsg(&socket, &slices, &mut ancillary, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Receives one packet with its descriptors, which are close-on-exec. The end is `ECONNRESET`.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    let (bytes, fds) = receive_into(socket, &mut packet, 4, flags)?;
    packet.truncate(bytes);
    Ok((packet, fds))
}

/// Receives one packet into `packet`, with up to `max_fds` descriptors. `EMFILE` if some of the
/// descriptors could not be installed: those that could are closed again.
pub fn receive_into(
    socket: impl AsFd,
    packet: &mut [u8],
    max_fds: usize,
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(max_fds))];
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
    if message.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    if message.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    Ok((message.bytes, fds))
}
