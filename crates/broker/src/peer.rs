//! Who is at the other end of a connected socket.

#![expect(unsafe_code, reason = "socket options and SIOCOUTQ, which rustix lacks")]

use crate::shortage::is_shortage;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags};

/// Longest security label that is taken over; SELinux' are shorter.
const MAX_LABEL_BYTES: usize = 1024;
/// The label of a process that no security module has labelled.
const NO_LABEL: &str = "unconfined";

/// Most supplementary groups that are looked at; a process with more has none.
const MAX_GROUPS: usize = 256;
/// Of `asm-generic/socket.h` since Linux 6.5.
const SO_PEERPIDFD: i32 = 77;

/// Who connected, as the kernel remembers it from the connect.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    /// Thread group id in the broker's pid namespace.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id, and the supplementary ones.
    pub gids: Vec<u32>,
    /// Security label, never empty.
    pub security_context: String,
    /// See [`started`].
    pub started: Option<u64>,
}

/// `ERANGE` for a label that is too long, and what the system lacks for a while.
pub(crate) fn credentials(socket: impl AsFd) -> Result<Credentials, Errno> {
    let peer = sockopt::socket_peercred(&socket)?;
    let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
    let security_context = match peer_label(&socket) {
        Ok(label) => text(&label),
        // No security module, or none that labels sockets.
        Err(Errno::NOPROTOOPT | Errno::OPNOTSUPP) => NO_LABEL.to_owned(),
        Err(errno) => return Err(errno),
    };
    let mut gids = peer_groups(&socket).unwrap_or_default();
    gids.push(peer.gid.as_raw());
    let uid = peer.uid.as_raw();
    Ok(Credentials { pid, uid, gids, security_context, started: look_up_start(pid)? })
}

/// A descriptor of the process that connected, which becomes readable at its end. `None` where the
/// kernel has no such thing. `ESRCH` if that process is gone, and if its pid is another's by now.
///
/// Since Linux 6.5 the kernel says which process it was. Before, the process that has the pid now
/// is believed if it belongs to the user that connected: a pid of another user's cannot be
/// borrowed.
pub(crate) fn pidfd(
    socket: impl AsFd,
    credentials: &Credentials,
) -> Result<Option<OwnedFd>, Errno> {
    match peer_pidfd(socket) {
        Err(Errno::NOPROTOOPT | Errno::NODATA) => {}
        // It can be that of a process that is gone, whose pid was another's when it was looked at.
        Ok(pidfd) if has_ended(&pidfd)? => return Err(Errno::SRCH),
        found => return found.map(Some),
    }
    // None where the kernel has none: then only the socket tells of its end.
    let Some(pid) = Pid::from_raw(credentials.pid.cast_signed()) else { return Ok(None) };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => return Ok(None),
        opened => opened?,
    };
    // Opened before this look: while the descriptor's process lives, the pid is its own.
    let is_theirs = owners(credentials.pid)?.is_none_or(|uids| uids.contains(&credentials.uid));
    if is_theirs && credentials.started == look_up_start(credentials.pid)? {
        Ok(Some(pidfd))
    } else {
        Err(Errno::SRCH)
    }
}

/// Whether a pidfd's process has ended.
fn has_ended(pidfd: &OwnedFd) -> Result<bool, Errno> {
    let mut waits = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut waits, Some(&Timespec::default()))? > 0)
}

/// Bytes that the other end of a socket has been sent and has not read, as the kernel counts them.
pub(crate) fn unread_bytes(socket: impl AsFd) -> Result<u32, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ writes one int, which lives through the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(bytes.cast_unsigned()) } else { Err(last_error()) }
}

/// The user ids of a process: real, effective, saved, and that of its file accesses. `None` if they
/// are nobody's business.
fn owners(pid: u32) -> Result<Option<Vec<u32>>, Errno> {
    let status = read(&format!("/proc/{pid}/status"))?.unwrap_or_default();
    let Some(uids) = status.lines().find_map(|line| line.strip_prefix("Uid:")) else {
        return Ok(None);
    };
    Ok(uids.split_whitespace().map(|uid| uid.parse().ok()).collect())
}

