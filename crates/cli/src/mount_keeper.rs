//! `baton mount --restart`: a process that outlives the server of a mount, and starts the next one.
//!
//! ```text
//!   keeper  baton mount --restart       has the mount's descriptors, and waits
//!     `--> server  baton mount --kept   serves, and writes a byte once it does
//! ```

use crate::failure::Failure;
use crate::hang_up::{Sighup, Sighups};
use crate::inherited;
use crate::stderr::say;
use crate::stop;
use baton_binderfs::Kept;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::SIGTERM;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// A server that ends sooner has failed.
const SHORT: Duration = Duration::from_secs(1);
/// So many servers may fail one after the other. The broker may be away for a moment, too.
const MOST_FAILURES: u32 = 10;
/// The next server waits so long for each failure before it.
const PAUSE: Duration = Duration::from_millis(100);
/// Events of the keeper: the end of its server, its word that it serves, SIGHUP, and SIGTERM.
const ENDED: u64 = 0;
const BEGUN: u64 = 1;
const SIGHUP: u64 = 2;
const STOP: u64 = 3;

/// Starts servers with these arguments until one ends by itself, or is told to. `ready` is called
/// once the first one serves.
pub fn keep(tried: &str, arguments: &[OsString], ready: impl FnOnce()) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(tried, error);
    // The next server may be of another version: its path is the same.
    let program = std::env::current_exe().map_err(failed)?;
    let sighups = Sighups::new().map_err(failed)?;
    let stop = stop::signals().map_err(failed)?;
    let kept = Kept::new().map_err(|error| Failure::new(tried, error))?;
    let mut waits = Waits { stop, sighups };
    let (mut ready, mut n_failures) = (Some(ready), 0);
    loop {
        let began = Instant::now();
        let status = waits.run(&program, arguments, &kept, &mut ready).map_err(failed)?;
        if status.success() || !kept.is_mounted() {
            return end(status);
        }
        n_failures = if began.elapsed() < SHORT { n_failures + 1 } else { 0 };
        if n_failures == MOST_FAILURES || waits.is_stopped(PAUSE * n_failures).map_err(failed)? {
            return end(status);
        }
        say(format_args!("the server has ended ({status}): another one takes its place"));
    }
}

/// The end of a server is that of its keeper. The server has told why.
fn end(status: ExitStatus) -> Result<(), Failure> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => Err(Failure::new("serve the mount", status)),
    }
}

/// The keeper's signals, SIGTERM and SIGHUP. Each is readable once it has come.
struct Waits {
    stop: OwnedFd,
    sighups: Sighups,
}

impl Waits {
    /// Whether SIGTERM or SIGINT has come, or comes within this time.
    fn is_stopped(&self, within: Duration) -> io::Result<bool> {
        let within = Timespec::try_from(within).expect("seconds");
        let mut stop = [PollFd::new(&self.stop, PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| poll(&mut stop, Some(&within)))? > 0)
    }

    /// Starts a server, and waits for its end.
    fn run(
        &mut self,
        program: &Path,
        arguments: &[OsString],
        kept: &Kept,
        ready: &mut Option<impl FnOnce()>,
    ) -> io::Result<ExitStatus> {
        let (begun, begins) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let inherited = [kept.fuse.as_fd(), kept.record.as_fd(), begins.as_fd()];
        for fd in inherited {
            // This process starts no other program.
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        let numbers = inherited.map(|fd| fd.as_raw_fd().to_string()).join(",");
        let mut server =
            Command::new(program).args(arguments).args(["--kept", &numbers]).spawn()?;
        drop(begins);
        let pidfd = pidfd_open(Pid::from_child(&server), PidfdFlags::empty())?;
        let waits = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let once = EventFlags::IN | EventFlags::ONESHOT;
        for (fd, flags, news) in [
            (pidfd.as_fd(), EventFlags::IN, ENDED),
            (begun.as_fd(), once, BEGUN),
            (self.sighups.as_fd(), EventFlags::IN, SIGHUP),
            (self.stop.as_fd(), once, STOP),
        ] {
            epoll::add(&waits, fd, EventData::new_u64(news), flags)?;
        }
        loop {
            let mut events = Vec::with_capacity(1);
            match epoll::wait(&waits, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            match events.first().map(|event| event.data.u64()) {
                Some(ENDED) => return server.wait(),
                // Nothing comes of a server that ends before it serves.
                Some(BEGUN) if rustix::io::read(&begun, &mut [0; 1]) == Ok(1) => {
                    ready.take().into_iter().for_each(|ready| ready());
                }
                Some(SIGHUP) => match self.sighups.next()? {
                    Sighup::Sent => pidfd_send_signal(&pidfd, Signal::KILL)?,
                    Sighup::HangUp => signal_hook::low_level::raise(SIGTERM)?,
                    Sighup::IgnoredHangUp => {}
                },
                // It unmounts, and ends.
                Some(STOP) => pidfd_send_signal(&pidfd, Signal::TERM)?,
                _ => {}
            }
        }
    }
}

/// The descriptors that a server got from its keeper, and the pipe's end by which it is told.
pub fn kept(numbers: &[RawFd]) -> Result<Option<(Kept, OwnedFd)>, Errno> {
    let &[fuse, record, keeper] = numbers else { return Ok(None) };
    // A server whose keeper has ended ends in order.
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    let kept = Kept { fuse: inherited::take(fuse)?, record: inherited::take(record)? };
    Ok(Some((kept, inherited::take(keeper)?)))
}

/// Tells the keeper that its server serves.
pub fn tell_ready(keeper: OwnedFd) {
    // A keeper that has ended has sent a signal.
    let _ = rustix::io::write(&keeper, &[1]);
}
