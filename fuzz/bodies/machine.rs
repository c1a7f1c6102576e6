//! A broker in this process, and devices on it. Each run has a context of its own.

use baton_abi::control::{
    Event, Granted, NodeId, ProcessId, Reply, Request, VERSION, decode, encode,
};
use baton_abi::holder_list::TALLY_FILE_BYTES;
use baton_abi::lane::{STATUS_BYTES, status};
use baton_abi::uapi::*;
use baton_broker::{Config, Running, limits::Limits};
use baton_driver::device::Device;
use baton_shm::mapping::{Access, Mapping};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub const MAP_BYTES: usize = 64 << 10;

/// Path of the broker's socket. The broker starts at the first use and ends with the process.
pub fn socket() -> &'static Path {
    static BROKER: OnceLock<Running> = OnceLock::new();
    let broker = BROKER.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory").keep();
        let limits = Limits { contexts: usize::MAX, ..Limits::default() };
        let config = Config { limits, ..Config::at(directory.join("broker.sock")) };
        Running::start(config).expect("a broker")
    });
    broker.socket()
}

/// Connects to the broker.
pub fn dial() -> OwnedFd {
    let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None);
    let fd = fd.expect("a socket");
    rustix::net::connect(&fd, &SocketAddrUnix::new(socket()).expect("short")).expect("a broker");
    fd
}

/// Sends a packet with descriptors.
pub fn send(
    socket: &OwnedFd,
    packet: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let slices = [IoSlice::new(packet)];
    rustix::net::sendmsg(socket, &slices, &mut ancillary, flags | SendFlags::NOSIGNAL).map(drop)
}

/// Receives a message, if it is valid, with its descriptors.
fn receive<T: serde::de::DeserializeOwned>(
    socket: &OwnedFd,
    flags: RecvFlags,
) -> Option<(T, Vec<OwnedFd>)> {
    let mut packet = vec![0; baton_abi::control::MAX_PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut packet)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    // libFuzzer's timer interrupts the call.
    let received = || rustix::net::recvmsg(socket, &mut slices, &mut ancillary, flags);
    let bytes = rustix::io::retry_on_intr(received).ok()?.bytes;
    let rights = ancillary.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let fds = rights.flatten().collect();
    Some((decode(&packet[..bytes])?, fds))
}

pub fn ask(connection: &OwnedFd, request: &Request) -> Option<Reply> {
    send(connection, &encode(request), &[], SendFlags::empty()).ok()?;
    receive(connection, RecvFlags::empty()).map(|(reply, _)| reply)
}

/// Makes a new context.
pub fn new_context() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let name = format!("run{}", LAST.fetch_add(1, Ordering::Relaxed));
    let observer = dial();
    assert_eq!(ask(&observer, &Request::Observe { version: VERSION }), Some(Reply::Done));
    let added = ask(&observer, &Request::AddContext { name: name.clone() });
    assert_eq!(added, Some(Reply::Done));
    name
}

/// An opened and mapped device.
pub struct Opened {
    pub device: Arc<Device>,
    pub map: Mapping<MAP_BYTES>,
}

impl Opened {
    pub fn new(context: &str) -> Opened {
        let device = Device::open(context, socket()).expect("a broker with room");
        let map = Mapping::new(device.file(), Access::Read).expect("a map");
        device.mapped(map.address(), MAP_BYTES);
        Opened { device, map }
    }

    pub fn become_manager(&self) {
        let flags = FLAT_BINDER_FLAG_ACCEPTS_FDS;
        let object = FlatObject { kind: BINDER_TYPE_BINDER, flags, binder: 0, cookie: 0 };
        let address = &raw const object as usize;
        self.device.ioctl(BINDER_SET_CONTEXT_MGR_EXT, address, true).expect("no other manager");
    }

