//! A timer for the control thread that runs only while a round of some work is expected.

use baton_shm::blocking::Timer;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A timer of one period.
#[derive(Debug)]
pub(crate) struct RoundTimer {
    /// Runs while `expected`.
    timer: Timer,
    expected: AtomicBool,
    period: Duration,
}

impl RoundTimer {
    /// Errors of `timerfd_create`.
    pub fn new(period: Duration) -> Result<RoundTimer, Errno> {
        Ok(RoundTimer { timer: Timer::new()?, expected: AtomicBool::new(false), period })
    }

    /// Polls readable when a round is due.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.descriptor()
    }

    /// A round is due a period from now, or sooner if one is expected already.
    pub fn expect(&self) {
        // SeqCst: after the work for the round. If the timer runs, the end of its period finds it.
        if !self.expected.swap(true, Ordering::SeqCst) {
            self.timer.set(self.period);
        }
    }

    /// The round begins. Work that comes from now on expects another one.
    pub fn begin(&self) {
        self.timer.clear();
        self.expected.store(false, Ordering::SeqCst);
    }
}
