//! Identifies the process at the other end of a connected socket.

#![expect(unsafe_code, reason = "socket options, which rustix lacks")]

use crate::shortage::is_shortage;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags};
use std::fs::File;
use std::io::Read;

/// Longest security label that the broker accepts; SELinux' labels are shorter.
const MAX_LABEL_BYTES: usize = 1024;
/// The label of a process that no security module has labelled.
const NO_LABEL: &str = "unconfined";

/// Most supplementary groups that the broker looks at. A process with more groups counts as one
/// without.
const MAX_GROUPS: usize = 256;
/// Room for a file of /proc about one process, at first.
const PROC_BYTES: usize = 2048;
/// From `asm-generic/socket.h`, since Linux 6.5.
const SO_PEERPIDFD: i32 = 77;

/// The process that connected, as the kernel recorded it at the connect.
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
    /// Start time of the process; see [`started`].
    pub started: Option<u64>,
}

/// Asks the kernel who connected. `ERANGE` for a label that is too long; other errors are shortages
/// of the system.
pub(crate) fn credentials(socket: impl AsFd) -> Result<Credentials, Errno> {
    let peer = sockopt::socket_peercred(&socket)?;
    let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
    let security_context = match peer_label(&socket) {
        Ok(label) => label_text(&label),
        // The kernel has no security module that labels sockets.
        Err(Errno::NOPROTOOPT | Errno::OPNOTSUPP) => NO_LABEL.to_owned(),
        Err(errno) => return Err(errno),
    };
    let mut gids = peer_groups(&socket).unwrap_or_default();
    gids.push(peer.gid.as_raw());
    let uid = peer.uid.as_raw();
    #[cfg(simulated)]
    if let Some(pid) = simulated_pid() {
        return Ok(Credentials { pid, uid, gids, security_context, started: Some(pid.into()) });
    }
    Ok(Credentials { pid, uid, gids, security_context, started: started_or_shortage(pid)? })
}

/// On a simulated machine all processes are one of the kernel's: the number of the simulated one.
#[cfg(simulated)]
fn simulated_pid() -> Option<u32> {
    baton_shm::simulation::machine()?.take_connection()
}

/// A pidfd of the process that connected, which becomes readable when the process ends. `None`
/// where the kernel has no pidfds. `ESRCH` if the process has ended, or another process has its pid
/// by now.
///
/// Since Linux 6.5 the kernel gives the pidfd itself. On older kernels the broker trusts the
/// process that has the pid now, if it belongs to the user that connected: no process can borrow a
/// pid of another user.
pub(crate) fn pidfd(
    socket: impl AsFd,
    credentials: &Credentials,
) -> Result<Option<OwnedFd>, Errno> {
    match peer_pidfd(socket) {
        Err(Errno::NOPROTOOPT | Errno::NODATA) => {}
        // The process may have ended, and its pid may have been another's when it was looked up.
        Ok(pidfd) if has_ended(&pidfd)? => return Err(Errno::SRCH),
        found => return found.map(Some),
    }
    // Without a pidfd only the socket tells of the process's end.
    let Some(pid) = Pid::from_raw(credentials.pid.cast_signed()) else { return Ok(None) };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => return Ok(None),
        opened => opened?,
    };
    // The pidfd was opened before these checks: while its process lives, the pid is that process's.
    let is_theirs =
        process_uids(credentials.pid)?.is_none_or(|uids| uids.contains(&credentials.uid));
    if is_theirs && credentials.started == started_or_shortage(credentials.pid)? {
        Ok(Some(pidfd))
    } else {
        Err(Errno::SRCH)
    }
}

/// Whether the process of a pidfd has ended.
fn has_ended(pidfd: &OwnedFd) -> Result<bool, Errno> {
    let mut waits = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut waits, Some(&Timespec::default()))? > 0)
}

/// The user ids of a process: real, effective, saved and of file accesses. `None` if /proc does not
/// show them.
fn process_uids(pid: u32) -> Result<Option<Vec<u32>>, Errno> {
    let status = read(&format!("/proc/{pid}/status"))?.unwrap_or_default();
    let Some(uids) = status.lines().find_map(|line| line.strip_prefix("Uid:")) else {
        return Ok(None);
    };
    Ok(uids.split_whitespace().map(|uid| uid.parse().ok()).collect())
}

/// Reads a file of /proc. `None` if the file is missing or not readable. An error is a shortage of
/// the system and says nothing about the file.
fn read(path: &str) -> Result<Option<String>, Errno> {
    let mut text = String::with_capacity(PROC_BYTES);
    // `take` keeps the reader from asking for the file's size, which is 0.
    let read = |file: File| file.take(u64::MAX).read_to_string(&mut text);
    match File::open(path).and_then(read) {
        Ok(_) => Ok(Some(text)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(errno) if is_shortage(errno) => Err(errno),
            _ => Ok(None),
        },
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Start time of a process, in the kernel's ticks since boot. Pid and start time together name one
/// process for ever. `None` if there is no such process or /proc does not show it.
pub(crate) fn started(pid: u32) -> Option<u64> {
    started_in(&format!("/proc/{pid}/stat"))
}

/// Like [`started`], but with an error if the system lacks resources for the lookup.
fn started_or_shortage(pid: u32) -> Result<Option<u64>, Errno> {
    Ok(read(&format!("/proc/{pid}/stat"))?.as_deref().and_then(start_of))
}

/// Start time of the process or thread whose `stat` file is at this path.
pub(crate) fn started_in(stat: &str) -> Option<u64> {
    start_of(&std::fs::read_to_string(stat).ok()?)
}

fn start_of(status: &str) -> Option<u64> {
    // The second field is the program's name in parentheses, with any characters inside.
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
    // SAFETY: the kernel has just installed this descriptor for this call, and no other code knows
    // it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes(number)) })
}

/// Reads a socket option into `into` and returns its length in bytes. `ERANGE` if it does not fit.
fn socket_option(socket: impl AsFd, name: i32, into: &mut [u8]) -> Result<usize, Errno> {
    let mut bytes = into.len() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `into` has room for `bytes` bytes, and both live through the call.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, into.as_mut_ptr().cast(), &mut bytes)
    };
    if result == 0 { Ok(bytes as usize) } else { Err(last_error()) }
}

/// A label as label_text. Some security modules end a label with a zero byte or a new line.
fn label_text(label: &[u8]) -> String {
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
            assert_eq!(label_text(label), expected, "{label:?}");
        }
    }

    #[test]
    fn a_connection_identifies_its_peer() {
        let (_ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let credentials = credentials(&theirs).unwrap();
        assert_eq!(credentials.pid, std::process::id());
        assert_eq!(credentials.uid, rustix::process::geteuid().as_raw());
        // Where sockets have labels, the label is this process's own.
        let own = std::fs::read("/proc/self/attr/current").unwrap_or_default();
        match peer_label(&theirs) {
            Ok(_) => assert_eq!(credentials.security_context, label_text(&own)),
            Err(errno) => {
                println!("skipped: the label itself ({errno})");
                assert_eq!(credentials.security_context, NO_LABEL);
            }
        }
    }
}
