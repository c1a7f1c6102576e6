//! What a kernel does that has nothing to do: it looks for letters for a while, if it was asked to,
//! and sleeps in the OS until a descriptor, a deadline or another kernel wakes it.

use crate::cluster::Seat;
use crate::host_state::HostState;
use crate::kernel::next_deadline_ns;
use crate::state::State;
use crate::timer::{UNSET, now_ns};
use crate::variant::Variant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::time::Duration;

/// The OS thread is bound to a processor, as long as this lives.
pub(crate) struct Bound {
    before: CpuSet,
}

impl Bound {
    pub(crate) fn to(processor: usize) -> Bound {
        let before = sched_getaffinity(None).expect("this thread's own");
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set).expect("a processor that is there");
        Bound { before }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Waits until something may have come. Says whether anything can.
pub(crate) fn wait<K: Variant>(state: &State<K>, host_state: &HostState) -> bool {
    let deadline_ns = next_deadline_ns(state, host_state);
    let descriptor = host_state.interrupts.descriptor().filter(|_| state.has_handlers());
    let wakes_itself = deadline_ns != UNSET || descriptor.is_some();
    match &host_state.seat {
        None if !wakes_itself => return false,
        None => sleep(descriptor, None, deadline_ns),
        Some(seat) => {
            if spin(seat, host_state.spin, deadline_ns) {
                return true;
            }
            let bell = seat.bell();
            bell.sleep.lie_down();
            // Letters that come after this look are rung for.
            let has_letters = seat.has_letters_at_rest();
            let goes_on = wakes_itself || has_letters || seat.rest();
            if goes_on && !has_letters {
                sleep(descriptor, Some(bell.descriptor()), deadline_ns);
            }
            bell.rise();
            return goes_on && (wakes_itself || seat.rise());
        }
    }
    true
}

/// Keeps the processor for a while. Says whether there are letters.
fn spin(seat: &Seat, most: Duration, deadline_ns: u64) -> bool {
    let until_ns =
        if most.is_zero() { 0 } else { deadline_ns.min(now_ns() + most.as_nanos() as u64) };
    loop {
        if seat.has_letters() {
            return true;
        }
        if until_ns == 0 || now_ns() >= until_ns {
            return false;
        }
        std::hint::spin_loop();
    }
}

/// Sleeps in the OS until a descriptor is readable or the time has come.
fn sleep(descriptor: Option<BorrowedFd>, bell: Option<BorrowedFd>, deadline_ns: u64) {
    let timeout = (deadline_ns != UNSET).then(|| {
        let left_ns = deadline_ns.saturating_sub(now_ns());
        Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as _,
        }
    });
    // Interrupted or not, the clock, the descriptors and the letters are looked at next.
    let _ = match (&descriptor, &bell) {
        (Some(one), Some(other)) => {
            let in_ = |fd| PollFd::new(fd, PollFlags::IN);
            poll(&mut [in_(one), in_(other)], timeout.as_ref())
        }
        (Some(one), None) | (None, Some(one)) => {
            poll(&mut [PollFd::new(one, PollFlags::IN)], timeout.as_ref())
        }
        (None, None) => poll(&mut [], timeout.as_ref()),
    };
}
