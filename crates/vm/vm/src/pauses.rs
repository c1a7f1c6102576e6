//! What collectors have cost a thread: its own work for them, and its waits.

use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::{Duration, Instant};

/// Why a thread did not go on with the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It came to a stage of a collection, and may have read its stack.
    Stage,
    /// Another thread stopped the program.
    Stop,
    /// It waited for memory.
    Memory,
    /// It waited for a collection that it had asked for, or collected itself.
    Collection,
}

const CAUSES: [Cause; 4] = [Cause::Stage, Cause::Stop, Cause::Memory, Cause::Collection];

impl Cause {
    /// A word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Stage => "stage",
            Cause::Stop => "stop",
            Cause::Memory => "memory",
            Cause::Collection => "collection",
        }
    }
}

/// One pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Why
    pub cause: Cause,
    /// When it began, by [`now_ns`]
    pub start_ns: u64,
    /// How long it took
    pub duration_ns: u64,
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The pauses of one thread.
#[derive(Debug, Default)]
pub struct Pauses {
    tallies: [Tally; CAUSES.len()],
    /// Where they are kept one by one, if somebody asks for them
    log: Option<Box<Log>>,
}

#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    longest_ns: AtomicU64,
}

/// Pauses that nobody has taken yet. The thread writes, and one other thread at a time reads.
#[derive(Debug)]
struct Log {
    entries: [[AtomicU64; 2]; MOST_PAUSES],
    n_written: AtomicU32,
    n_read: AtomicU32,
}

/// Pauses of a thread between two collections that are kept; others are only counted.
const MOST_PAUSES: usize = 256;
const CAUSE_BITS: u32 = 2;

impl Pauses {
    /// No pause yet. `are_kept` says whether each is to be kept until [`Pauses::take`].
    pub fn new(are_kept: bool) -> Pauses {
        let log = || {
            let entries = [const { [const { AtomicU64::new(0) }; 2] }; MOST_PAUSES];
            Box::new(Log { entries, n_written: AtomicU32::new(0), n_read: AtomicU32::new(0) })
        };
        Pauses { tallies: Default::default(), log: are_kept.then(log) }
    }

    /// Adds a pause that ends now. The calling thread is the one that paused.
    pub fn add(&self, since: Instant, cause: Cause) {
        let duration_ns = since.elapsed().as_nanos() as u64;
        let tally = &self.tallies[cause as usize];
        tally.count.fetch_add(1, Relaxed);
        tally.longest_ns.fetch_max(duration_ns, Relaxed);
        if let Some(log) = &self.log {
            let n = log.n_written.load(Relaxed);
            // Whoever reads has stored the number after it used the entries.
            if n.wrapping_sub(log.n_read.load(Acquire)) < MOST_PAUSES as u32 {
                let entry = &log.entries[n as usize % MOST_PAUSES];
                entry[0].store(now_ns() - duration_ns, Relaxed);
                entry[1].store(duration_ns << CAUSE_BITS | cause as u64, Relaxed);
                log.n_written.store(n.wrapping_add(1), Release);
            }
        }
    }

    /// Takes the pauses that were kept. One thread at a time calls this.
    pub fn take(&self, mut with: impl FnMut(Pause)) {
        let Some(log) = &self.log else { return };
        // Pairs with the store after an entry was written.
        let (mut n, end) = (log.n_read.load(Relaxed), log.n_written.load(Acquire));
        while n != end {
            let [start, rest] = &log.entries[n as usize % MOST_PAUSES];
            let (start_ns, rest) = (start.load(Relaxed), rest.load(Relaxed));
            let cause = CAUSES[(rest & ((1 << CAUSE_BITS) - 1)) as usize];
            with(Pause { cause, start_ns, duration_ns: rest >> CAUSE_BITS });
            n = n.wrapping_add(1);
        }
        log.n_read.store(n, Release);
    }

    /// For each cause that has occurred, how many pauses there were, and the longest.
    pub fn summary(&self) -> impl Iterator<Item = (Cause, u64, Duration)> {
        CAUSES.into_iter().zip(&self.tallies).filter_map(|(cause, tally)| {
            let count = tally.count.load(Relaxed);
            let longest = Duration::from_nanos(tally.longest_ns.load(Relaxed));
            (count > 0).then_some((cause, count, longest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_taken_once_and_counted_even_if_too_many_to_keep() {
        let pauses = Pauses::new(true);
        let since = Instant::now();
        pauses.add(since, Cause::Memory);
        let mut found = Vec::new();
        pauses.take(|pause| found.push(pause));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].cause, Cause::Memory);
        assert!(found[0].start_ns <= now_ns());
        pauses.take(|pause| panic!("{pause:?} was taken before"));
        (0..MOST_PAUSES + 7).for_each(|_| pauses.add(since, Cause::Stage));
        let mut n = 0;
        pauses.take(|pause| {
            assert_eq!(pause.cause, Cause::Stage);
            n += 1;
        });
        assert_eq!(n, MOST_PAUSES);
        let counts: Vec<_> = pauses.summary().map(|(cause, count, _)| (cause, count)).collect();
        assert_eq!(counts, [(Cause::Stage, MOST_PAUSES as u64 + 7), (Cause::Memory, 1)]);
    }
}
