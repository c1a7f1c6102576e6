//! A timer for the control thread that runs only while a round of some work is expected.

use rustix::event::Timespec;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A timer of one period, under a second.
#[derive(Debug)]
pub(super) struct RoundTimer {
    /// Runs while `expected`.
    timer: OwnedFd,
    expected: AtomicBool,
    period: Duration,
}

impl RoundTimer {
    /// Errors of `timerfd_create`.
    pub fn new(period: Duration) -> Result<RoundTimer, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(RoundTimer { timer, expected: AtomicBool::new(false), period })
    }

    /// Polls readable when a round is due.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// A round is due a period from now, or sooner if one is expected already.
    pub fn expect(&self) {
        // SeqCst: after the work for the round. If the timer runs, the end of its period finds it.
        if self.expected.swap(true, Ordering::SeqCst) {
            return;
        }
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let then = Timespec { tv_sec: 0, tv_nsec: self.period.subsec_nanos().into() };
        let once = Itimerspec { it_interval: never, it_value: then };
        // It cannot fail: the descriptor is a timer and the time is one.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// The round begins. Work that comes from now on expects another one.
    pub fn begin(&self) {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        self.expected.store(false, Ordering::SeqCst);
    }
}
