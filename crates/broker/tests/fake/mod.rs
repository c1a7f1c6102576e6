//! A broker in a thread, and engines that are nothing but the control protocol.

#![allow(dead_code, reason = "each test program uses its part")]

use baton_abi::claim::Claim;
use baton_abi::control::*;
use baton_abi::lane::{FRONT_BYTES, TALLY_BYTES};
pub use baton_broker::{Config, Running};
use baton_shm::mapping::{self, Mapping};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::*;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A directory of this test's own.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("baton-test-{}-{number}", std::process::id());
        Directory(std::env::temp_dir().join(name))
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("broker.sock")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The first page, which is the only one of a few processes.
pub const REPORT: Request =
    Request::Report { from: Cursor { process: 0, part: Part::Process, after: 0 } };

/// A connection that has said nothing.
pub fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    patient(&socket);
    Ok(socket)
}

/// A failing test ends instead of hanging.
fn patient(socket: impl AsFd) {
    let timeout = Some(Duration::from_secs(60));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout).unwrap();
}

pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

/// One packet; `None` at the end of the connection.
pub fn receive(socket: impl AsFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
        Ok(received) => received.bytes,
        Err(Errno::CONNRESET) => 0,
        Err(errno) => panic!("receive: {errno}"),
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(these) = message {
            descriptors.extend(these);
        }
    }
    bytes.truncate(received);
    (received > 0).then_some((bytes, descriptors))
}

pub fn front_page() -> OwnedFd {
    mapping::create("front", FRONT_BYTES).unwrap()
}

pub fn tally_page() -> OwnedFd {
    mapping::create("tally", TALLY_BYTES).unwrap()
}

/// Greets with whatever is given; the reply, if there is one.
pub fn greet(
    socket: impl AsFd,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
) -> Option<(Reply, Vec<OwnedFd>)> {
    send(&socket, &encode(request), descriptors).unwrap();
    receive(&socket).map(|(bytes, descriptors)| (decode(&bytes).unwrap(), descriptors))
}

/// A connection of an observer.
pub fn observe(path: &Path) -> OwnedFd {
    let socket = connect(path).unwrap();
    assert_eq!(ask(&socket, &Request::Observe { version: VERSION }), Some(Reply::Done));
    socket
}

/// A reply, or `None` if the broker closed the connection instead.
pub fn ask(socket: impl AsFd, request: &Request) -> Option<Reply> {
    greet(socket, request, &[]).map(|(reply, _)| reply)
}

/// A listening socket of a test's own.
pub fn listen(path: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    socket
}

pub struct Fake {
    pub requests: OwnedFd,
    pub events: OwnedFd,
    pub identity: Identity,
    pub front: Mapping<FRONT_BYTES>,
    /// The files of its front page and its tally page.
    pub pages: [OwnedFd; 2],
    pub era: u32,
    pub card: Vec<u8>,
}

impl Fake {
    pub fn open(path: &Path, context: &str) -> Result<Fake, Errno> {
        let file = front_page();
        let front = Mapping::<FRONT_BYTES>::new(&file, mapping::Access::ReadWrite).unwrap();
        let hello = Request::Hello { version: VERSION, context: context.into(), channels: 4096 };
        Fake::greet_with(path, &hello, front, [file, tally_page()])
    }

    /// The same engine at the next broker. It has yet to make its claims.
    pub fn resume(self, path: &Path) -> Result<Fake, Errno> {
        let card = self.card.clone();
        self.resume_as(path, card)
    }

    /// With a card that may be another's.
    pub fn resume_as(self, path: &Path, card: Vec<u8>) -> Result<Fake, Errno> {
        let resume = Request::Resume { version: VERSION, card, channels: 4096 };
        Fake::greet_with(path, &resume, self.front, self.pages)
    }

    fn greet_with(
        path: &Path,
        greeting: &Request,
        front: Mapping<FRONT_BYTES>,
        pages: [OwnedFd; 2],
    ) -> Result<Fake, Errno> {
        let requests = connect(path)?;
        let (reply, mut descriptors) =
            greet(&requests, greeting, &pages.each_ref().map(AsFd::as_fd))
                .ok_or(Errno::CONNRESET)?;
        match reply {
            Reply::Welcome { identity, era, card, .. } => {
                let events = descriptors.pop().expect("a welcome carries the event socket");
                patient(&events);
                Ok(Fake { requests, events, identity, front, pages, era, card })
            }
            Reply::Refused { errno } => Err(Errno::from_raw_os_error(errno)),
            other => panic!("{other:?}"),
        }
    }

    pub fn id(&self) -> ProcessId {
        self.identity.process
    }

    pub fn tell(&self, request: Request) {
        send(&self.requests, &encode(&request), &[]).unwrap();
    }

    /// All that it had, in one go.
    pub fn rejoin(&self, claims: &[Claim], manages: &[(NodeId, u32)]) {
        self.tell(Request::Claim { claims: claims.to_vec() });
        self.tell(Request::Rejoin { manages: manages.to_vec() });
    }

    /// `None` if the broker closed the connection instead of answering.
    pub fn ask(&self, request: Request) -> Option<Reply> {
        self.tell(request);
        receive(&self.requests).map(|(bytes, _)| decode(&bytes).unwrap())
    }

    pub fn event(&self) -> Event {
        self.event_with_descriptors().0
    }

    /// The next event, if it is there already.
    pub fn event_now(&self) -> Option<Event> {
        let mut bytes = vec![0; MAX_PACKET_BYTES];
        let (length, _) = recv(&self.events, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
        decode(&bytes[..length])
    }

    pub fn event_with_descriptors(&self) -> (Event, Vec<OwnedFd>) {
        let (bytes, descriptors) = receive(&self.events).expect("the event stream ended");
        (decode(&bytes).unwrap(), descriptors)
    }

    /// Every event that was caused before now.
    pub fn events(&self) -> Vec<Event> {
        self.tell(Request::Barrier { number: 77 });
        let barrier = Event::Barrier { number: 77 };
        std::iter::from_fn(|| Some(self.event()).filter(|event| *event != barrier)).collect()
    }

    pub fn is_disconnected(&self) -> bool {
        receive(&self.requests).is_none()
    }
}

/// A manager of a context, and a client with a channel to it and handle 0; no events left.
pub fn manager_and_client(path: &Path) -> (Fake, Fake) {
    let manager = Fake::open(path, "binder").unwrap();
    let become_manager = Request::BecomeContextManager { node: NodeId(1), flags: 0 };
    assert_eq!(manager.ask(become_manager), Some(Reply::Done));
    let client = Fake::open(path, "binder").unwrap();
    assert!(matches!(client.ask(Request::ContextManager), Some(Reply::Ticket { .. })));
    let open = Request::OpenChannel { target: manager.id() };
    assert_eq!(client.ask(open), Some(Reply::Done));
    manager.events();
    client.events();
    (manager, client)
}
