//! The ioctls that have no answer yet, and the threads that make them.

use crate::interrupt::interrupt;
use crate::opened_device::OpenedDevice;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
#[derive(Debug, Default)]
pub struct Pending {
    all: Mutex<HashMap<u64, Arc<Waiter>>>,
}

impl Pending {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiter>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An ioctl is about to begin.
    pub fn begin(&self, unique: u64, waiter: Arc<Waiter>) {
        self.all().insert(unique, waiter);
    }

    /// An ioctl is about to be answered: a signal has no effect on it any more.
    pub fn end(&self, unique: u64) {
        self.all().remove(&unique);
    }

    /// Interrupts the wait of an ioctl. False if that has been answered.
    pub fn interrupt(&self, unique: u64) -> bool {
        // Under the lock: a stand-in that still has its ioctl has not ended.
        self.all().get(&unique).map(|waiter| waiter.interrupt()).is_some()
    }

    /// Whether an ioctl still waits, and may not. It ends with `EAGAIN` once it is interrupted.
    pub fn may_not_wait(&self, unique: u64) -> bool {
        let waiter = self.all().get(&unique).cloned();
        waiter.is_some_and(|waiter| waiter.look())
    }
}
