//! A broker in a thread, and engines that are nothing but the control protocol.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

use baton_abi::claim::Claim;
use baton_abi::control::*;
pub use baton_broker::{Config, Running};
use baton_hostile::engine;
pub use baton_hostile::engine::{BareEngine, connect, send};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// One packet; `None` at the end of the connection.
pub fn receive(socket: impl AsFd) -> Option<engine::Packet> {
    match engine::receive(socket) {
        Err(Errno::CONNRESET) => None,
        received => Some(received.unwrap()),
    }
}

pub fn front_page() -> OwnedFd {
    engine::front_page().unwrap()
}

pub fn tally_page() -> OwnedFd {
    engine::tally_page().unwrap()
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
    engine::observe(path).unwrap()
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

/// An engine whose failures are the test's.
pub struct Fake(pub BareEngine);

impl Deref for Fake {
    type Target = BareEngine;

    fn deref(&self) -> &BareEngine {
        &self.0
    }
}

impl Fake {
    pub fn open(path: &Path, context: &str) -> Result<Fake, Errno> {
        BareEngine::open(path, context).map(Fake)
    }

    /// This engine at the next broker, before its claims.
    pub fn resume(self, path: &Path) -> Result<Fake, Errno> {
        self.0.resume(path).map(Fake)
    }

    /// With a credential that may be another's.
    pub fn resume_as(self, path: &Path, credential: Vec<u8>) -> Result<Fake, Errno> {
        self.0.resume_as(path, credential).map(Fake)
    }

    pub fn tell(&self, request: Request) {
        self.0.tell(&request).unwrap();
    }

    /// All that it had, in one go.
    pub fn rejoin(&self, claims: &[Claim], manages: &[(NodeId, u32)]) {
        self.tell(Request::Claim { claims: claims.to_vec() });
        self.tell(Request::Rejoin { manages: manages.to_vec() });
    }

    /// `None` if the broker closed the connection instead of answering.
    pub fn ask(&self, request: Request) -> Option<Reply> {
        ask(&self.requests, &request)
    }

    pub fn event(&self) -> Event {
        self.event_with_descriptors().0
    }

    /// The next event, if it is there already.
    pub fn event_now(&self) -> Option<Event> {
        self.0.event_now().ok().map(|(event, _)| event)
    }

    pub fn event_with_descriptors(&self) -> (Event, Vec<OwnedFd>) {
        self.0.event().expect("the event stream goes on")
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
