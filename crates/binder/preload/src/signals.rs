//! Functions that could block or replace SIGSYS, which Baton needs while system calls are trapped.
//!
//! The kernel kills a process whose trap finds SIGSYS blocked. So these functions remove SIGSYS
//! from every set that a thread or handler would block, and only record a handler for it. The
//! program is told that its request succeeded. A SIGSYS that does not come from a Binder call goes
//! to the recorded handler.
//!
//! A wait with a mask (`sigsuspend`, [`ppoll`](crate::poll)) is among them: the handlers of its
//! signals run with its mask, before the kernel restores the thread's. `posix_spawnattr_setsigmask`
//! is not: the child makes no trapped call before the new program's constructor unblocks SIGSYS.
//! `sigwait`, `sigtimedwait` and `signalfd` take a set of signals to receive, and block none.

use crate::real;
use arc_swap::ArcSwapOption;
use libc::{
    SIGSYS, c_int, c_void, epoll_event, pthread_attr_t, sigaction as SigAction, sighandler_t,
    siginfo_t, sigset_t, timespec,
};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program's action for SIGSYS, as the program believes. `None` is the default action.
static RECORDED: ArcSwapOption<SigAction> = ArcSwapOption::const_empty();

/// Whether Baton's handler is installed. Set once, in the constructor.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// Whether Baton handles SIGSYS.
pub fn is_handled() -> bool {
    HANDLED.load(Ordering::Relaxed)
}

/// Records that Baton handles SIGSYS from now on.
pub fn set_handled() {
    HANDLED.store(true, Ordering::Relaxed);
}

/// The default action.
fn default_action() -> SigAction {
    // SAFETY: zeroes are SIG_DFL, an empty mask and no flags.
    unsafe { zeroed() }
}

/// Records the program's action for SIGSYS and returns the previous one.
fn record(new: Option<SigAction>) -> SigAction {
    let old = match new {
        Some(action) => RECORDED.swap(Some(Arc::new(action))),
        None => RECORDED.load_full(),
    };
    old.map_or_else(default_action, |action| *action)
}

/// Whether an action is a function, and neither the default nor to ignore the signal.
fn is_handler(action: sighandler_t) -> bool {
    action != libc::SIG_DFL && action != libc::SIG_IGN
}

/// A copy of the set without SIGSYS.
///
/// # Safety
/// `set` points to a signal set of the kernel's, with which the C library's begins.
unsafe fn without_sigsys(set: *const sigset_t) -> sigset_t {
    // SAFETY: zeroes are an empty set, which is longer than the kernel's. The rest is by this
    // function's contract; SIGSYS is a valid signal.
    unsafe {
        let mut copy: sigset_t = zeroed();
        (&raw mut copy).cast::<u64>().write(set.cast::<u64>().read_unaligned());
        libc::sigdelset(&mut copy, SIGSYS);
        copy
    }
}

/// Calls `function` with a mask that does not block SIGSYS where Baton handles that: with the
/// caller's, which may be null, or with a copy.
///
/// # Safety
/// `mask` is null or as for [`without_sigsys`].
pub unsafe fn with_sigsys_unblocked<T>(
    mask: *const sigset_t,
    function: impl FnOnce(*const sigset_t) -> T,
) -> T {
    if mask.is_null() || !is_handled() {
        return function(mask);
    }
    // SAFETY: by this function's contract.
    function(&unsafe { without_sigsys(mask) })
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const SigAction,
    old: *mut SigAction,
) -> c_int {
    // SAFETY: the caller's arguments, where a copy may replace the action.
    unsafe {
        let mut action = new.as_ref().copied();
        let restarts = |action: &SigAction| {
            action.sa_flags & libc::SA_RESTART != 0 && is_handler(action.sa_sigaction)
        };
        if action.as_ref().is_some_and(restarts) {
            baton_driver::device::handlers_restart();
        }
        if !is_handled() {
            return real::sigaction(signal, new, old);
        }
        if signal == SIGSYS {
            let before = record(action);
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
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// The contract of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            if is_handler(handler) {
                // Handlers that these functions install mostly restart system calls.
                baton_driver::device::handlers_restart();
            }
            if signal != SIGSYS || !is_handled() {
                // SAFETY: the caller's arguments.
                return unsafe { real::$name(signal, handler) };
            }
            record(Some(SigAction { sa_sigaction: handler, ..default_action() })).sa_sigaction
        }
    )*};
}

signals! { signal bsd_signal sysv_signal __sysv_signal }

macro_rules! masks {
    ($($name:ident)*) => {$(
        /// Interposes the C library's function of this name.
        ///
        /// # Safety
        /// The contract of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            how: c_int, set: *const sigset_t, old: *mut sigset_t,
        ) -> c_int {
            // SAFETY: the caller's arguments, where a copy may replace the set.
            unsafe {
                if how == libc::SIG_UNBLOCK {
                    return real::$name(how, set, old);
                }
                with_sigsys_unblocked(set, |set| real::$name(how, set, old))
            }
        }
    )*};
}

masks! { sigprocmask pthread_sigmask }

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(mask: *const sigset_t) -> c_int {
    // SAFETY: the caller's argument, where a copy may replace the set; also below.
    unsafe { with_sigsys_unblocked(mask, |mask| real::sigsuspend(mask)) }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        with_sigsys_unblocked(mask, |mask| {
            real::epoll_pwait(epoll, events, count, timeout_ms, mask)
        })
    }
}

/// Interposes the C library's function of this name.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        with_sigsys_unblocked(mask, |mask| real::epoll_pwait2(epoll, events, count, timeout, mask))
    }
}

/// Interposes the C library's function of this name: a new thread starts with the mask.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_attr_setsigmask_np(
    attributes: *mut pthread_attr_t,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        with_sigsys_unblocked(mask, |mask| real::pthread_attr_setsigmask_np(attributes, mask))
    }
}

/// Unblocks SIGSYS in the calling thread, because a mask survives `exec`.
pub fn unblock() {
    // SAFETY: a signal set on the stack, emptied before use. The real function is called, since the
    // interposed one would hide SIGSYS.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGSYS);
        real::pthread_sigmask(libc::SIG_UNBLOCK, &set, null_mut());
    }
}

/// Delivers a SIGSYS that does not come from a trap as the program would have received it.
///
/// # Safety
/// The arguments are those of a signal handler.
pub unsafe fn deliver(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let recorded = RECORDED.load_full();
    // SAFETY: a handler recorded by `sigaction` has the form that its flags say; the other case
    // ends the process like the default action.
    unsafe {
        match recorded.as_deref() {
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
            // A process sent the signal (si_code is not positive), and the program ignores it.
            Some(action) if action.sa_sigaction == libc::SIG_IGN && (*info).si_code <= 0 => {}
            _ => {
                real::sigaction(SIGSYS, &default_action(), null_mut());
                libc::raise(SIGSYS);
            }
        }
    }
}
