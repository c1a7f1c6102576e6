//! Who is at the other end of a connected socket, as the kernel remembers it from the connect.

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;

/// Who connected.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    /// Thread group id in the broker's pid namespace; 0 if it has none there.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Security label, never empty.
    pub security_context: String,
}

/// Longest security label that is asked for; SELinux labels are a tenth of it.
const MAX_LABEL_BYTES: usize = 4096;

pub(crate) fn credentials(socket: impl AsFd) -> Result<Credentials, Errno> {
    // Not rustix' `socket_peercred`: its pid cannot be 0, as that of a process outside of this
    // pid namespace is.
    let mut bytes = [0; size_of::<libc::ucred>()];
    if option(&socket, libc::SO_PEERCRED, &mut bytes)? != bytes.len() {
        return Err(Errno::INVAL);
    }
    let field = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Ok(Credentials {
        pid: field(std::mem::offset_of!(libc::ucred, pid)),
        uid: field(std::mem::offset_of!(libc::ucred, uid)),
        security_context: security_context(&socket),
    })
}

/// Only the socket's own label will do: the process behind it may have executed another program,
/// with another label, since it connected.
fn security_context(socket: impl AsFd) -> String {
    let mut bytes = [0; MAX_LABEL_BYTES];
    let label = match option(socket, libc::SO_PEERSEC, &mut bytes) {
        Ok(length) => String::from_utf8_lossy(&bytes[..length.min(MAX_LABEL_BYTES)]).into_owned(),
        Err(_) => String::new(), // No security module, or one without labels for sockets.
    };
    match label.trim_end_matches(['\0', '\n']) {
        "" => "unconfined".to_owned(),
        label => label.to_owned(),
    }
}

/// Copies a socket option out; its length.
#[allow(unsafe_code)]
fn option(socket: impl AsFd, name: libc::c_int, into: &mut [u8]) -> Result<usize, Errno> {
    let mut length = into.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `into`, and the number to `length`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            into.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result == 0 { Ok(length as usize) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
