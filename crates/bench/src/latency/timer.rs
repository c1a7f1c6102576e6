//! A thread that wakes up at fixed times, and looks at how late it is.

use crate::service::{now_ns, sleep_until};
use baton_rt::{Error, Options, SchedPriority, memory};

pub const NAME: &str = "baton-latency";
/// A thread's own stack has room for it, and it uses less.
const STACK_BYTES: usize = 64 << 10;

/// When to wake up, how often, and how urgently.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    /// Time from one to the next, in microseconds.
    pub interval_us: u32,
    pub n_loops: u32,
    /// The threads' priority; `None` for ordinary ones.
    pub priority: Option<SchedPriority>,
}

impl Period {
    /// A thread at each place, all at once: how late each wake-up was, in nanoseconds.
    pub fn measure(&self, places: &[Option<usize>]) -> Result<Vec<Vec<u64>>, Error> {
        std::thread::scope(|scope| {
            let start = |&place| scope.spawn(move || self.at(place));
            let threads: Vec<_> = places.iter().map(start).collect();
            let joined =
                threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
            joined.collect()
        })
    }

    fn at(&self, place: Option<usize>) -> Result<Vec<u64>, Error> {
        let mut options = Options::new();
        if let Some(priority) = self.priority {
            options = options.priority(priority);
        }
        if let Some(cpu) = place {
            options = options.cpus(vec![cpu]);
        }
        let mut delays_ns = vec![u64::MAX; self.n_loops as usize];
        memory::prefault_stack(STACK_BYTES);
        let _guard = options.hold()?;
        self.wake_up(&mut delays_ns);
        Ok(delays_ns)
    }

    fn wake_up(&self, delays_ns: &mut [u64]) {
        let interval_ns = u64::from(self.interval_us) * 1_000;
        let mut due_ns = now_ns() + interval_ns;
        for delay_ns in delays_ns {
            sleep_until(due_ns);
            let now_ns = now_ns();
            *delay_ns = now_ns.saturating_sub(due_ns);
            // Times that have passed are left out: the next delay is not to have this one in it.
            due_ns += interval_ns * (1 + *delay_ns / interval_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_wakes_up_so_many_times_and_not_before() {
        let period = Period { interval_us: 100, n_loops: 50, priority: None };
        let before_ns = now_ns();
        let delays_ns = period.measure(&[None, None]).unwrap();
        assert!(now_ns() - before_ns >= 50 * 100_000);
        assert_eq!(delays_ns.iter().map(Vec::len).collect::<Vec<_>>(), [50, 50]);
        assert!(delays_ns.iter().flatten().all(|&delay_ns| delay_ns < u64::MAX));
    }
}
