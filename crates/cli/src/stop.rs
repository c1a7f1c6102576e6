//! Signals that end long-running commands.

use nix::sys::signal::{SigHandler, Signal, signal};
use rustix::fd::OwnedFd;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::unix::net::UnixStream;

/// A descriptor that becomes readable when SIGTERM or SIGINT has come, or SIGHUP unless this
/// process ignores it, as under `nohup`.
pub fn signals() -> io::Result<OwnedFd> {
    let (stop, signalled) = UnixStream::pair()?;
    let hang_up = (!ignore_hang_up()?).then_some(SIGHUP);
    for signal in [SIGTERM, SIGINT].into_iter().chain(hang_up) {
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    Ok(stop.into())
}

/// Ignores SIGHUP, and returns whether this process did so before. So do programs that it starts.
pub fn ignore_hang_up() -> io::Result<bool> {
    // SAFETY: no handler is set.
    #[allow(unsafe_code)]
    let before = unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) }?;
    Ok(matches!(before, SigHandler::SigIgn))
}
