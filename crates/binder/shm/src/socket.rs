//! The kernel's word on a Unix socket: its peer, and the bytes that its receiver has not read; and
//! on a process, by its pidfd.
//!
//! Ids are plain integers here: in another pid namespace than its peer's, a process reads the pid
//! 0.

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, RecvMsg, ReturnFlags};
use std::io::IoSliceMut;

/// From `asm-generic/socket.h`, since Linux 6.5.
const SO_PEERPIDFD: i32 = 77;

/// The process at the other end of a Unix socket: the one that connected, or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Thread group id in the caller's pid namespace; 0 if that does not have the process.
    pub pid: u32,
    /// Effective user id in the caller's user namespace; see
    /// [`is_overflow_uid`](crate::namespaces::is_overflow_uid).
    pub uid: u32,
    /// Effective group id in the caller's user namespace.
    pub gid: u32,
}

/// SO_PEERCRED. An error is the system's.
pub fn peer_credentials(socket: impl AsFd) -> Result<PeerCredentials> {
    let mut ucred = [0; size_of::<libc::ucred>()];
    if option(socket, libc::SO_PEERCRED, &mut ucred)? != ucred.len() {
        return Err(Errno::INVAL);
    }
    let field = |at| {
        let bytes: &[u8] = &ucred[at..at + size_of::<u32>()];
        u32::from_ne_bytes(bytes.try_into().expect("four bytes"))
    };
    Ok(PeerCredentials {
        pid: field(std::mem::offset_of!(libc::ucred, pid)),
        uid: field(std::mem::offset_of!(libc::ucred, uid)),
        gid: field(std::mem::offset_of!(libc::ucred, gid)),
    })
}

/// A pidfd of the peer, whatever its pid namespace. `ENOPROTOOPT` before Linux 6.5, `ENODATA` for a
/// socket without a peer; other errors are shortages of the system.
pub fn peer_pidfd(socket: impl AsFd) -> Result<OwnedFd> {
    let mut number = [0; size_of::<i32>()];
    option(socket, SO_PEERPIDFD, &mut number)?;
    // SAFETY: the kernel has just installed this descriptor for this call, and no other code knows
    // it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes(number)) })
}

/// `struct pidfd_info` of `linux/pidfd.h`, in its first form.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    /// Asks for parts, and says which are there.
    mask: u64,
    cgroup: u64,
    /// The process, its thread group and its parent.
    pids: [u32; 3],
    real: [u32; 2],
    /// User and group.
    effective: [u32; 2],
    saved: [u32; 2],
    /// Of file accesses.
    files: [u32; 2],
    exit_code: i32,
}

/// `PIDFD_INFO_CREDS`: the ids are there.
const INFO_CREDS: u64 = 1 << 1;
/// `PIDFD_GET_INFO`: `_IOWR(0xff, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);

/// Effective user and group of a process, as its main thread has them now, in the caller's user
/// namespace. `ESRCH` if the process has ended. Other errors say that the kernel does not tell so,
/// as Linux before 6.13.
pub fn effective_ids(pidfd: impl AsFd) -> Result<(u32, u32)> {
    let mut info = PidfdInfo { mask: INFO_CREDS, ..PidfdInfo::default() };
    // SAFETY: the request has this number, and reads and writes this structure.
    unsafe { ioctl(pidfd, Updater::<PIDFD_GET_INFO, PidfdInfo>::new(&mut info)) }?;
    let [user, group] = info.effective;
    if info.mask & INFO_CREDS != 0 { Ok((user, group)) } else { Err(Errno::NODATA) }
}

/// Reads an option of SOL_SOCKET into `into`. Returns its length in bytes. `ERANGE` for a list that
/// does not fit.
pub fn option(socket: impl AsFd, name: i32, into: &mut [u8]) -> Result<usize> {
    let mut bytes = into.len() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `into` has room for `bytes` bytes, and both live through the call.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, into.as_mut_ptr().cast(), &mut bytes)
    };
    let failed = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    if result == 0 { Ok(bytes as usize) } else { Err(failed()) }
}

/// Bytes that were sent through a Unix socket and that its receiver has not read yet, as the kernel
/// counts them for the send buffer. An error is the system's.
pub fn unread_bytes(socket: impl AsFd) -> Result<u32> {
    const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;
    // SAFETY: SIOCOUTQ has this number and writes one int.
    let bytes: i32 = unsafe { ioctl(socket, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(bytes.cast_unsigned())
}

/// Whether a Unix socket of packets contains any; true also if it can still get some, as long as
/// neither end has been shut down.
pub fn has_unread(socket: impl AsFd) -> bool {
    // Marks an empty packet, for whose credentials there is no space.
    let marked = rustix::net::sockopt::set_socket_passcred(&socket, true);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let found = loop {
        let (mut byte, mut none) = ([0], RecvAncillaryBuffer::new(&mut []));
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut none, flags) {
            // A peer that closes its socket with unread packets leaves one such error ahead of its
            // own packets.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            found => break found,
        }
    };
    let is_end =
        |message: &RecvMsg| message.bytes == 0 && !message.flags.contains(ReturnFlags::CTRUNC);
    marked.is_err() || !found.is_ok_and(|message| is_end(&message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn a_pidfd_tells_the_effective_ids() {
        use rustix::process::{PidfdFlags, getegid, geteuid, getpid, pidfd_open};
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        match effective_ids(&pidfd) {
            Err(Errno::NOTTY) => println!("skipped: not before Linux 6.13"),
            found => assert_eq!(found, Ok((geteuid().as_raw(), getegid().as_raw()))),
        }
        let no_pidfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        assert!(effective_ids(no_pidfd).is_err());
    }

    #[test]
    fn credentials_are_plain_integers() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = PeerCredentials {
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        assert_eq!(peer_credentials(&ours), Ok(own));
        // A socket without a peer has the pid 0, as has one whose peer's pid is not ours to know.
        let nobody = peer_credentials(UnixDatagram::unbound().unwrap()).unwrap();
        assert_eq!((nobody.pid, nobody.uid), (0, u32::MAX));
    }
}
