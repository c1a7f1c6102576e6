//! A party without an engine, on the bare protocol: it says and sends whatever it likes.
#![allow(dead_code, reason = "each test has a use for a part of it")]

use baton_abi::control::*;
use baton_abi::holder_list::TALLY_FILE_BYTES;
use baton_abi::lane::STATUS_BYTES;
use baton_shm::mapping;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::*;
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;

pub struct Stranger {
    requests: OwnedFd,
    events: OwnedFd,
    pub manager: ProcessId,
    pub node: NodeId,
    /// The channel that came with the manager, until it is used.
    first: Cell<Option<Line>>,
}

/// One of its channels, as client.
pub struct Line {
    pub id: ChannelId,
    pub file: OwnedFd,
    pub socket: OwnedFd,
    pub descriptors: OwnedFd,
}

impl Stranger {
    /// Joins a context that somebody manages.
    pub fn join(broker: &Path) -> Stranger {
        let kind = SocketType::SEQPACKET;
        let requests = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        connect(&requests, &SocketAddrUnix::new(broker).unwrap()).unwrap();
        let pages = [("front", STATUS_BYTES), ("tally", TALLY_FILE_BYTES)]
            .map(|(name, bytes)| mapping::create(name, bytes).unwrap());
        let hello = Request::Hello {
            version: VERSION,
            context: "binder".into(),
            channels: 4096,
            connection: 0,
        };
        let carried = pages.each_ref().map(AsFd::as_fd);
        send_with(&requests, &encode(&hello), &carried).unwrap();
        let (_, fds) = receive(&requests, RecvFlags::empty()).expect("a welcome");
        let events = fds.into_iter().next().expect("its events");
        let (manager, node) = (ProcessId::BROKER, NodeId(0));
        let first = Cell::default();
        let mut stranger = Stranger { requests, events, manager, node, first };
        let Some(Reply::Ticket { .. }) = stranger.ask(&Request::ContextManager) else {
            panic!("nobody manages the context")
        };
        let (event, _) = stranger.event_that(|event| matches!(event, Event::Ticket { .. }));
        let Event::Ticket { objects, .. } = event else { unreachable!("just matched") };
        let [Granted { owner, node, .. }] = objects[..] else { panic!("{objects:?}") };
        (stranger.manager, stranger.node) = (owner, node);
        // If there is one, its event was sent before the reply.
        if let Some((packet, fds)) = receive(&stranger.events, RecvFlags::DONTWAIT)
            && let Some(Event::Channel { channel, .. }) = decode(&packet)
        {
            stranger.first.set(Some(Line::of(channel, fds)));
        }
        stranger
    }

    pub fn tell(&self, request: &Request) {
        send_with(&self.requests, &encode(request), &[]).unwrap();
    }

    pub fn ask(&self, request: &Request) -> Option<Reply> {
        self.tell(request);
        decode(&receive(&self.requests, RecvFlags::empty())?.0)
    }

    /// The next event of a kind; what comes before it is dropped.
    pub fn event_that(&self, wanted: impl Fn(&Event) -> bool) -> (Event, Vec<OwnedFd>) {
        loop {
            let (packet, fds) = receive(&self.events, RecvFlags::empty()).expect("a broker");
            let event = decode(&packet).expect("an event");
            if wanted(&event) {
                return (event, fds);
            }
        }
    }

    /// The events that it has been told by now. What comes with them is lost.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        let mut packet = vec![0; MAX_PACKET_BYTES];
        std::iter::from_fn(move || {
            let (bytes, _) = recv(&self.events, &mut packet[..], RecvFlags::DONTWAIT).ok()?;
            decode(&packet[..bytes])
        })
    }

    /// A channel to the manager. `None` if the broker refuses it.
    pub fn open_channel(&self) -> Option<Line> {
        if let Some(line) = self.first.take() {
            return Some(line);
        }
        match self.ask(&Request::OpenChannel { target: self.manager, entry: None }) {
            Some(Reply::Done) => {}
            _ => return None,
        }
        let (event, fds) = self.event_that(|event| matches!(event, Event::Channel { .. }));
        let Event::Channel { channel, .. } = event else { unreachable!("just matched") };
        Some(Line::of(channel, fds))
    }
}

impl Line {
    fn of(id: ChannelId, fds: Vec<OwnedFd>) -> Line {
        let mut fds = fds.into_iter();
        let mut next = || fds.next().expect("memory and two sockets");
        let (file, socket, descriptors) = (next(), next(), next());
        Line { id, file, socket, descriptors }
    }

    /// Says that so many descriptors come as the packet of this number, and sends these.
    pub fn send(&self, number: u32, count: u32, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let message = [number.to_ne_bytes(), count.to_ne_bytes()].concat();
        send_with(&self.descriptors, &message, fds)
    }

    /// Whether the server has hung up.
    pub fn is_over(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).unwrap() > 0
    }
}

/// Sends a packet with descriptors.
pub fn send_with(socket: &OwnedFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(fds.len()))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(packet)], &mut ancillary, flags).map(drop)
}

/// The next packet and its descriptors. `None` after the last one, or if none has come and `flags`
/// say not to wait.
pub fn receive(socket: &OwnedFd, flags: RecvFlags) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut packet)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let bytes = recvmsg(socket, &mut into, &mut ancillary, flags).ok()?.bytes;
    let mut fds = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    packet.truncate(bytes);
    (bytes > 0).then_some((packet, fds))
}
