//! A connection to the broker that looks and manages, and takes part in nothing.

use crate::control::{dial, receive_patiently, send};
use crate::device::OpenError;
use baton_abi::control::{Reply, Report, Request, VERSION, decode, encode};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::path::Path;

/// The connection. A broker that runs until it is idle runs for as long as one is open.
#[derive(Debug)]
pub struct Observer {
    socket: OwnedFd,
}

impl Observer {
    /// Connects to the broker that listens at `socket`.
    pub fn connect(socket: &Path) -> Result<Observer, OpenError> {
        let observer = Observer { socket: dial(socket)? };
        let greeting = observer.ask(&Request::Observe { version: VERSION });
        greeting.map_err(|errno| OpenError::NotObserved { errno })?;
        Ok(observer)
    }

    /// A question and its answer; a refusal is its errno.
    fn ask(&self, request: &Request) -> Result<Reply, Errno> {
        send(&self.socket, &encode(request), &[], SendFlags::empty())?;
        let (packet, _) = receive_patiently(&self.socket)?;
        match decode(&packet).ok_or(Errno::PROTO)? {
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

    /// Adds a context. `EEXIST` if there is one of this name, `EINVAL` if there cannot be.
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
