//! A thread that wakes up at fixed times, and looks at how late it is; `cyclictest` of rt-tests,
//! with the same threads at the same places; and the load beside both.

use crate::service::{now_ns, sleep_until};
use baton_rt::{Error, Options, SchedPriority, memory};
use std::hint::black_box;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

pub const OURS: &str = "baton-latency";
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

pub const CYCLICTEST: &str = "cyclictest";

/// Wake-ups that are asked for beside those that count: it ends without telling of the last ones.
const SPARE_LOOPS: u32 = 250;

/// Why it could not measure.
#[derive(Debug, thiserror::Error)]
pub enum CyclictestError {
    /// There is no such program.
    #[error("cyclictest is not there: `apt-get install rt-tests`")]
    NotInstalled,
    /// The process could not be started.
    #[error("start cyclictest: {0}")]
    Start(io::Error),
    /// The process has failed, and said this.
    #[error("cyclictest: {0}")]
    Failed(String),
    /// The process has said too little.
    #[error("cyclictest tells of {0} wake-ups in place of {1}")]
    Short(usize, usize),
}

/// Every single delay, in nanoseconds: its own histogram would end at a bound.
pub fn cyclictest(
    period: &Period,
    places: &[Option<usize>],
) -> Result<Vec<Vec<u64>>, CyclictestError> {
    let mut command = Command::new("cyclictest");
    command.args(["--verbose", "--nsecs", "--mlockall", "--distance=0"]);
    command.arg(format!("--interval={}", period.interval_us));
    command.arg(format!("--loops={}", period.n_loops + SPARE_LOOPS));
    command.arg(format!("--threads={}", places.len()));
    match period.priority.and_then(SchedPriority::real_time) {
        Some(level) => command.arg(format!("--priority={level}")),
        None => command.arg("--policy=other"),
    };
    let cpus: Vec<String> = places.iter().flatten().map(usize::to_string).collect();
    if !cpus.is_empty() {
        command.arg(format!("--affinity={}", cpus.join(",")));
    }
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CyclictestError::NotInstalled,
        _ => CyclictestError::Start(error),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CyclictestError::Failed(said));
    }
    let mut wakings = parse(&String::from_utf8_lossy(&output.stdout), places.len());
    let wanted = period.n_loops as usize;
    wakings.iter_mut().for_each(|delays_ns| delays_ns.truncate(wanted));
    match wakings.iter().map(Vec::len).find(|&len| len != wanted) {
        Some(len) => Err(CyclictestError::Short(len, wanted)),
        None => Ok(wakings),
    }
}

/// Lines of thread, number and delay, with colons between.
fn parse(text: &str, n_threads: usize) -> Vec<Vec<u64>> {
    let mut wakings = vec![Vec::new(); n_threads];
    for line in text.lines() {
        let mut numbers = line.split(':').map(|word| word.trim().parse::<u64>());
        let (Some(Ok(thread)), Some(Ok(_)), Some(Ok(delay_ns)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        else {
            continue;
        };
        if let Some(delays_ns) = wakings.get_mut(thread as usize) {
            delays_ns.push(delay_ns);
        }
    }
    wakings
}

/// More than a core's own caches hold.
const WORDS: usize = (8 << 20) / size_of::<u64>();

/// The threads. Dropped, they end.
#[derive(Debug)]
pub struct Stress {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stress {
    /// Starts so many, and returns when all of them are at it.
    pub fn start(n_threads: usize) -> Stress {
        let stop = Arc::new(AtomicBool::new(false));
        let started = Arc::new(Barrier::new(n_threads + 1));
        let start = |seed| {
            let (stop, started) = (Arc::clone(&stop), Arc::clone(&started));
            std::thread::spawn(move || {
                let mut words = vec![seed; WORDS];
                started.wait();
                burn(&mut words, &stop);
            })
        };
        let threads = (0..n_threads as u64).map(start).collect();
        started.wait();
        Stress { stop, threads }
    }
}

fn burn(words: &mut [u64], stop: &AtomicBool) {
    let mut value = 1_u64;
    // Only an end that is seen some time: what is written by the way is nobody's.
    while !stop.load(Ordering::Relaxed) {
        for word in words.iter_mut() {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(*word | 1);
            *word = value;
        }
        black_box(&mut *words);
    }
}

impl Drop for Stress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
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

#[cfg(test)]
mod cyclictest_tests {
    use super::*;

    #[test]
    fn delays_are_found_among_what_else_is_said() {
        let text = "# /dev/cpu_dma_latency set to 0us\nThread 0 using cpu 1.\nThread 0 Interval: \
            1500\n\
                    \x20      0:       0:   30201\n       1:       0:   25711\n       0:       1:  \
                      9\n\
                    T: 0 (26312) P:80 I:1000 C: 2000 Min: 9502\n       7:       1:    9\n";
        assert_eq!(parse(text, 2), [vec![30201, 9], vec![25711]]);
    }
}
