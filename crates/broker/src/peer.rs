//! Who is at the other end of a connected socket.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::sockopt;

/// Longest security label that is taken over; SELinux' are shorter.
const MAX_LABEL_CHARS: usize = 1024;

/// Who connected.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    /// Thread group id in the broker's pid namespace.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Security label, never empty.
    pub security_context: String,
}

/// As the kernel remembers it from the connect, but for the label: see [`security_context`].
pub(crate) fn credentials(socket: impl AsFd) -> Result<Credentials, Errno> {
    let peer = sockopt::socket_peercred(&socket)?;
    let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
    Ok(Credentials { pid, uid: peer.uid.as_raw(), security_context: security_context(pid)? })
}

/// The label of the process now, not at its connect as SO_PEERSEC has it, which rustix lacks: a
/// process that executes a program of another domain in between passes for that. It is read right
/// after the accept to keep that time short.
fn security_context(pid: u32) -> Result<String, Errno> {
    let label = match std::fs::read(format!("/proc/{pid}/attr/current")) {
        Ok(label) => label,
        Err(error) => match Errno::from_io_error(&error) {
            // No security module that has labels, no such file, or nobody's business.
            Some(Errno::INVAL | Errno::NOENT | Errno::ACCESS | Errno::PERM) => Vec::new(),
            errno => return Err(errno.unwrap_or(Errno::IO)),
        },
    };
    let label = String::from_utf8_lossy(&label);
    Ok(match label.trim_end_matches(['\0', '\n']) {
        "" => "unconfined".to_owned(),
        label => label.chars().take(MAX_LABEL_CHARS).collect(),
    })
}
