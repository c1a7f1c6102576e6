//! Signals that end long-running commands.

use rustix::fd::OwnedFd;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::unix::net::UnixStream;

/// A descriptor that becomes readable when SIGTERM or SIGINT has come.
pub fn signals() -> Result<OwnedFd, std::io::Error> {
    let (stop, signalled) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    Ok(stop.into())
}
