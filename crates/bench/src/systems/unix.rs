//! Local sockets, of a stream and of packets.

use super::stream::Side;
use crate::system::Accept;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn place(directory: &Path) -> PathBuf {
    directory.join("socket")
}

fn both_ways(stream: UnixStream) -> io::Result<Side<UnixStream, UnixStream>> {
    Ok(Side::new(stream.try_clone()?, stream))
}

pub fn listen_stream(directory: &Path) -> io::Result<Accept> {
    let listener = UnixListener::bind(place(directory))?;
    Ok(Box::new(move || Ok(Box::new(both_ways(listener.accept()?.0)?))))
}

pub fn connect_stream(directory: &Path) -> io::Result<Side<UnixStream, UnixStream>> {
    both_ways(UnixStream::connect(place(directory))?)
}

/// A socket of packets: one message goes in and comes out whole.
#[derive(Clone)]
pub struct Packets(Arc<OwnedFd>);

impl Read for Packets {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.0, into, RecvFlags::empty())?.0)
    }
}

impl Write for Packets {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.0, message, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn packets(socket: OwnedFd) -> Side<Packets, Packets> {
    let socket = Packets(Arc::new(socket));
    Side::new(socket.clone(), socket)
}

fn packet_socket() -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

pub fn listen_packets(directory: &Path) -> io::Result<Accept> {
    let listener = packet_socket()?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(place(directory))?)?;
    rustix::net::listen(&listener, 1)?;
    Ok(Box::new(move || Ok(Box::new(packets(rustix::net::accept(&listener)?)))))
}

pub fn connect_packets(directory: &Path) -> io::Result<Side<Packets, Packets>> {
    let socket = packet_socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(place(directory))?)?;
    Ok(packets(socket))
}
