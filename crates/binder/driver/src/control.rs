//! The engine's side of the broker's two sockets, and of those of the broker after it.

use crate::device::OpenError;
use baton_abi::control::{
    Event, Identity, MAX_PACKET_BYTES, Reply, Request, Stamps, VERSION, decode, encode,
};
use baton_shm::blocking::{before_read, before_write, pause};
use baton_shm::lock::Lock;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::process::Uid;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The broker, whichever it is: when one dies, the control thread finds the next.
#[derive(Debug)]
pub struct Broker {
    place: PathBuf,
    /// The engine's status page and tally page, for the next one.
    pages: [OwnedFd; 2],
    /// Whose broker it is: the next one is to be the same user's.
    uid: Uid,
    /// What proves to the next one who we are.
    credential: Vec<u8>,
    /// What messages are stamped with.
    pub stamps: Stamps,
    link: Lock<Arc<Link>>,
}

/// A connection to one broker.
#[derive(Debug)]
pub struct Link {
    /// The broker's.
    pub era: u32,
    /// Requests, events. None once the engine looks for another broker, which needs two numbers.
    sockets: Option<[OwnedFd; 2]>,
    /// Held from a question to its answer.
    question: Lock<()>,
    lost: AtomicBool,
}

/// The broker's end of the connection is closed, or what it says is no protocol.
#[derive(Debug)]
pub struct Gone;

/// One packet. The packet always arrives; its descriptors may not.
#[derive(Debug)]
pub struct Packet {
    /// How long it is.
    pub bytes: usize,
    /// Its descriptors, close-on-exec. `EMFILE` if the process has no room for all of them: those
    /// that came are closed again, the others are lost.
    pub fds: Result<Vec<OwnedFd>, Errno>,
}

/// Pause after a failure of the system's that passes.
const PAUSE: Duration = Duration::from_millis(1);
/// Attempts at a request that has no answer, one pause apart.
const ATTEMPTS: u32 = 1000;

/// What came of a greeting to the next broker.
#[derive(Debug)]
pub enum Greeting {
    /// There is none yet, or it is gone again.
    Later,
    /// It will not have us back.
    Refused(Errno),
    /// It knows us again, and waits for our claims.
    Welcome(Link),
}

impl Broker {
    /// Connects, and introduces the engine with its status page and its tally page.
    pub fn connect(
        socket: &Path,
        context: &str,
        pages: [OwnedFd; 2],
    ) -> Result<(Broker, Identity), OpenError> {
        let requests = dial(socket)?;
        let channels = channels();
        let hello = Request::Hello { version: VERSION, context: context.to_owned(), channels };
        let failed = |errno| OpenError::System { operation: "talk to the broker", errno };
        let carried = pages.each_ref().map(AsFd::as_fd);
        send(&requests, &encode(&hello), &carried, SendFlags::empty()).map_err(failed)?;
        let uid = sockopt::socket_peercred(&requests).map_err(failed)?.uid;
        let (packet, fds) = receive_patiently(&requests).map_err(failed)?;
        match decode(&packet) {
            Some(Reply::Welcome { identity, era, credential, stamps }) => {
                let mut fds = fds.map_err(failed)?.into_iter();
                let events = fds.next().ok_or(failed(Errno::PROTO))?;
                let link = Lock::new(Arc::new(Link::new(era, requests, events)));
                // The program may go to another directory.
                let place = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
                Ok((Broker { place, pages, uid, credential, stamps, link }, identity))
            }
            Some(Reply::Refused { errno }) => Err(OpenError::Refused {
                context: context.to_owned(),
                errno: Errno::from_raw_os_error(errno),
            }),
            _ => Err(failed(Errno::PROTO)),
        }
    }

    /// The connection of this moment, dead or alive.
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link.lock())
    }

    /// As [`Link::ask`].
    pub fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        self.link().ask(request)
    }

    /// As [`Link::tell`].
    pub fn tell(&self, request: &Request) {
        self.link().tell(request);
    }

    /// Greets the next broker without waiting for it. The answer comes on this socket.
    pub fn greet_next(&self) -> Result<OwnedFd, Errno> {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&self.place)?)?;
        note_connection();
        if sockopt::socket_peercred(&socket)?.uid != self.uid {
            return Err(Errno::PERM);
        }
        let (credential, channels) = (self.credential.clone(), channels());
        let resume = Request::Resume { version: VERSION, credential, channels };
        let carried = self.pages.each_ref().map(AsFd::as_fd);
        send(&socket, &encode(&resume), &carried, SendFlags::empty())?;
        Ok(socket)
    }

    /// What the next broker has answered.
    pub fn hear_next(&self, socket: OwnedFd) -> Greeting {
        // Without room for the event socket this process is not welcome yet.
        let Ok((packet, Ok(fds))) = receive(&socket, RecvFlags::DONTWAIT) else {
            return Greeting::Later;
        };
        match (decode(&packet), fds.into_iter().next()) {
            (Some(Reply::Welcome { era, .. }), Some(events)) => {
                match rustix::io::ioctl_fionbio(&socket, false) {
                    Ok(()) => Greeting::Welcome(Link::new(era, socket, events)),
                    Err(_) => Greeting::Later,
                }
            }
            (Some(Reply::Refused { errno }), _) => {
                match Errno::from_raw_os_error(errno) {
                    // It has not seen yet that an earlier attempt of ours is over.
                    Errno::BUSY => Greeting::Later,
                    errno if passes(errno) => Greeting::Later,
                    errno => Greeting::Refused(errno),
                }
            }
            _ => Greeting::Refused(Errno::PROTO),
        }
    }

    /// From now on this is the broker.
    pub fn replace(&self, link: Arc<Link>) {
        *self.link.lock() = link;
    }

    /// In a child of fork, where a thread that is not there may hold the lock.
    pub fn link_in_child(&self) -> Option<Arc<Link>> {
        self.link.try_lock().map(|link| Arc::clone(&link))
    }
}

