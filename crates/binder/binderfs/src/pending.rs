//! The ioctls that have no answer yet, and the threads that make them.

use crate::interrupt::interrupt;
use crate::opened_device::OpenedDevice;
use baton_shm::blocking::Timer;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after which an ioctl that still waits is looked at, whether it may: the kernel passes no
/// file flags on. While clients call each other, the watcher wakes as often for ioctls that have
/// been answered.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// Time after which a thread whose client has a signal is interrupted again.
const AGAIN: Duration = Duration::from_millis(1);

/// A stand-in that may wait in the driver.
#[derive(Debug)]
pub struct Waiter {
    opened: Arc<OpenedDevice>,
    /// The client's thread.
    tid: u32,
    /// The stand-in's own thread id; 0 until it runs.
    stand_in: AtomicU32,
    /// The ioctl under way may not wait, and has been found to.
    may_not_wait: AtomicBool,
}

impl Waiter {
    /// The stand-in of a thread, which does not run yet.
    pub fn new(opened: Arc<OpenedDevice>, tid: u32) -> Waiter {
        let (stand_in, may_not_wait) = (AtomicU32::new(0), AtomicBool::new(false));
        Waiter { opened, tid, stand_in, may_not_wait }
    }

    /// The calling thread is the stand-in.
    pub fn runs(&self) {
        self.stand_in
            .store(rustix::thread::gettid().as_raw_pid().cast_unsigned(), Ordering::Release);
    }

    /// The threads' ids: the stand-in's, 0 until it runs, and the client's.
    pub fn threads(&self) -> (u32, u32) {
        (self.stand_in.load(Ordering::Acquire), self.tid)
    }

    /// Whether the ioctl that ends now was found to wait without a right to.
    pub fn take_may_not_wait(&self) -> bool {
        self.may_not_wait.swap(false, Ordering::AcqRel)
    }

    /// Looks whether the ioctl under way, which waits, may not.
    fn look(&self) -> bool {
        let may_not = self.opened.look_at_flags(self.tid);
        self.may_not_wait.store(may_not, Ordering::Release);
        may_not
    }

    fn interrupt(&self) {
        match self.stand_in.load(Ordering::Acquire) {
            0 => {}
            tid => interrupt(tid),
        }
    }
}

/// The ioctls under way, by the kernel's numbers of their requests.
#[derive(Debug)]
pub struct Pending {
    all: Mutex<HashMap<u64, Arc<Waiter>>>,
    looks: Mutex<Looks>,
    /// Set while there are ioctls to be looked at.
    timer: Timer,
}

/// The ioctls that are looked at when the timer says so, though they may have been answered.
#[derive(Debug, Default)]
struct Looks {
    /// Their callers' O_NONBLOCK has not been looked at. Oldest first, with the times when they
    /// began.
    begun: VecDeque<(u64, Instant)>,
    /// Their callers have signals, or may not wait.
    interrupted: Vec<u64>,
}

impl Looks {
    fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.interrupted.is_empty()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pending {
    /// No ioctls. Errors of `timerfd_create`.
    pub fn new() -> Result<Pending, Errno> {
        Ok(Pending { all: Mutex::default(), looks: Mutex::default(), timer: Timer::new()? })
    }

    /// Polls readable when it is time for [`Pending::look`].
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.descriptor()
    }

    /// An ioctl is about to begin.
    pub fn begin(&self, unique: u64, waiter: Arc<Waiter>) {
        lock(&self.all).insert(unique, waiter);
    }

    /// An ioctl is about to be answered: a signal has no effect on it any more.
    pub fn end(&self, unique: u64) {
        lock(&self.all).remove(&unique);
    }

    /// An ioctl that has begun may wait. If it does for a while, its caller's O_NONBLOCK is looked
    /// at.
    pub fn may_wait(&self, unique: u64) {
        let mut looks = lock(&self.looks);
        if looks.is_empty() {
            self.timer.set(LOOK_AFTER);
        }
        looks.begun.push_back((unique, Instant::now()));
    }

    /// Interrupts the wait of an ioctl until that has been answered.
    pub fn interrupt(&self, unique: u64) {
        if self.interrupt_once(unique) {
            let mut looks = lock(&self.looks);
            if looks.interrupted.is_empty() {
                self.timer.set(AGAIN);
            }
            looks.interrupted.push(unique);
        }
    }

    /// False if the ioctl has been answered.
    fn interrupt_once(&self, unique: u64) -> bool {
        // Under the lock: a stand-in that still has its ioctl has not ended.
        lock(&self.all).get(&unique).map(|waiter| waiter.interrupt()).is_some()
    }

    /// Looks at the ioctls whose time has come.
    pub fn look(&self) {
        self.timer.clear();
        let mut looks = lock(&self.looks);
        let n_due = looks.begun.iter().take_while(|(_, at)| at.elapsed() >= LOOK_AFTER).count();
        let due: Vec<(u64, Instant)> = looks.begun.drain(..n_due).collect();
        drop(looks);
        for (unique, _) in due {
            let waiter = lock(&self.all).get(&unique).cloned();
            // It ends with `EAGAIN` once it is interrupted.
            if waiter.is_some_and(|waiter| waiter.look()) {
                self.interrupt(unique);
            }
        }
        let mut looks = lock(&self.looks);
        looks.interrupted.retain(|unique| self.interrupt_once(*unique));
        if !looks.interrupted.is_empty() {
            self.timer.set(AGAIN);
        } else if !looks.begun.is_empty() {
            self.timer.set(LOOK_AFTER);
        }
    }
}