/// `None` if there is no such file or it is nobody's business; an error is the system's shortage,
/// of which nothing may be concluded.
fn read(path: &str) -> Result<Option<String>, Errno> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(errno) if is_shortage(errno) => Err(errno),
            _ => Ok(None),
        },
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// When a process started, in the kernel's ticks since the machine did: with its pid it is the
/// name of no other process. `None` if there is none, or it is nobody's business.
pub(crate) fn started(pid: u32) -> Option<u64> {
    started_in(&format!("/proc/{pid}/stat"))
}

/// Like [`started`], and an error if the system lacks what it takes to know.
fn look_up_start(pid: u32) -> Result<Option<u64>, Errno> {
    Ok(read(&format!("/proc/{pid}/stat"))?.as_deref().and_then(start_of))
}

/// The same of a process or a thread, by its `stat`.
pub(crate) fn started_in(stat: &str) -> Option<u64> {
    start_of(&std::fs::read_to_string(stat).ok()?)
}

fn start_of(status: &str) -> Option<u64> {
    // The second field is the program's name, with any characters, in parentheses.
    let (_, rest) = status.rsplit_once(") ")?;
    rest.split(' ').nth(22 - 3)?.parse().ok()
}

fn peer_label(socket: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut label = vec![0; MAX_LABEL_BYTES];
    let bytes = socket_option(socket, libc::SO_PEERSEC, &mut label)?;
    label.truncate(bytes);
    Ok(label)
}

fn peer_groups(socket: impl AsFd) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0; MAX_GROUPS * size_of::<u32>()];
    let bytes = socket_option(socket, libc::SO_PEERGROUPS, &mut groups)?;
    Ok(groups[..bytes].chunks_exact(4).map(bytemuck::pod_read_unaligned).collect())
}

fn peer_pidfd(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    let mut number = [0; size_of::<i32>()];
    socket_option(socket, SO_PEERPIDFD, &mut number)?;
    // SAFETY: the kernel has just installed it for this call, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes(number)) })
}

/// How many bytes there are of an option. `ERANGE` if they do not fit.
fn socket_option(socket: impl AsFd, name: i32, into: &mut [u8]) -> Result<usize, Errno> {
    let mut bytes = into.len() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: room for as many bytes as the length says, and both live through the call.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, into.as_mut_ptr().cast(), &mut bytes)
    };
    if result == 0 { Ok(bytes as usize) } else { Err(last_error()) }
}

/// Some modules end a label with a zero byte or a new line.
fn text(label: &[u8]) -> String {
    let label = String::from_utf8_lossy(label);
    match label.trim_end_matches(['\0', '\n']) {
        "" => NO_LABEL.to_owned(),
        label => label.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_text_and_never_empty() {
        for (label, expected) in [
            (&b"u:r:system_server:s0\0"[..], "u:r:system_server:s0"),
            (b"/usr/bin/app (enforce)\n", "/usr/bin/app (enforce)"),
            (b"docker-default", "docker-default"),
            (b"\0", NO_LABEL),
            (b"", NO_LABEL),
            (b"a\xffb", "a\u{fffd}b"),
        ] {
            assert_eq!(text(label), expected, "{label:?}");
        }
    }

    #[test]
    fn a_peer_is_told_by_its_connection() {
        let (_here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let credentials = credentials(&there).unwrap();
        assert_eq!(credentials.pid, std::process::id());
        assert_eq!(credentials.uid, rustix::process::geteuid().as_raw());
        // Where sockets are labelled it is the label that this process has.
        let own = std::fs::read("/proc/self/attr/current").unwrap_or_default();
        match peer_label(&there) {
            Ok(_) => assert_eq!(credentials.security_context, text(&own)),
            Err(errno) => {
                println!("skipped: the label itself ({errno})");
                assert_eq!(credentials.security_context, NO_LABEL);
            }
        }
    }
}
