//! From the start of a process to its `main` (bench/vm/Hello.java). All machines tell the time by
//! the system's monotonic clock.

use crate::form::progress;
use crate::java_programs::{Machine, misunderstood, output};
use crate::report::{Bar, Ratio};
use crate::results::{Results, median_ms};
use baton_shm::clock::now_ns;
use std::io;
use strum::VariantArray;

/// Starts in a round.
const N_STARTS: usize = 5;

/// Measures starts, machines in turn.
pub fn measure(found: &mut Results, rounds: u32) {
    let progress = progress(rounds as usize);
    for _ in 0..rounds {
        for machine in Machine::VARIANTS {
            let times_ns = (0..N_STARTS).map(|_| start(*machine));
            let times_ns: io::Result<Vec<u64>> = times_ns.collect();
            found.add_times(machine.key("start"), times_ns);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
}

/// From the start of a process to its `main`, in nanoseconds.
fn start(machine: Machine) -> io::Result<u64> {
    let mut command = machine.command()?;
    command.arg("Hello");
    let before_ns = now_ns();
    let said = output(command)?;
    let at_main_ns: u64 = said.trim().parse().map_err(|_| misunderstood(&said))?;
    Ok(at_main_ns.saturating_sub(before_ns))
}

/// Milliseconds until `main`.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let rounds = found.find(&Machine::BatonMarkSweep.key("start"));
    vec![Ratio::new("start_ms", median_ms(rounds), Some(Bar::AtMost(40.0)))]
}