    /// Writes commands and reads without waiting. Returns the bytes read.
    pub fn exchange(&self, commands: &[u8], read_bytes: usize) -> Vec<u8> {
        let mut returns = vec![0u8; read_bytes.next_multiple_of(8)];
        let mut exchange = WriteRead {
            write_size: commands.len() as u64,
            write_consumed: 0,
            write_buffer: commands.as_ptr() as u64,
            read_size: read_bytes as u64,
            read_consumed: 0,
            read_buffer: returns.as_mut_ptr() as u64,
        };
        let address = &raw mut exchange as usize;
        let _ = self.device.ioctl(BINDER_WRITE_READ, address, true);
        assert!(exchange.read_consumed <= exchange.read_size, "more returns than room");
        assert!(exchange.write_consumed <= exchange.write_size.next_multiple_of(4));
        returns.truncate(exchange.read_consumed as usize);
        returns
    }
}

/// A process that the broker has admitted, without an engine.
pub struct Hostile {
    connection: OwnedFd,
    events: OwnedFd,
    _front: OwnedFd,
    caller: std::cell::Cell<ProcessId>,
}

impl Hostile {
    pub fn join(context: &str) -> Hostile {
        let front = baton_shm::mapping::create("front", STATUS_BYTES).expect("a page");
        // Claims a receive buffer that is large enough.
        let page = Mapping::<STATUS_BYTES>::new(&front, Access::ReadWrite).expect("a page");
        page.word(status::BUFFER_BYTES).store(1 << 20, Ordering::Release);
        page.word(status::ONE_WAY_FREE).store(1 << 19, Ordering::Release);
        let connection = dial();
        let hello = Request::Hello {
            version: VERSION,
            context: context.to_owned(),
            channels: 4096,
            connection: 0,
        };
        let tally = baton_shm::mapping::create("tally", TALLY_FILE_BYTES).expect("a page");
        let pages = [front.as_fd(), tally.as_fd()];
        send(&connection, &encode(&hello), &pages, SendFlags::empty()).expect("it reads");
        let welcome = receive::<Reply>(&connection, RecvFlags::empty()).expect("an answer");
        let (Reply::Welcome { .. }, mut fds) = welcome else { panic!("no welcome: {welcome:?}") };
        let events = fds.pop().expect("the event socket");
        let caller = std::cell::Cell::new(ProcessId::BROKER);
        Hostile { connection, events, _front: front, caller }
    }

    pub fn ask(&self, request: &Request) -> Option<Reply> {
        ask(&self.connection, request)
    }

    fn event(&self) -> Option<(Event, Vec<OwnedFd>)> {
        receive(&self.events, RecvFlags::DONTWAIT)
    }

    /// Gets the manager's process and node, by a grant on the node.
    pub fn manager(&self) -> Option<(ProcessId, NodeId)> {
        self.ask(&Request::ContextManager)?;
        while let Some((event, _)) = self.event() {
            if let Event::Ticket { objects, .. } = event
                && let [Granted { owner, node, .. }] = objects[..]
            {
                return Some((owner, node));
            }
        }
        None
    }

    pub fn become_manager(&self) {
        let request = Request::BecomeContextManager { node: NodeId(1), flags: 0x100 };
        assert_eq!(self.ask(&request), Some(Reply::Done));
    }

    /// The descriptors of a channel that was just opened.
    pub fn channel(&self) -> Option<Vec<OwnedFd>> {
        while let Some((event, fds)) = self.event() {
            if let Event::Channel { peer, .. } = event {
                self.caller.set(peer.process);
                return Some(fds);
            }
        }
        None
    }

    /// The process at the other end.
    pub fn caller(&self) -> ProcessId {
        self.caller.get()
    }
}

/// One return of the driver, with its payload.
pub fn parse(mut returns: &[u8]) -> Vec<(u32, &[u8])> {
    let mut found = Vec::new();
    while let Some((command, rest)) = returns.split_at_checked(4) {
        let command: u32 = bytemuck::pod_read_unaligned(command);
        let (payload, rest) = rest.split_at_checked(payload_bytes(command)).expect("never split");
        found.push((command, payload));
        returns = rest;
    }
    found
}
