//! Wakes a kernel for which there are changes in its inbox.
//!
//! | the kernel | the waker |
//! |---|---|
//! | sleeps in the OS | writes to the kernel's eventfd |
//! | runs a thread | sets `pending`: the thread looks when it enters or leaves the kernel |
//! | runs, with preemptible threads | sets `pending` and sends the kernel's signal |
//!
//! **Invariant**: a kernel first announces its sleep and then asks whether its inbox is empty
//! (`Inbox::is_empty_at_rest`). A sender first writes the inbox and then asks whether the kernel
//! sleeps. Both use read-modify-writes of the inbox, so the later one sees the earlier one's write.

use crate::interrupt_line::InterruptLine;
use crate::revocable::Revocable;
use crate::sync::{AtomicU32, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// Whether a kernel sleeps and has not been woken: 1 if so.
#[derive(Debug)]
pub(crate) struct SleepFlag(AtomicU32);

impl SleepFlag {
    pub(crate) fn new() -> SleepFlag {
        SleepFlag(AtomicU32::new(0))
    }

    pub(crate) fn announce(&self) {
        // A swap, so that it is ordered after a late `claim_wakeup`, which then changes nothing.
        self.0.swap(1, Ordering::AcqRel);
    }

    /// Ends the sleep. Says whether a waker has claimed it, and writes to the eventfd.
    pub(crate) fn end(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) == 0
    }

    /// Says whether the kernel sleeps and the caller, and no other waker, has to wake it.
    pub(crate) fn claim_wakeup(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1 && self.0.swap(0, Ordering::AcqRel) == 1
    }
}

/// See the module.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Wakeup {
    pub(crate) sleep: SleepFlag,
    descriptor: OwnedFd,
    pub(crate) interrupt_line: Revocable<InterruptLine>,
}

impl Wakeup {
    pub(crate) fn new() -> io::Result<Wakeup> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Wakeup { sleep: SleepFlag::new(), descriptor, interrupt_line: Revocable::empty() })
    }

    pub(crate) fn wake(&self) {
        if self.sleep.claim_wakeup() {
            // Fails only after 2^64 - 2 wakeups that nobody has read.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        } else {
            self.interrupt_line.with(InterruptLine::raise);
        }
    }

    /// The eventfd, which is readable once a waker has claimed the sleep.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Ends the sleep that `announce` began, and empties the eventfd.
    pub(crate) fn end_sleep(&self) {
        if self.sleep.end() {
            // Blocks until the waker that has claimed the sleep has written.
            let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        }
    }
}
