//! The uapi front end: what a program has instead of an open `/dev/binder`.
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// One opened device. Threads share it; it is closed when the last reference goes.
#[derive(Debug)]
pub struct Device {}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nobody listens at the broker's socket.
    #[error("no broker listens at {socket}: {errno}")]
    NoBroker {
        /// The socket that was tried.
        socket: String,
        /// What connect said.
        errno: Errno,
    },
    /// The broker refused.
    #[error("the broker refused context {context:?}: {errno}")]
    Refused {
        /// The context.
        context: String,
        /// Its reason.
        errno: Errno,
    },
    /// A system call failed.
    #[error("{operation}: {errno}")]
    System {
        /// Which.
        operation: &'static str,
        /// How.
        errno: Errno,
    },
}

impl OpenError {
    /// What `open("/dev/binder")` fails with.
    pub fn errno(&self) -> Errno {
        match self {
            OpenError::NoBroker { errno, .. }
            | OpenError::Refused { errno, .. }
            | OpenError::System { errno, .. } => *errno,
        }
    }
}

impl Device {
    /// Opens a context at the broker that listens at `socket`.
    pub fn open(_context: &str, _socket: &Path) -> Result<Arc<Device>, OpenError> {
        todo!()
    }

    /// The file behind the receive buffer: a sealed memfd of 4 MiB. A duplicate of it is the
    /// program's descriptor; a map of it (`PROT_READ`, at offset 0) is the program's receive buffer.
    pub fn file(&self) -> BorrowedFd<'_> {
        todo!()
    }

    /// Checks an `mmap` of the device before it is done: the length to map, at most 4 MiB.
    /// `EPERM` if it would be writable, `EBUSY` if there is a map already.
    pub fn before_map(&self, _bytes: usize, _writable: bool) -> Result<usize, Errno> {
        todo!()
    }

    /// The program's map is at this address. (A program that maps by inline system calls never
    /// says so: the address is then found in /proc/self/maps when the first buffer is needed.)
    pub fn mapped(&self, _address: usize, _bytes: usize) {
        todo!()
    }

    /// An ioctl on the device by the calling thread, with the kernel's errors.
    ///
    /// Bad addresses in the argument or in what it points to are `EFAULT`, not a fault.
    pub fn ioctl(&self, _request: u32, _argument: usize, _nonblocking: bool) -> Result<i32, Errno> {
        todo!()
    }

    /// A descriptor that polls readable while the device would (`POLLIN`): level-triggered work of
    /// the process or of the calling thread. To be polled in place of the device's own.
    pub fn readable(&self) -> BorrowedFd<'_> {
        todo!()
    }

    /// In the child after fork: the device stays the parent's; the child's copy lets go of the
    /// broker, so that its life is not taken for the parent's. ioctls then fail with `EBADF`-like errors.
    pub fn forked(&self) {
        todo!()
    }
}
