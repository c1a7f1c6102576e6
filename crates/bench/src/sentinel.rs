//! How late the machine itself is, beside a real-time thread: a thread of a higher priority on the
//! same processor wakes up at the same instants.
//!
//! The sentinel is in another process than the thread that it watches, so that only the host, the
//! kernel and interrupts can delay it. It wakes up twice in a period: when the other thread should
//! and [`LATER_NS`] later. So it also sees a stop of the processor that begins after its first
//! wake-up.
//!
//! ```text
//!   period * length + phase          + LATER_NS
//!   |  sentinel, and then the thread |  sentinel                         |  ...
//! ```

use crate::service::{now_ns, sleep_until};
use baton_rt::{Error, Options, SchedPriority};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

/// Above that of any thread that is watched.
const PRIORITY: u8 = 81;
/// From a period's first wake-up to its second one.
pub(crate) const LATER_NS: u64 = 100_000;

/// When periods begin: at multiples of their length on the monotonic clock, and a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub period_us: u32,
    pub phase_us: u32,
}

/// The thread.
pub(crate) struct Sentinel {
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<Result<Wakes, Error>>,
}

/// How late its two wake-ups were in each period, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    /// The number of the first period on the clock
    first: u64,
    late_ns: Vec<[u64; 2]>,
}

impl Beat {
    fn due_ns(self, number: u64) -> u64 {
        (number * u64::from(self.period_us) + u64::from(self.phase_us)) * 1000
    }

    /// The first period that begins after a time.
    fn after(self, now_ns: u64) -> u64 {
        let phase_ns = u64::from(self.phase_us) * 1000;
        now_ns.saturating_sub(phase_ns) / (u64::from(self.period_us) * 1000) + 1
    }
}

impl Sentinel {
    /// Starts it on a processor, for at most so many periods.
    pub fn start(cpu: usize, beat: Beat, most_periods: usize) -> Sentinel {
        let is_done = Arc::<AtomicBool>::default();
        let ending = is_done.clone();
        let thread = std::thread::spawn(move || {
            // Pages that are written have no faults later.
            let mut late_ns = vec![[u64::MAX; 2]; most_periods];
            let options = Options::new().priority(SchedPriority::fifo(PRIORITY)).cpus(vec![cpu]);
            let _guard = options.hold()?;
            let first = beat.after(now_ns());
            let mut n = 0;
            while n < most_periods && !ending.load(Relaxed) {
                let due_ns = beat.due_ns(first + n as u64);
                late_ns[n] = [due_ns, due_ns + LATER_NS].map(|due_ns| {
                    sleep_until(due_ns);
                    now_ns().saturating_sub(due_ns)
                });
                n += 1;
            }
            late_ns.truncate(n);
            Ok(Wakes { first, late_ns })
        });
        Sentinel { is_done, thread }
    }

    /// Ends it.
    ///
    /// # Errors
    /// The process may not have such a priority, or not that processor.
    pub fn finish(self) -> Result<Wakes, Error> {
        self.is_done.store(true, Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

impl Wakes {
    /// Those of so many periods from the one of a number on. `None` if it was not awake for all.
    pub fn of(&self, first: u64, n: usize) -> Option<&[[u64; 2]]> {
        let from = usize::try_from(first.checked_sub(self.first)?).ok()?;
        self.late_ns.get(from..from.checked_add(n)?)
    }
}

/// A thread's lateness without the machine's own. Periods in which the machine delayed the sentinel
/// by more than [`LATER_NS`] are left out: the processor was not there.
pub(crate) fn added_ns(late_ns: &[u64], machine_ns: &[[u64; 2]]) -> Vec<u64> {
    let is_there = |machine_ns: &[u64; 2]| machine_ns.iter().all(|&late_ns| late_ns <= LATER_NS);
    let both = late_ns.iter().zip(machine_ns);
    both.filter(|(_, machine_ns)| is_there(machine_ns))
        .map(|(&late_ns, machine_ns)| late_ns.saturating_sub(machine_ns[0]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_after_the_time_that_is_asked_for() {
        let beat = Beat { period_us: 10, phase_us: 3 };
        for (now_ns, number, due_ns) in
            [(0, 1, 13_000), (12_999, 1, 13_000), (13_000, 2, 23_000), (95_000, 10, 103_000)]
        {
            assert_eq!((beat.after(now_ns), beat.due_ns(number)), (number, due_ns), "{now_ns}");
        }
    }

    #[test]
    fn periods_are_found_by_their_numbers() {
        let wakes = Wakes { first: 7, late_ns: vec![[1, 2], [3, 4], [5, 6]] };
        for (first, n, expected) in [
            (7, 3, Some(&[[1, 2], [3, 4], [5, 6]][..])),
            (8, 1, Some(&[[3, 4]][..])),
            (8, 3, None),
            (6, 1, None),
            (u64::MAX, 1, None),
        ] {
            assert_eq!(wakes.of(first, n), expected, "{first} {n}");
        }
    }

    #[test]
    fn of_lateness_the_machines_own_is_taken_off() {
        const MORE_NS: u64 = LATER_NS + 1;
        for (late_ns, machine_ns, expected) in [
            (&[50, 70][..], &[[20, 0], [30, LATER_NS]][..], &[30, 40][..]),
            // A sentinel that was stopped for an instant after the thread was at work.
            (&[50], &[[60, 0]], &[0]),
            (&[900, 800], &[[MORE_NS, 0], [10, MORE_NS]], &[]),
            // The thread was stopped, and the machine was not.
            (&[9_000_000], &[[20, 20]], &[8_999_980]),
        ] {
            assert_eq!(added_ns(late_ns, machine_ns), expected, "{late_ns:?} {machine_ns:?}");
        }
    }
}
