//! The wait of a kernel whose threads cannot run: it polls its inbox for a while, if it was asked
//! to, and then sleeps in the OS until a descriptor, a deadline or another kernel wakes it.

use crate::cluster::Membership;
use crate::host_state::HostState;
use crate::state::State;
use crate::timer::{UNSET, now_ns};
use crate::variant::Variant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::time::Duration;

/// Binds the calling OS thread to one processor until it is dropped.
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
        // The system allowed this set before, so it does again.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The earliest deadline of a thread or a timer interrupt, or `UNSET`.
pub(crate) fn next_deadline_ns<K: Variant>(state: &State<K>, host_state: &HostState) -> u64 {
    state.next_deadline_ns().unwrap_or(UNSET).min(host_state.interrupts.next_ns())
}

/// Waits until something may have come. `false`: nothing can come any more, so the kernel returns.
pub(crate) fn wait<K: Variant>(state: &State<K>, host_state: &HostState) -> bool {
    let deadline_ns = next_deadline_ns(state, host_state);
    let descriptor = host_state.interrupts.descriptor().filter(|_| state.has_handlers());
    let wakes_itself = deadline_ns != UNSET || descriptor.is_some();
    match &host_state.membership {
        None if !wakes_itself => return false,
        None => sleep(descriptor, None, deadline_ns),
        Some(membership) => {
            if spin(membership, host_state.spin, deadline_ns) {
                return true;
            }
            let wakeup = membership.wakeup();
            wakeup.sleep.announce();
            // The sender of any change that this look misses finds the kernel asleep and wakes it.
            let has_changes = membership.has_changes_at_rest();
            let goes_on = wakes_itself || has_changes || membership.report_idle();
            if goes_on && !has_changes {
                sleep(descriptor, Some(wakeup.descriptor()), deadline_ns);
            }
            wakeup.end_sleep();
            return goes_on && (wakes_itself || membership.report_busy());
        }
    }
    true
}

/// Polls the inbox for at most `most`. Says whether a change is there.
fn spin(membership: &Membership, most: Duration, deadline_ns: u64) -> bool {
    let until_ns =
        if most.is_zero() { 0 } else { deadline_ns.min(now_ns() + most.as_nanos() as u64) };
    loop {
        if membership.has_changes() {
            return true;
        }
        if until_ns == 0 || now_ns() >= until_ns {
            return false;
        }
        std::hint::spin_loop();
    }
}

/// Sleeps in the OS until one of the descriptors is readable or the deadline has passed.
fn sleep(descriptor: Option<BorrowedFd>, wakeup: Option<BorrowedFd>, deadline_ns: u64) {
    let timeout = (deadline_ns != UNSET).then(|| {
        let left_ns = deadline_ns.saturating_sub(now_ns());
        Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as _,
        }
    });
    // The result does not matter: the kernel looks at the clock, the descriptors and its inbox
    // next.
    let _ = match (&descriptor, &wakeup) {
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
