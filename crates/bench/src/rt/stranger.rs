//! A client of the broker's without an engine: it says of itself what an engine would, and asks
//! whatever it likes.

use crate::systems::unix_descriptors::{receive, send};
use baton_abi::control::{MAX_PACKET_BYTES, Reply, Request, VERSION, decode, encode};
use baton_abi::holder_list::TALLY_FILE_BYTES;
use baton_abi::lane::STATUS_BYTES;
use baton_shm::mapping;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::path::Path;

pub struct Stranger {
    socket: OwnedFd,
    /// The broker holds it for gone without the socket of its events, which nobody reads.
    events: Vec<OwnedFd>,
    packet: Vec<u8>,
}

impl Stranger {
    /// Introduces itself to the broker that listens at `broker`.
    pub fn connect(broker: &Path, context: &str) -> io::Result<Stranger> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(broker)?)?;
        let mut stranger =
            Stranger { socket, events: Vec::new(), packet: vec![0; MAX_PACKET_BYTES] };
        let pages = [
            mapping::create("stranger-front", STATUS_BYTES)?,
            mapping::create("stranger-tally", TALLY_FILE_BYTES)?,
        ];
        let hello = Request::Hello {
            version: VERSION,
            context: context.to_owned(),
            channels: 4096,
            connection: 0,
        };
        match stranger.ask_with(&hello, &pages)? {
            Reply::Welcome { .. } => Ok(stranger),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    /// What the broker says to that.
    pub fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        self.ask_with(request, &[])
    }

    fn ask_with(&mut self, request: &Request, files: &[OwnedFd]) -> io::Result<Reply> {
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send(&self.socket, &encode(request), &files)?;
        let (n_bytes, events) = receive(&self.socket, &mut self.packet)?;
        self.events.extend(events);
        decode(&self.packet[..n_bytes]).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
