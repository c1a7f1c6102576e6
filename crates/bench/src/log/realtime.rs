//! A real-time writer among four ordinary ones, with somebody who follows: how long its records
//! take. Beside it, in the same rounds, the same thread with the floor's ring, which nobody else
//! sees: what the machine does to a writer that shares nothing.

use crate::distribution::Distribution;
use crate::log::floor::Floor;
use crate::log::log_writer::LogWriter;
use crate::log::role::Role;
use crate::log::step::quantile;
use crate::log::system::Ours;
use baton_log::Options;
use baton_log::moment::Source;
use baton_rt::SchedPriority;
use baton_rt::schedule::{Pinned, Prioritized};
use baton_shm::clock;
use std::io;
use std::thread;
use std::time::Duration;

/// Ordinary writers.
pub const N_ORDINARY: usize = 4;
const FIFO: SchedPriority = SchedPriority::fifo(50);
/// Of a writer that writes one record in each.
const PERIOD: Duration = Duration::from_millis(1);
/// Before each round at full speed: what has been done meanwhile is forgotten, as in other rows.
const PRACTICE: usize = 10_000;

/// How its records follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// One after the other.
    Full,
    /// One in a millisecond.
    Periodic,
}

impl Pace {
    /// As a row has it.
    pub fn case(self) -> &'static str {
        match self {
            Pace::Full => "real-time",
            Pace::Periodic => "real-time-periodic",
        }
    }

    fn n_records(self, quick: bool) -> usize {
        match (self, quick) {
            (Pace::Full, _) => 100_000,
            (Pace::Periodic, true) => 500,
            (Pace::Periodic, false) => 1000,
        }
    }
}

/// What came of all of them.
#[derive(Debug, Default)]
pub struct Times {
    /// One after the other.
    pub full: Rounds,
    /// One in a millisecond.
    pub periodic: Rounds,
    /// One after the other, to a ring that nobody else sees.
    pub floor: Rounds,
}

/// Times of single records, by rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    /// As the clock tells them.
    pub told: Distribution,
    /// Of each round the median and what 999 of 1000 do not exceed, within the clock's steps.
    pub quantiles: Vec<(f64, f64)>,
}

impl Rounds {
    fn add(&mut self, mut times_ns: Vec<u64>) {
        self.told.add_round(&times_ns);
        times_ns.sort_unstable();
        self.quantiles.extend(quantile(&times_ns, 0.5).zip(quantile(&times_ns, 0.999)));
    }
}

/// The writer's priority, as a row has it.
pub fn priority() -> String {
    FIFO.to_string()
}

/// Measures so many rounds, on a processor. The reason if the priority may not be had.
pub fn measure(rounds: u32, quick: bool, cpu: usize) -> io::Result<Times> {
    let directory = super::directory()?;
    let place = directory.path().join("log");
    let logger = Options::new().directory(&place).open();
    let mut log_writer = Ours::new(&logger);
    let mut alone = Floor::new(Source::best());
    let _crowd = Role::Crowd.start(&place, N_ORDINARY)?;
    let _follower = Role::Follower.start(&place, 1)?;
    thread::scope(|scope| {
        let measure = || {
            let _pinned = Pinned::new(&[cpu]).map_err(io::Error::other)?;
            let _prioritized = Prioritized::new(FIFO).map_err(io::Error::other)?;
            let mut times = Times::default();
            let n_records = Pace::Full.n_records(quick);
            for _ in 0..rounds {
                times.full.add(practised(&mut log_writer, n_records));
                times.floor.add(practised(&mut alone, n_records));
                times.periodic.add(periodic(&mut log_writer, Pace::Periodic.n_records(quick)));
            }
            Ok(times)
        };
        scope.spawn(measure).join().expect("a writer ends")
    })
}

fn practised(log_writer: &mut impl LogWriter, n_records: usize) -> Vec<u64> {
    log_writer.many(PRACTICE);
    log_writer.singles(n_records)
}

fn periodic(log_writer: &mut impl LogWriter, n_records: usize) -> Vec<u64> {
    let mut next_ns = clock::now_ns();
    let mut times = Vec::with_capacity(n_records);
    for _ in 0..n_records {
        next_ns += PERIOD.as_nanos() as u64;
        thread::sleep(Duration::from_nanos(next_ns.saturating_sub(clock::now_ns())));
        times.extend(log_writer.singles(1));
    }
    times
}
