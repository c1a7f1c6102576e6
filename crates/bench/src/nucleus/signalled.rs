//! When the timer's signal came: what a kernel adds to a latency is what comes after it. What comes
//! before is the system's.

use crate::service::now_ns;
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The kernel's own handler, which was there before.
static BEFORE: AtomicUsize = AtomicUsize::new(0);
/// When the last signal came. One OS thread at a time measures.
static AT_NS: AtomicU64 = AtomicU64::new(0);

extern "C" fn note(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    AT_NS.store(now_ns(), Relaxed);
    // SAFETY: `watch` has put it there, and it is a handler of this form.
    let before: Handler = unsafe { transmute(BEFORE.load(Relaxed)) };
    before(signal, info, context);
}

/// From now on each signal's time is noted, before the kernel's handler gets it. A kernel must have
/// begun to run.
pub fn watch() {
    if BEFORE.load(Relaxed) != 0 {
        return;
    }
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the action that is there, with another handler of the same form; the old one is
    // stored before the new one can run.
    unsafe {
        let result = libc::sigaction(libc::SIGURG, std::ptr::null(), action.as_mut_ptr());
        assert_eq!(result, 0, "sigaction of a signal that can be handled");
        let mut action = action.assume_init();
        assert!(action.sa_flags & libc::SA_SIGINFO != 0, "a kernel runs");
        BEFORE.store(action.sa_sigaction, Relaxed);
        action.sa_sigaction = note as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()), 0);
    }
}

pub fn last_ns() -> u64 {
    AT_NS.load(Relaxed)
}
