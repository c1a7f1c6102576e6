//! How the pages of a client's map get the bytes of the receive buffer.
//!
//! ```text
//!   passthrough:  the kernel maps the receive buffer's file in place of the device
//!   stored:       the kernel has pages of the device:
//!                   FUSE_NOTIFY_STORE   a message's bytes, before its ioctl is answered
//!                   FUSE_READ           a page that the kernel does not have (any more)
//! ```
//!
//! **Invariant**: stores are exactly as long as messages. Bytes beside a message may be another
//! one's, which another thread stores at this moment, and which would be overwritten by older ones.
//!
//! A message that is to be cleared when it is freed is cleared in the receive buffer and then in
//! the pages, just before the driver frees it. A page that is read again meanwhile has no older
//! bytes.
//!
//! **Invariant**: the thread that answers reads stores nothing. The kernel locks a page while it is
//! read, so a read that was answered with older bytes comes to its end before a store of newer ones
//! begins.

use crate::connection::Connection;
use crate::mount_error::MountError;
use baton_abi::lane::MAX_PAYLOAD_BYTES;
use baton_driver::device::Device;
use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// Bytes that are stored at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// How clients' maps get the bytes of receive buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PageSource {
    /// The kernel maps the receive buffer itself. Needs Linux 6.9, and CAP_SYS_ADMIN outside of
    /// user namespaces.
    Passthrough,
    /// The server stores each message in the kernel's pages of the device.
    Stored,
}

impl fmt::Display for PageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageSource::Passthrough => "passthrough",
            PageSource::Stored => "stored",
        })
    }
}

/// The page source of a mount: the one that was asked for, or else passthrough where it works.
/// `able` is a connection whose kernel may pass maps through, which is tried.
pub fn choose(
    asked: Option<PageSource>,
    able: Option<&Connection>,
) -> Result<PageSource, MountError> {
    if asked == Some(PageSource::Stored) {
        return Ok(PageSource::Stored);
    }
    let tried = able.ok_or(MountError::NoPassthrough).and_then(try_passthrough);
    match (tried, asked) {
        (Ok(()), _) => Ok(PageSource::Passthrough),
        (Err(_), None) => Ok(PageSource::Stored),
        (Err(error), Some(_)) => Err(error),
    }
}

fn try_passthrough(connection: &Connection) -> Result<(), MountError> {
    let trial = memfd_create("binder", MemfdFlags::CLOEXEC);
    let trial = trial.map_err(MountError::system("memfd_create"))?;
    let backing = connection.open_backing(trial.as_fd()).map_err(MountError::MayNotPassThrough)?;
    connection.close_backing(backing);
    Ok(())
}

/// Stores a range in the kernel's pages of a device's node. `read` gives the bytes at a place.
pub fn store(
    connection: &Connection,
    node: u64,
    range: Range<usize>,
    read: impl Fn(usize, &mut [u8]),
) {
    let mut bytes = Vec::with_capacity(range.len().min(CHUNK_BYTES));
    for at in range.clone().step_by(CHUNK_BYTES) {
        bytes.resize(CHUNK_BYTES.min(range.end - at), 0);
        read(at, &mut bytes);
        connection.store(node, at, &bytes);
    }
}

/// The bytes of a page, or of a `read` by the program: as many as there are from the offset on.
pub fn read(device: &Device, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
    let left = (MAX_PAYLOAD_BYTES as u64).saturating_sub(offset);
    let mut all = vec![0; bytes.min(left as usize)];
    // By the file: a page that nobody has written to stays a hole.
    let n = rustix::io::pread(device.file(), &mut all, offset)?;
    all.truncate(n);
    Ok(all)
}
