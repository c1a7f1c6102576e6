//! SIGSYS is ours while system calls are trapped: a program can neither block nor replace it.
//!
//! The kernel kills a process whose trap finds SIGSYS blocked. So the signal is taken out of every
//! set that a thread or a handler would block it by, and a handler for it is only noted down; the
//! program is told that it got what it asked for. A SIGSYS that is no Binder call's goes to the
//! handler that was noted.

use crate::{real, trap};
use arc_swap::ArcSwapOption;
use libc::{SIGSYS, c_int, c_void, sigaction as SigAction, sighandler_t, siginfo_t, sigset_t};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// What the program believes to be installed for SIGSYS. `None`: the default.
static NOTED: ArcSwapOption<SigAction> = ArcSwapOption::const_empty();

/// An empty action, which is the default one.
fn default_action() -> SigAction {
    // SAFETY: zeroes are SIG_DFL, an empty mask and no flags.
    unsafe { zeroed() }
}

/// The program's `sigaction` for SIGSYS, in name only.
fn note(new: Option<SigAction>) -> SigAction {
    let old = match new {
        Some(action) => NOTED.swap(Some(Arc::new(action))),
        None => NOTED.load_full(),
    };
    old.map_or_else(default_action, |action| *action)
}

/// Whether this is a function, and neither the default nor to ignore the signal.
fn is_handler(action: sighandler_t) -> bool {
    action != libc::SIG_DFL && action != libc::SIG_IGN
}

/// A copy of the set without SIGSYS.
///
/// # Safety
/// `set` points to a signal set.
unsafe fn without_sigsys(set: *const sigset_t) -> sigset_t {
    // SAFETY: by this function's contract.
    let mut copy = unsafe { *set };
    // SAFETY: the copy is a valid set and SIGSYS a valid signal.
    unsafe { libc::sigdelset(&mut copy, SIGSYS) };
    copy
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const SigAction,
    old: *mut SigAction,
) -> c_int {
    // SAFETY: the caller's arguments, the action replaced by a copy of it at most.
    unsafe {
        let mut action = new.as_ref().copied();
        let restarts = |action: &SigAction| {
            action.sa_flags & libc::SA_RESTART != 0 && is_handler(action.sa_sigaction)
        };
        if action.as_ref().is_some_and(restarts) {
            baton_driver::device::handlers_restart();
        }
        if !trap::is_handled() {
            return real::sigaction(signal, new, old);
        }
        if signal == SIGSYS {
            let before = note(action);
            if !old.is_null() {
                *old = before;
            }
            return 0;
        }
        if let Some(action) = &mut action {
            action.sa_mask = without_sigsys(&action.sa_mask);
        }
        real::sigaction(signal, action.as_ref().map_or(null(), |action| action), old)
    }
}

macro_rules! signals {
    ($($name:ident)*) => {$(
        /// As the C library's.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            if is_handler(handler) {
                // Most of these restart system calls.
                baton_driver::device::handlers_restart();
            }
            if signal != SIGSYS || !trap::is_handled() {
                // SAFETY: the caller's arguments.
                return unsafe { real::$name(signal, handler) };
            }
            note(Some(SigAction { sa_sigaction: handler, ..default_action() })).sa_sigaction
        }
    )*};
}

signals! { signal bsd_signal sysv_signal __sysv_signal }

macro_rules! masks {
    ($($name:ident)*) => {$(
        /// As the C library's.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            how: c_int, set: *const sigset_t, old: *mut sigset_t,
        ) -> c_int {
            // SAFETY: the caller's arguments, the set replaced by a copy of it at most.
            unsafe {
                if set.is_null() || how == libc::SIG_UNBLOCK || !trap::is_handled() {
                    return real::$name(how, set, old);
                }
                real::$name(how, &without_sigsys(set), old)
            }
        }
    )*};
}

masks! { sigprocmask pthread_sigmask }

/// Unblocks SIGSYS in the calling thread: a mask survives `exec`.
pub fn unblock() {
    // SAFETY: a signal set on the stack, emptied before use; the real function, since ours would
    // take SIGSYS for something to hide.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGSYS);
        real::pthread_sigmask(libc::SIG_UNBLOCK, &set, null_mut());
    }
}

/// A SIGSYS that is not ours, as the program would have got it.
///
/// # Safety
/// The arguments are those of a signal handler.
pub unsafe fn deliver(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let noted = NOTED.load_full();
    // SAFETY: a handler noted by `sigaction` has the form that its flags say; the rest ends the
    // process as the default action does.
    unsafe {
        match noted.as_deref() {
            Some(action) if action.sa_sigaction > libc::SIG_IGN => {
                let handler = action.sa_sigaction as *const c_void;
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
                    std::mem::transmute::<*const c_void, Handler>(handler)(signal, info, context);
                } else {
                    type Handler = unsafe extern "C" fn(c_int);
                    std::mem::transmute::<*const c_void, Handler>(handler)(signal);
                }
            }
            // Sent by a process (si_code is not positive), and ignored.
            Some(action) if action.sa_sigaction == libc::SIG_IGN && (*info).si_code <= 0 => {}
            _ => {
                real::sigaction(SIGSYS, &default_action(), null_mut());
                libc::raise(SIGSYS);
            }
        }
    }
}
