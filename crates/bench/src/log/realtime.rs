//! A real-time writer among four ordinary ones, with somebody who follows: how long its records
//! take. Beside it, in the same rounds, the same thread with the floor's ring, which nobody else
//! sees: what the machine does to a writer that shares nothing.

use crate::log::floor::Floor;
use crate::log::log_writer::LogWriter;
use crate::log::results::{N_ORDINARY, PRIORITY, WriteRate, add_singles, real_time};
use crate::log::role::Role;
use crate::log::setup::{Ours, directory};
use crate::log::system::System;
use crate::results::Results;
use baton_log::Options;
use baton_log::moment::Source;
use baton_rt::schedule::{Pinned, Prioritized};
use baton_shm::clock;
use std::io;
use std::thread;
use std::time::Duration;

/// Records of a round at full speed.
const N_FULL: usize = 100_000;
/// Of a writer that writes one record in each.
const PERIOD: Duration = Duration::from_millis(1);
/// Before each round at full speed: what has been done meanwhile is forgotten, as in other rows.
const PRACTICE: usize = 10_000;

/// Measures so many rounds, on a processor. The reason if the priority may not be had.
pub fn measure(found: &mut Results, rounds: u32, quick: bool, cpu: usize) -> io::Result<()> {
    let directory = directory()?;
    let place = directory.path().join("log");
    let logger = Options::new().directory(&place).open();
    let mut log_writer = Ours::new(&logger);
    let mut alone = Floor::new(Source::best());
    let _others = Role::Writers { n_threads: N_ORDINARY }.start(&place)?;
    let _follower = Role::Follower.start(&place)?;
    let n_periodic = if quick { 500 } else { 1000 };
    let measure = || -> io::Result<()> {
        let _pinned = Pinned::new(&[cpu]).map_err(io::Error::other)?;
        let _prioritized = Prioritized::new(PRIORITY).map_err(io::Error::other)?;
        let (ours, floor) = (System::Baton(Source::best()), System::Floor(Source::best()));
        let mut add = |system, rate, times_ns| {
            found.add(real_time(system, rate), Ok::<_, io::Error>(times_ns), add_singles);
        };
        for _ in 0..rounds {
            add(ours, WriteRate::Full, practised(&mut log_writer));
            add(floor, WriteRate::Full, practised(&mut alone));
            add(ours, WriteRate::Periodic, periodic(&mut log_writer, n_periodic));
        }
        Ok(())
    };
    thread::scope(|scope| scope.spawn(measure).join().expect("a writer ends"))
}

fn practised(log_writer: &mut impl LogWriter) -> Vec<u64> {
    log_writer.many(PRACTICE);
    log_writer.singles(N_FULL)
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
