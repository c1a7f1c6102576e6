//! The device that is prepared for the next open: no program waits for what all devices have.

use baton_driver::device::{OpenError, PreparedDevice};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The device that is prepared for the next open, if there is one.
#[derive(Debug)]
pub struct NextDevice {
    /// The broker's.
    socket: PathBuf,
    prepared: Mutex<Option<PreparedDevice>>,
}

impl NextDevice {
    /// None yet. `socket` is the broker's.
    pub fn new(socket: PathBuf) -> NextDevice {
        NextDevice { socket, prepared: Mutex::default() }
    }

    /// Prepares a device, unless one is prepared. If that fails, the next open tries again, and has
    /// the error.
    pub fn prepare(&self) {
        if self.lock().is_none()
            && let Ok(prepared) = PreparedDevice::new(&self.socket)
        {
            *self.lock() = Some(prepared);
        }
    }

    /// The prepared device, or one that is made now: if there is none, or if the broker is another
    /// one since.
    pub fn take(&self) -> Result<PreparedDevice, OpenError> {
        let prepared = self.lock().take();
        match prepared.filter(|prepared| !prepared.has_hung_up()) {
            Some(prepared) => Ok(prepared),
            None => PreparedDevice::new(&self.socket),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<PreparedDevice>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    use std::path::Path;

    /// A socket at which nobody answers.
    fn listen(path: &Path) -> OwnedFd {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::listen(&socket, 8).unwrap();
        socket
    }

    #[test]
    fn a_prepared_device_is_taken_once_and_only_if_its_broker_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("broker");
        let next = NextDevice::new(path.clone());
        next.prepare();
        assert_eq!(next.take().unwrap_err().errno(), Errno::NOENT);
        let socket = listen(&path);
        let accept = || rustix::net::accept(&socket);
        next.prepare();
        next.prepare();
        let first = accept().unwrap();
        let taken = next.take().unwrap();
        assert_eq!(accept().unwrap_err(), Errno::AGAIN, "it was prepared, and once");
        drop((taken, first));
        next.prepare();
        drop(accept().unwrap());
        let taken = next.take().unwrap();
        let second = accept().unwrap();
        drop(next.take().unwrap());
        assert!(accept().is_ok(), "none is prepared");
        drop((taken, second));
    }
}
