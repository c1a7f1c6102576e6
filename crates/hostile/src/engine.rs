//! An engine that speaks the control protocol and nothing else. It presents itself like an engine
//! and sends any request.
//!
//! The engine has no thread and no state. So it can do what no honest engine does: leave its events
//! unread, name objects that it does not have, and send requests at any time.

use crate::channel::BareChannel;
use crate::packet::PATIENCE;
use baton_abi::control::*;
use baton_abi::holder_list::{self, Entry, Holding, TALLY_FILE_BYTES};
use baton_abi::lane::{Carried, Origin, STATUS_BYTES};
use baton_shm::mapping::{self, Access, Mapping};
use bytemuck::cast_slice;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::path::Path;
use std::sync::Arc;

pub use crate::packet::{MAX_DESCRIPTORS, connect, receive, receive_now, send, send_now};

/// Number of channels that this engine claims to have descriptors for.
pub const CHANNELS: u32 = 4096;

/// Sends a request with descriptors. Returns the reply and its descriptors.
pub fn greet(
    socket: impl AsFd,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(Reply, Vec<OwnedFd>), Errno> {
    send(&socket, &encode(request), descriptors)?;
    let (bytes, descriptors) = receive(&socket)?;
    Ok((decode(&bytes).ok_or(Errno::PROTO)?, descriptors))
}

/// Connects as an observer.
pub fn observe(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = connect(path)?;
    match greet(&socket, &Request::Observe { version: VERSION }, &[])? {
        (Reply::Done, _) => Ok(socket),
        (Reply::Refused { errno }, _) => Err(Errno::from_raw_os_error(errno)),
        _ => Err(Errno::PROTO),
    }
}

/// Creates the file of a status page. Errors are the system's.
pub fn status_page() -> Result<OwnedFd, Errno> {
    mapping::create("status", STATUS_BYTES)
}

/// Creates the file of a tally page and a holder list. Errors are the system's.
pub fn tally_page() -> Result<OwnedFd, Errno> {
    mapping::create("tally", TALLY_FILE_BYTES)
}

/// An engine without threads and state.
pub struct BareEngine {
    /// Socket for requests.
    pub requests: OwnedFd,
    /// Socket for events.
    pub events: OwnedFd,
    /// The broker's identity of this engine.
    pub identity: Identity,
    /// The engine's status page.
    pub status_page: Arc<Mapping<STATUS_BYTES>>,
    /// The files of the engine's status page and tally page.
    pub pages: [OwnedFd; 2],
    /// The broker's era.
    pub era: u32,
    /// The credential for the next broker.
    pub credential: Vec<u8>,
}

impl BareEngine {
    /// Opens a context. The error is the broker's refusal, or `ECONNRESET` if it closes the
    /// connection.
    pub fn open(path: &Path, context: &str) -> Result<BareEngine, Errno> {
        BareEngine::open_on(connect(path)?, context)
    }

    /// Opens a context on an existing connection, which may belong to another process.
    pub fn open_on(requests: OwnedFd, context: &str) -> Result<BareEngine, Errno> {
        let channels = CHANNELS;
        let hello = Request::Hello {
            version: VERSION,
            context: context.to_owned(),
            channels,
            connection: 0,
        };
        let file = status_page()?;
        let mapped = Arc::new(Mapping::new(&file, Access::ReadWrite)?);
        BareEngine::greet_with(requests, &hello, mapped, [file, tally_page()?])
    }

    /// Reconnects this engine to the next broker, without its claims.
    pub fn resume(&self, path: &Path) -> Result<BareEngine, Errno> {
        self.resume_as(path, self.credential.clone())
    }

    /// Reconnects this engine to the next broker, with a credential that may be another engine's.
    pub fn resume_as(&self, path: &Path, credential: Vec<u8>) -> Result<BareEngine, Errno> {
        self.resume_on(connect(path)?, credential)
    }

    /// Like [`BareEngine::resume_as`], on an existing connection.
    pub fn resume_on(&self, requests: OwnedFd, credential: Vec<u8>) -> Result<BareEngine, Errno> {
        let resume =
            Request::Resume { version: VERSION, credential, channels: CHANNELS, connection: 0 };
        let copy = |file: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(file, 0);
        let pages = [copy(&self.pages[0])?, copy(&self.pages[1])?];
        BareEngine::greet_with(requests, &resume, Arc::clone(&self.status_page), pages)
    }

    /// Shuts down the engine's connection, even if other processes share the sockets.
    pub fn hang_up(&self) {
        for socket in [&self.requests, &self.events] {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }

    fn greet_with(
        requests: OwnedFd,
        greeting: &Request,
        status_page: Arc<Mapping<STATUS_BYTES>>,
        pages: [OwnedFd; 2],
    ) -> Result<BareEngine, Errno> {
        let carried = pages.each_ref().map(AsFd::as_fd);
        let (reply, mut descriptors) = greet(&requests, greeting, &carried)?;
        match reply {
            Reply::Welcome { identity, era, credential, .. } => {
                let events = descriptors.pop().ok_or(Errno::PROTO)?;
                sockopt::set_socket_timeout(&events, sockopt::Timeout::Recv, Some(PATIENCE))?;
                Ok(BareEngine { requests, events, identity, status_page, pages, era, credential })
            }
            Reply::Refused { errno } => Err(Errno::from_raw_os_error(errno)),
            _ => Err(Errno::PROTO),
        }
    }

    /// The broker's id of this engine.
    pub fn id(&self) -> ProcessId {
        self.identity.process
    }

    /// Sends a request that has no reply.
    pub fn tell(&self, request: &Request) -> Result<(), Errno> {
        send(&self.requests, &encode(request), &[])
    }

    /// Sends a request and returns the reply. `ECONNRESET` if the broker closes the connection
    /// instead.
    pub fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        greet(&self.requests, request, &[]).map(|(reply, _)| reply)
    }

    /// Sends a request and returns the reply. The error is the broker's refusal.
    pub fn must(&self, request: &Request) -> Result<Reply, Errno> {
        match self.ask(request)? {
            Reply::Refused { errno } => Err(Errno::from_raw_os_error(errno)),
            reply => Ok(reply),
        }
    }

    /// Waits for the next event and its descriptors.
    pub fn event(&self) -> Result<(Event, Vec<OwnedFd>), Errno> {
        let (bytes, descriptors) = receive(&self.events)?;
        Ok((decode(&bytes).ok_or(Errno::PROTO)?, descriptors))
    }

    /// The next event and its descriptors. `EAGAIN` if none has arrived.
    pub fn event_now(&self) -> Result<(Event, Vec<OwnedFd>), Errno> {
        let (bytes, descriptors) = receive_now(&self.events)?;
        Ok((decode(&bytes).ok_or(Errno::PROTO)?, descriptors))
    }

    /// Discards every event that has arrived.
    pub fn skip_events(&self) {
        while receive_now(&self.events).is_ok() {}
    }

    /// Gets a reference to the context's manager and returns its process. Discards earlier events.
    pub fn manager(&self) -> Result<ProcessId, Errno> {
        self.manager_node().map(|(owner, _)| owner)
    }

    /// Gets a reference to the context's manager and returns its process and node.
    pub fn manager_node(&self) -> Result<(ProcessId, NodeId), Errno> {
        self.must(&Request::ContextManager)?;
        loop {
            if let (Event::Ticket { from: ProcessId::BROKER, objects, .. }, _) = self.event()?
                && let Some(Granted { owner, node, .. }) = objects.first()
            {
                return Ok((*owner, *node));
            }
        }
    }

    /// Writes an entry of this engine's holder list. `None` frees it. `EINVAL` for an entry out of
    /// bounds.
    pub fn list(&self, entry: u32, holding: Option<Holding>) -> Result<(), Errno> {
        self.list_all(entry, &[holding.map_or_else(Entry::default, Entry::of)])
    }

    /// Writes entries of this engine's holder list from `first` on. `EINVAL` for an entry out of
    /// bounds.
    pub fn list_all(&self, first: u32, entries: &[Entry]) -> Result<(), Errno> {
        let at = holder_list::entry_at(first).ok_or(Errno::INVAL)?;
        rustix::io::pwrite(&self.pages[1], cast_slice(entries), at as u64).map(drop)
    }

    /// Lets this engine grant a node itself, by an entry of its holder list. Returns the node as
    /// the holder passes it on.
    pub fn grant(&self, entry: u32, node: NodeId, holder: ProcessId) -> Result<HeldNode, Errno> {
        let strength = Strength::Strong;
        self.list(entry, Some(Holding { holder, node, flags: 0, strength }))?;
        Ok(HeldNode { owner: self.id(), node, strength, entry: Some(entry) })
    }

    /// Grants a node like [`BareEngine::grant`]. Returns the node as a message carries it to the
    /// holder.
    pub fn carry(&self, entry: u32, node: NodeId, holder: ProcessId) -> Result<Carried, Errno> {
        self.grant(entry, node, holder).map(|_| carried(entry, node))
    }

    /// Introduces a process with which this engine has a channel to owners of nodes.
    pub fn introduce(&self, target: ProcessId, objects: Vec<HeldNode>) -> Result<TicketId, Errno> {
        match self.must(&Request::Introduce { target, objects })? {
            Reply::Ticket { ticket } => Ok(ticket),
            _ => Err(Errno::PROTO),
        }
    }

    /// Opens a channel to the context's manager, or to a process of which the broker has given this
    /// engine a node. Discards earlier events.
    pub fn channel_to(&self, target: ProcessId) -> Result<BareChannel, Errno> {
        self.channel_by(target, None)
    }

    /// Opens a channel to a process of which this engine has a node by an entry of that process's
    /// holder list. Discards earlier events.
    pub fn channel_by(&self, target: ProcessId, entry: Option<u32>) -> Result<BareChannel, Errno> {
        self.must(&Request::OpenChannel { target, entry })?;
        loop {
            let (event, descriptors) = self.event()?;
            if let Event::Channel { channel, end: End::Client, peer } = event {
                return BareChannel::map((channel, End::Client, peer.process), descriptors);
            }
        }
    }
}

/// A node of the sender's own, as a message carries it whose receiver has this entry.
pub fn carried(entry: u32, node: NodeId) -> Carried {
    let (node, origin, strong) = (node.0, Origin::Sender as u32, 1);
    Carried { node, entry, flags: 0, origin, strong }
}
