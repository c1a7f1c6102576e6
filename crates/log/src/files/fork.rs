//! This process's own files of logs: who they are, and what its children do with them.
//!
//! A child of fork has the parent's descriptors, and would keep the parent's files alive. It closes
//! them at once, if it is made by the C library's fork; one that is made by a system call alone
//! keeps them until it executes another program.

use crate::files::lock;
use rustix::fd::{BorrowedFd, RawFd};
use rustix::fs::Stat;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Loggers that are open at once and whose children are looked after; those beyond are not.
const MAX_FILES: usize = 64;
const NONE: RawFd = -1;

static FILES: [AtomicI32; MAX_FILES] = [const { AtomicI32::new(NONE) }; MAX_FILES];
/// Nobody waits for who registers: a child that is made meanwhile would wait for good.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// From now on until [`forget`], children close this descriptor.
pub(crate) fn remember(file: RawFd) {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: a function that stays, and does what may be done in a child of fork.
        unsafe { libc::pthread_atfork(None, None, Some(close_in_child)) };
    }
    let _ = FILES.iter().find(|place| {
        place.compare_exchange(NONE, file, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
}

/// The descriptor is about to be closed.
pub(crate) fn forget(file: RawFd) {
    for place in &FILES {
        let _ = place.compare_exchange(file, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

extern "C" fn close_in_child() {
    for place in &FILES {
        let file = place.swap(NONE, Ordering::AcqRel);
        if file != NONE {
            // SAFETY: a descriptor of the parent's log, which nobody in this process uses: its
            // owner is forgotten.
            unsafe { libc::close(file) };
        }
    }
}

/// Whether this is one of our own files.
pub(crate) fn is_ours(theirs: &Stat) -> bool {
    with_files(|file| {
        rustix::fs::fstat(file)
            .is_ok_and(|ours| (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino))
    })
}

/// A descriptor of one of our own files was closed, and with it, a lock.
pub(crate) fn hold_again() {
    with_files(|file| {
        let _ = lock::hold_process(file);
        false
    });
}

fn with_files(mut look: impl FnMut(BorrowedFd<'_>) -> bool) -> bool {
    let open = FILES.iter().map(|place| place.load(Ordering::Acquire)).filter(|&file| file != NONE);
    // SAFETY: open, but for the instant in which its owner closes it: then a call fails, or asks
    // about another file.
    open.into_iter().any(|file| look(unsafe { BorrowedFd::borrow_raw(file) }))
}
