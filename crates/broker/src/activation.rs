//! Socket activation: the listening socket that systemd made before it started us.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

/// Where systemd puts the first socket.
const FIRST: i32 = 3;

/// The first of the sockets that LISTEN_PID and LISTEN_FDS say are ours, if there is one.
///
/// It is a duplicate: the descriptor itself belongs to whoever else looks at the variables.
pub fn inherited() -> Result<Option<OwnedFd>, Errno> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let pid = rustix::process::getpid();
    let for_us = number("LISTEN_PID") == Some(pid.as_raw_nonzero().get().cast_unsigned());
    if !for_us || number("LISTEN_FDS").is_none_or(|count| count == 0) {
        return Ok(None);
    }
    // A number says nothing of the descriptor's lifetime; the kernel hands out an owned one.
    let this = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    rustix::process::pidfd_getfd(this, FIRST, PidfdGetfdFlags::empty()).map(Some)
}
