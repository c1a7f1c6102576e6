//! Interrupts a system call of the calling thread that waits for too long.

#![expect(unsafe_code, reason = "a timer that signals one thread, which rustix lacks")]

use std::sync::Once;

/// A signal that nobody else sends to the thread, and that is ignored without a handler.
const SIGNAL: i32 = libc::SIGURG;
/// Time until the signal comes, and until it comes again.
const MOMENT_NS: i64 = 100_000;

extern "C" fn nothing(_: i32) {}

/// Runs `body`. A wait in it that signals interrupt ends after a moment, as do the waits after it
/// in the same system call. If the system has no timer to spare, no wait is interrupted.
pub(crate) fn interrupted_after_a_moment(body: impl FnOnce()) {
    let timer = Timer::start();
    body();
    drop(timer);
}

struct Timer(libc::timer_t);

impl Timer {
    /// Starts to signal the calling thread.
    fn start() -> Option<Timer> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(install_handler);
        unblock();
        // SAFETY: all zeroes is a value of this C structure.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut id = std::ptr::null_mut();
        // SAFETY: both pointers are to local variables.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut id) } != 0 {
            return None;
        }
        let timer = Timer(id);
        let moment = libc::timespec { tv_sec: 0, tv_nsec: MOMENT_NS };
        let value = libc::itimerspec { it_interval: moment, it_value: moment };
        // SAFETY: the timer was just made, and the pointer is to a local variable.
        let set = unsafe { libc::timer_settime(timer.0, 0, &value, std::ptr::null_mut()) };
        (set == 0).then_some(timer)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: made by `start`, and used by nobody else.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Lets the signal reach the calling thread.
fn unblock() {
    // SAFETY: plain data; the mask is ours and initialised by the first call.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut());
    }
}

/// Installs the handler, unless the program has one of its own.
fn install_handler() {
    // SAFETY: zeroes are an empty mask and no flags; the handler does nothing.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(SIGNAL, std::ptr::null(), &mut before);
        if before.sa_sigaction == libc::SIG_DFL {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            libc::sigaction(SIGNAL, &action, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_wait_without_end_is_interrupted() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        for _ in 0..3 {
            interrupted_after_a_moment(|| {
                assert_eq!(rustix::io::read(&reader, &mut [0]), Err(Errno::INTR));
            });
        }
    }
}
