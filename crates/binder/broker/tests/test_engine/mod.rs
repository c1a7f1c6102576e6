//! Engines that speak the control protocol and nothing else, for tests with a real broker on a
//! thread.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

use baton_abi::claim::Claim;
use baton_abi::control::*;
use baton_abi::holder_list::Holding;
pub use baton_broker::{Config, Running};
pub use baton_hostile::engine::BareEngine;
pub use baton_hostile::packet::{connect, send};
use baton_hostile::{engine, packet};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory for one test, removed at its end.
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

/// Asks for the first page of a report, which is the only one where there are few processes.
pub const REPORT: Request =
    Request::Report { from: Cursor { process: 0, part: Part::Process, after: (0, 0) } };

/// Receives one packet. `None` at the end of the connection.
pub fn receive(socket: impl AsFd) -> Option<packet::Packet> {
    match packet::receive(socket) {
        Err(Errno::CONNRESET) => None,
        received => Some(received.unwrap()),
    }
}

pub fn status_page() -> OwnedFd {
    engine::status_page().unwrap()
}

pub fn tally_page() -> OwnedFd {
    engine::tally_page().unwrap()
}

/// Sends a greeting with any descriptors. Returns the reply, if there is one.
pub fn greet(
    socket: impl AsFd,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
) -> Option<(Reply, Vec<OwnedFd>)> {
    send(&socket, &encode(request), descriptors).unwrap();
    receive(&socket).map(|(bytes, descriptors)| (decode(&bytes).unwrap(), descriptors))
}

/// Connects as an observer.
pub fn observe(path: &Path) -> OwnedFd {
    engine::observe(path).unwrap()
}

/// Sends a request and returns the reply. `None` if the broker closed the connection instead.
pub fn ask(socket: impl AsFd, request: &Request) -> Option<Reply> {
    greet(socket, request, &[]).map(|(reply, _)| reply)
}

/// A listening socket that belongs to the test.
pub fn listen(path: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    socket
}

/// An engine whose methods panic where the broker does not answer.
pub struct TestEngine(pub BareEngine);

impl Deref for TestEngine {
    type Target = BareEngine;

    fn deref(&self) -> &BareEngine {
        &self.0
    }
}

impl TestEngine {
    pub fn open(path: &Path, context: &str) -> Result<TestEngine, Errno> {
        BareEngine::open(path, context).map(TestEngine)
    }

    /// Reconnects this engine to the next broker, without its claims.
    pub fn resume(self, path: &Path) -> Result<TestEngine, Errno> {
        self.0.resume(path).map(TestEngine)
    }

    /// Like [`TestEngine::resume`], with a credential that may belong to another engine.
    pub fn resume_as(self, path: &Path, credential: Vec<u8>) -> Result<TestEngine, Errno> {
        self.0.resume_as(path, credential).map(TestEngine)
    }

    pub fn tell(&self, request: Request) {
        self.0.tell(&request).unwrap();
    }

    /// Makes all claims at once and ends with them.
    pub fn rejoin(&self, claims: &[Claim], manages: &[(NodeId, u32)]) {
        self.tell(Request::Claim { claims: claims.to_vec() });
        self.tell(Request::Rejoin { manages: manages.to_vec() });
    }

    /// Returns the reply. `None` if the broker closed the connection instead.
    pub fn ask(&self, request: Request) -> Option<Reply> {
        ask(&self.requests, &request)
    }

    pub fn event(&self) -> Event {
        self.event_with_descriptors().0
    }

    /// The next event, if one has arrived.
    pub fn event_now(&self) -> Option<Event> {
        self.0.event_now().ok().map(|(event, _)| event)
    }

    pub fn event_with_descriptors(&self) -> (Event, Vec<OwnedFd>) {
        self.0.event().expect("the event stream goes on")
    }

    /// Every event that was caused before this call.
    pub fn events(&self) -> Vec<Event> {
        self.tell(Request::Barrier { number: 77 });
        let barrier = Event::Barrier { number: 77 };
        std::iter::from_fn(|| Some(self.event()).filter(|event| *event != barrier)).collect()
    }

    pub fn is_disconnected(&self) -> bool {
        receive(&self.requests).is_none()
    }
}

/// Asks for a channel to a process of which the asker holds a node by the broker's grants.
pub fn open(target: &TestEngine) -> Request {
    Request::OpenChannel { target: target.id(), entry: None }
}

/// Lets an owner grant a node itself: writes the entry into its list.
pub fn list(owner: &TestEngine, entry: u32, node: u64, holder: &TestEngine, strength: Strength) {
    let (holder, node) = (holder.id(), NodeId(node));
    owner.list(entry, Some(Holding { holder, node, flags: 0, strength })).unwrap();
}

/// A context's manager, and a client with a grant on its node and a channel to it. No events are
/// left.
pub fn manager_and_client(path: &Path) -> (TestEngine, TestEngine) {
    let manager = TestEngine::open(path, "binder").unwrap();
    let become_manager = Request::BecomeContextManager { node: NodeId(1), flags: 0 };
    assert_eq!(manager.ask(become_manager), Some(Reply::Done));
    let client = TestEngine::open(path, "binder").unwrap();
    // The channel comes with the manager.
    assert!(matches!(client.ask(Request::ContextManager), Some(Reply::Ticket { .. })));
    manager.events();
    client.events();
    (manager, client)
}
