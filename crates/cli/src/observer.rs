//! A connection to the broker that looks and manages, and takes part in nothing.

use crate::failure::Failure;
use baton_abi::control::{MAX_PACKET_BYTES, Reply, Report, Request, VERSION, decode, encode};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::path::Path;

/// The connection. A broker that runs until it is idle runs for as long as one is open.
#[derive(Debug)]
pub struct Observer {
    socket: OwnedFd,
}

impl Observer {
    /// Connects. `tried` is for the message if that fails.
    pub fn connect(socket: &Path, tried: &str) -> Result<Observer, Failure> {
        let connection =
            Self::dial(socket).map_err(|errno| Failure::connect(tried, socket, errno))?;
        connection
            .ask(&Request::Observe { version: VERSION })
            .map_err(|errno| Failure::refused(tried, errno))?;
        Ok(connection)
    }

    fn dial(path: &Path) -> Result<Observer, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Observer { socket })
    }

    /// A question and its answer; a refusal is its errno.
    fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        rustix::net::send(&self.socket, &encode(request), SendFlags::NOSIGNAL)?;
        let mut packet = vec![0; MAX_PACKET_BYTES];
        let (bytes, _) = rustix::net::recv(&self.socket, &mut packet[..], RecvFlags::empty())?;
        match decode(&packet[..bytes]).ok_or(Errno::PROTO)? {
            Reply::Refused { errno } => Err(Errno::from_raw_os_error(errno)),
            reply => Ok(reply),
        }
    }

    /// The contexts' names, sorted.
    pub fn contexts(&self) -> Result<Vec<String>, Errno> {
        match self.ask(&Request::Contexts)? {
            Reply::Contexts { names } => Ok(names),
            _ => Err(Errno::PROTO),
        }
    }

    /// Adds a context.
    pub fn add_context(&self, name: &str) -> Result<(), Errno> {
        match self.ask(&Request::AddContext { name: name.to_owned() })? {
            Reply::Done => Ok(()),
            _ => Err(Errno::PROTO),
        }
    }

    /// Everything.
    pub fn report(&self) -> Result<Report, Errno> {
        match self.ask(&Request::Report)? {
            Reply::Report(report) => Ok(report),
            _ => Err(Errno::PROTO),
        }
    }
}

impl AsFd for Observer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
