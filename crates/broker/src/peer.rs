//! Who is at the other end of a connected socket.

#![expect(unsafe_code, reason = "SO_PEERSEC, which rustix lacks")]

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::net::sockopt;

/// Longest security label that is taken over; SELinux' are shorter.
const MAX_LABEL_BYTES: usize = 1024;
/// The label of a process that no security module has labelled.
const NO_LABEL: &str = "unconfined";

/// Who connected, as the kernel remembers it from the connect.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    /// Thread group id in the broker's pid namespace.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Security label, never empty.
    pub security_context: String,
    /// See [`started`].
    pub started: Option<u64>,
}

/// `ERANGE` for a label that is too long.
pub(crate) fn credentials(socket: impl AsFd) -> Result<Credentials, Errno> {
    let peer = sockopt::socket_peercred(&socket)?;
    let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
    let security_context = match peer_label(socket) {
        Ok(label) => text(&label),
        // No security module, or none that labels sockets.
        Err(Errno::NOPROTOOPT | Errno::OPNOTSUPP) => NO_LABEL.to_owned(),
        Err(errno) => return Err(errno),
    };
    Ok(Credentials { pid, uid: peer.uid.as_raw(), security_context, started: started(pid) })
}

/// When a process started, in the kernel's ticks since the machine did: with its pid it is the
/// name of no other process. `None` if there is none, or it is nobody's business.
pub(crate) fn started(pid: u32) -> Option<u64> {
    started_in(&format!("/proc/{pid}/stat"))
}

/// The same of a process or a thread, by its `stat`.
pub(crate) fn started_in(stat: &str) -> Option<u64> {
    let status = std::fs::read_to_string(stat).ok()?;
    // The second field is the program's name, with any characters, in parentheses.
    let (_, rest) = status.rsplit_once(") ")?;
    rest.split(' ').nth(22 - 3)?.parse().ok()
}

fn peer_label(socket: impl AsFd) -> Result<Vec<u8>, Errno> {
    let mut label = vec![0u8; MAX_LABEL_BYTES];
    let mut bytes = MAX_LABEL_BYTES as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: room for as many bytes as the length says, and both live through the call.
    let result = unsafe {
        let room = label.as_mut_ptr().cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERSEC, room, &mut bytes)
    };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    label.truncate(bytes as usize);
    Ok(label)
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
