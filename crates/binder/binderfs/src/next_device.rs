//! The device that is prepared for the next open: no program waits for what all devices have.

use baton_driver::device::{AskedDevice, Device, OpenError, PreparedDevice, SpareControl};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most parts of closed devices that are kept.
const MOST_SPARE: usize = 2;

/// The device that is prepared for the next open, if there is one.
#[derive(Debug)]
pub struct NextDevice {
    /// The broker's.
    socket: PathBuf,
    prepared: Mutex<Option<PreparedDevice>>,
    /// Parts of closed devices, for the next ones.
    spare: Mutex<Vec<SpareControl>>,
}

impl NextDevice {
    /// None yet. `socket` is the broker's.
    pub fn new(socket: PathBuf) -> NextDevice {
        NextDevice { socket, prepared: Mutex::default(), spare: Mutex::default() }
    }

    /// Prepares a device, unless one is prepared. If that fails, the next open tries again, and has
    /// the error.
    pub fn prepare(&self) {
        if self.prepared().is_none()
            && let Ok(prepared) = self.make()
        {
            *self.prepared() = Some(prepared);
        }
    }

    /// Has the prepared device ask the broker for a context on behalf of a process, and waits for
    /// nothing. `None` if no device is prepared, or if the broker is another one since.
    pub fn ask_now(&self, context: &str, process: u32) -> Option<AskedDevice> {
        let prepared = self.prepared().take();
        prepared.filter(|prepared| !prepared.has_hung_up())?.ask(context, process).ok()
    }

    /// Makes a device that asks the broker for a context on behalf of a process.
    pub fn ask(&self, context: &str, process: u32) -> Result<AskedDevice, OpenError> {
        self.make()?.ask(context, process)
    }

    /// Opens a device on behalf of this process, and closes it. The error is that of every open.
    pub fn try_one(&self, context: &str) -> Result<(), OpenError> {
        let asked = self.ask(context, std::process::id())?;
        let (device, control) = Device::open_on_behalf(asked)?;
        drop(device);
        if let Some(spare) = control.run() {
            self.keep(spare);
        }
        Ok(())
    }

    /// Keeps a part of a closed device, unless enough are kept.
    pub fn keep(&self, control: SpareControl) {
        let mut spare = self.spare();
        if spare.len() < MOST_SPARE {
            spare.push(control);
        }
    }

    fn make(&self) -> Result<PreparedDevice, OpenError> {
        let spare = self.spare().pop();
        PreparedDevice::new(&self.socket, spare)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<SpareControl>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepared(&self) -> MutexGuard<'_, Option<PreparedDevice>> {
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
        assert!(next.ask_now("binder", 1).is_none());
        assert_eq!(next.ask("binder", 1).unwrap_err().errno(), Errno::NOENT);
        let socket = listen(&path);
        let accept = || rustix::net::accept(&socket);
        next.prepare();
        next.prepare();
        let first = accept().unwrap();
        let taken = next.ask_now("binder", 1).unwrap();
        assert_eq!(accept().unwrap_err(), Errno::AGAIN, "it was prepared, and once");
        drop((taken, first));
        next.prepare();
        drop(accept().unwrap());
        assert!(next.ask_now("binder", 1).is_none(), "it has hung up");
        let taken = next.ask("binder", 1).unwrap();
        let second = accept().unwrap();
        next.prepare();
        drop(accept().unwrap());
        drop((taken, second));
    }
}
