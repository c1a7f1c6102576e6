//! The kernel's clock, and the timer of its OS thread, which is set to the next tick or the next
//! deadline. The timer sends `SIGURG`: programs use it for nothing else, and a late one does no
//! harm.

use std::io;
use std::time::Duration;

/// The kernel's signal: of its timer, and of other OS threads that interrupt it.
pub(crate) const SIGNAL: libc::c_int = libc::SIGURG;

/// The time of CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A time that never comes.
pub(crate) const UNSET: u64 = u64::MAX;

/// The timer of one OS thread.
#[derive(Debug)]
pub(crate) struct Timer {
    id: libc::timer_t,
    tick_ns: Option<u64>,
    next_tick_ns: u64,
    /// The time at which the timer fires; `UNSET`: it is not armed.
    set_ns: u64,
}

impl Timer {
    /// Makes a timer that signals the calling OS thread.
    pub(crate) fn new(tick: Option<Duration>) -> io::Result<Timer> {
        // SAFETY: all zeroes is a value of this C structure.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut id = std::ptr::null_mut();
        // SAFETY: both pointers are to local variables.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut id) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let tick_ns = tick.map(|tick| tick.as_nanos() as u64);
        Ok(Timer { id, tick_ns, next_tick_ns: UNSET, set_ns: UNSET })
    }

    /// Begins to count ticks.
    pub(crate) fn start(&mut self, now_ns: u64) {
        self.next_tick_ns = self.tick_ns.map_or(UNSET, |tick_ns| now_ns + tick_ns);
    }

    /// Whether a tick is due. Several missed ticks count as one.
    pub(crate) fn take_tick(&mut self, now_ns: u64) -> bool {
        if self.set_ns <= now_ns {
            self.set_ns = UNSET;
        }
        let is_due = self.next_tick_ns <= now_ns;
        if let (true, Some(tick_ns)) = (is_due, self.tick_ns) {
            self.next_tick_ns = now_ns + tick_ns;
        }
        is_due
    }

    /// Arms the timer for the next tick or this deadline, unless it fires earlier anyway.
    #[inline]
    pub(crate) fn set(&mut self, deadline_ns: u64) {
        let next_ns = self.next_tick_ns.min(deadline_ns);
        if next_ns < self.set_ns {
            self.set_ns = next_ns;
            self.arm(next_ns);
        }
    }

    pub(crate) fn stop(&mut self) {
        if self.set_ns != UNSET {
            self.set_ns = UNSET;
            self.arm(0);
        }
    }

    /// Arms the timer; 0 disarms it. A time that has passed fires at once.
    fn arm(&self, at_ns: u64) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = libc::timespec {
            tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
        };
        let value = libc::itimerspec { it_interval: zero, it_value };
        // SAFETY: the timer is this one's, and the pointer is to a local variable.
        let result = unsafe {
            libc::timer_settime(self.id, libc::TIMER_ABSTIME, &value, std::ptr::null_mut())
        };
        assert_eq!(result, 0, "a timer of ours can be set to any time");
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: created by `new`, and used by nobody else.
        unsafe { libc::timer_delete(self.id) };
    }
}
