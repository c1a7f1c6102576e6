//! SIGHUP of a process for which it has two meanings: the terminal has hung up, or somebody has
//! sent the signal (`kill -HUP`, `systemctl reload`).
//!
//! The kernel sends SIGHUP to the leader of a terminal's session, and at the leader's end to the
//! foreground processes. A shell sends it on to all of its jobs, so the sender does not tell which
//! meaning it has. The terminal does: the kernel hangs it up before it sends the first signal.

use crate::stop;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;

/// A meaning of SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighup {
    /// The terminal has hung up.
    HangUp,
    /// The terminal has hung up, and this process was started by `nohup`.
    IgnoredHangUp,
    /// Somebody has sent the signal.
    Sent,
}

/// The SIGHUPs of this process.
#[derive(Debug)]
pub struct Sighups {
    signals: SignalFd,
    /// The terminal of this process's session, until it has hung up.
    terminal: Option<OwnedFd>,
    was_ignored: bool,
}

impl Sighups {
    /// Takes over SIGHUP. The process has one thread; programs that it starts ignore the signal.
    pub fn new() -> io::Result<Sighups> {
        let was_ignored = stop::ignore_hang_up()?;
        // What is blocked comes to the descriptor, ignored or not.
        let hang_up = SigSet::from(Signal::SIGHUP);
        hang_up.thread_block()?;
        let signals = SignalFd::with_flags(&hang_up, SfdFlags::SFD_CLOEXEC)?;
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok();
        Ok(Sighups { signals, terminal, was_ignored })
    }

    /// Waits for the next one, which has come if this is readable.
    pub fn next(&mut self) -> io::Result<Sighup> {
        let by_kernel = self
            .signals
            .read_signal()?
            .is_some_and(|signal| signal.ssi_code == nix::libc::SI_KERNEL);
        if !by_kernel && !has_hung_up(self.terminal.as_ref()) {
            return Ok(Sighup::Sent);
        }
        // Signals that come later are sent by somebody.
        self.terminal = None;
        Ok(if self.was_ignored { Sighup::IgnoredHangUp } else { Sighup::HangUp })
    }
}

impl AsFd for Sighups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

fn has_hung_up(terminal: Option<&OwnedFd>) -> bool {
    let Some(terminal) = terminal else { return false };
    let mut polled = [PollFd::new(terminal, PollFlags::empty())];
    let polls = rustix::io::retry_on_intr(|| poll(&mut polled, Some(&Timespec::default())));
    polls.is_ok() && polled[0].revents().contains(PollFlags::HUP)
}
