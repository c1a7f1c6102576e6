//! SIGTERM and SIGINT as a descriptor.

use crate::error::Error;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::unix::net::UnixStream;

/// The handlers, and the descriptor that is readable after a signal. Dropping it removes them,
/// and the signals are ignored from then on (`signal-hook` does not restore the default).
pub(crate) struct Signals {
    pub readable: OwnedFd,
    handlers: Vec<signal_hook::SigId>,
}

impl Signals {
    pub fn catch() -> Result<Signals, Error> {
        let io = |error: std::io::Error| {
            Error::system("catch signals")(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        let (read, write) = UnixStream::pair().map_err(io)?;
        let mut signals = Signals { readable: read.into(), handlers: Vec::new() };
        for signal in [SIGTERM, SIGINT] {
            let write = write.try_clone().map_err(io)?;
            signals
                .handlers
                .push(signal_hook::low_level::pipe::register(signal, write).map_err(io)?);
        }
        Ok(signals)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
    }
}