impl Link {
    fn new(era: u32, requests: OwnedFd, events: OwnedFd) -> Link {
        let (question, lost) = (Lock::new(()), AtomicBool::new(false));
        Link { era, sockets: Some([requests, events]), question, lost }
    }

    /// What stands in a lost broker's place until the next one has come.
    pub fn none(era: u32) -> Link {
        Link { era, sockets: None, question: Lock::new(()), lost: AtomicBool::new(true) }
    }

    fn requests(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.sockets.as_ref().map(|[requests, _]| requests.as_fd()).ok_or(Errno::CONNREFUSED)
    }

    /// A request and its answer; a refusal is its errno. `ECONNREFUSED` once the broker is gone;
    /// `ENOMEM` and its like if the request could not be sent.
    pub fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        let _question = self.question.lock();
        let requests = self.requests()?;
        let gone = |errno| if passes(errno) { errno } else { Errno::CONNREFUSED };
        send(requests, &encode(request), &[], SendFlags::empty()).map_err(gone)?;
        let (packet, _) = receive_patiently(requests).map_err(|_| Errno::CONNREFUSED)?;
        match decode(&packet) {
            Some(Reply::Refused { errno }) => Err(Errno::from_raw_os_error(errno)),
            Some(reply) => Ok(reply),
            None => Err(Errno::CONNREFUSED),
        }
    }

    /// A request without an answer. Lost with the broker if that is gone: false.
    pub fn tell(&self, request: &Request) -> bool {
        let Ok(requests) = self.requests() else { return false };
        let packet = encode(request);
        for _ in 0..ATTEMPTS {
            match send(requests, &packet, &[], SendFlags::empty()) {
                Err(errno) if passes(errno) => pause(PAUSE),
                outcome => return outcome.is_ok(),
            }
        }
        false
    }

    /// The next event with its descriptors, if there is one.
    #[expect(clippy::type_complexity, reason = "an event, and what came of its descriptors")]
    pub fn next_event(&self) -> Result<Option<(Event, Result<Vec<OwnedFd>, Errno>)>, Gone> {
        let events = self.events().ok_or(Gone)?;
        match receive(events, RecvFlags::DONTWAIT) {
            Ok((packet, fds)) => decode(&packet).map(|event| Some((event, fds))).ok_or(Gone),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) if passes(errno) => {
                // The event stays where it is.
                pause(PAUSE);
                Ok(None)
            }
            Err(_) => Err(Gone),
        }
    }

    /// Its last event has been taken, and nothing can be asked any more: the broker, if it lives,
    /// sees so and can take this process back. True the first time.
    pub fn set_lost(&self) -> bool {
        let is_first = !self.lost.swap(true, Ordering::SeqCst);
        if is_first {
            self.shut_down();
        }
        is_first
    }

    /// Whether [`Link::set_lost`] was called.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// To poll for events, as long as there are any.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(|[_, events]| events.as_fd())
    }

    /// To be closed in a child of fork.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().flatten().map(AsFd::as_fd)
    }

    /// The process is no more.
    pub fn shut_down(&self) {
        for socket in self.sockets() {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

/// Whether a failure says nothing of the connection: the system lacks memory or descriptors for
/// now.
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

/// Channels for which this process has descriptors as server: two for each, of half the table.
fn channels() -> u32 {
    u32::try_from(descriptors() / 4).unwrap_or(u32::MAX)
}

/// How many descriptors this process may have at this moment.
pub fn descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.unwrap_or(u64::MAX)
}

/// The broker of a simulated machine hears so who has connected.
fn note_connection() {
    #[cfg(simulated)]
    if let Some(machine) = baton_shm::simulation::machine() {
        machine.note_connection();
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
    note_connection();
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
        if !flags.contains(SendFlags::DONTWAIT) {
            before_write(&socket);
        }
        match rustix::net::sendmsg(&socket, &slices, &mut ancillary, flags | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// What a packet holds, and its descriptors as in [`Packet`].
pub type Received = (Vec<u8>, Result<Vec<OwnedFd>, Errno>);

/// Receives one packet with its descriptors. The end is `ECONNRESET`.
fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Received, Errno> {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    let Packet { bytes, fds } = receive_into(socket, &mut packet, 4, flags)?;
    packet.truncate(bytes);
    Ok((packet, fds))
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

/// Receives one packet into `packet`, with up to `max_fds` descriptors.
pub fn receive_into(
    socket: impl AsFd,
    packet: &mut [u8],
    max_fds: usize,
    flags: RecvFlags,
) -> Result<Packet, Errno> {
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
    if message.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    let is_cut = message.flags.contains(rustix::net::ReturnFlags::CTRUNC);
    Ok(Packet { bytes: message.bytes, fds: if is_cut { Err(Errno::MFILE) } else { Ok(fds) } })
}
