//! Bytes that a socket's receiver has not read.

use rustix::fd::AsFd;
use rustix::io::Result;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// Bytes that were sent through a Unix socket and that its receiver has not read yet, as the kernel
/// counts them for the send buffer. An error is the system's.
pub fn unread_bytes(socket: impl AsFd) -> Result<u32> {
    const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;
    // SAFETY: SIOCOUTQ has this number and writes one int.
    let bytes: i32 = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(bytes.cast_unsigned())
}
