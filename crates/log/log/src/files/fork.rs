//! This process's own log files, and their descriptors in children of fork.
//!
//! A child of fork has the parent's descriptors, which would keep the parent's files alive. A child
//! of the C library's fork closes them at once. A child that is made by a bare system call keeps
//! them until it executes another program.

use crate::files::lock;
use rustix::fd::{BorrowedFd, RawFd};
use rustix::fs::Stat;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Files whose descriptors children close, at most. Children keep those of further ones.
const MAX_FILES: usize = 64;
const NONE: RawFd = -1;

static FILES: [AtomicI32; MAX_FILES] = [const { AtomicI32::new(NONE) }; MAX_FILES];
/// An atomic and no `Once`: a child that is made during the registration would wait for ever.
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Lets children close this descriptor, until [`forget`].
pub(crate) fn remember(file: RawFd) {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: a function that lives for ever, and does only what a child of fork may do.
        unsafe { libc::pthread_atfork(None, None, Some(close_in_child)) };
    }
    let _ = FILES.iter().find(|place| {
        place.compare_exchange(NONE, file, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
}

/// Ends `remember`, before the descriptor is closed.
pub(crate) fn forget(file: RawFd) {
    for place in &FILES {
        let _ = place.compare_exchange(file, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

extern "C" fn close_in_child() {
    for place in &FILES {
        let file = place.swap(NONE, Ordering::AcqRel);
        if file != NONE {
            // SAFETY: a descriptor of the parent's log. No code of this child uses it, as its owner
            // was forgotten.
            unsafe { libc::close(file) };
        }
    }
}

/// Whether this is one of the process's own files.
pub(crate) fn is_ours(theirs: &Stat) -> bool {
    with_files(|file| {
        rustix::fs::fstat(file)
            .is_ok_and(|ours| (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino))
    })
}

/// Takes the process lock again, which the process has lost by closing a descriptor of its file.
pub(crate) fn hold_again() {
    with_files(|file| {
        let _ = lock::hold_process(file);
        false
    });
}

fn with_files(mut look: impl FnMut(BorrowedFd<'_>) -> bool) -> bool {
    let open = FILES.iter().map(|place| place.load(Ordering::Acquire)).filter(|&file| file != NONE);
    // SAFETY: the descriptor is open, except in the instant in which its owner closes it. Then the
    // call fails, or asks about another file.
    open.into_iter().any(|file| look(unsafe { BorrowedFd::borrow_raw(file) }))
}
