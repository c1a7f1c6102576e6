//! From the start of a process to its `main` (bench/vm/Hello.java).

use crate::distribution::Spread;
use crate::form::progress;
use crate::java_programs::{Machine, misunderstood, output};
use crate::report::{Bar, Ratio};
use crate::results::{P50, Results};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};
use strum::VariantArray;

/// Starts in a round.
const N_STARTS: usize = 5;
/// A clock of milliseconds tells when `main` runs.
const MILLISECOND_NS: u64 = 1_000_000;

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

/// From the start of a process to its `main`, in nanoseconds, to a millisecond.
fn start(machine: Machine) -> io::Result<u64> {
    let mut command = machine.command()?;
    command.arg("Hello");
    let before = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    let said = output(command)?;
    let at_main_ms: u64 = said.trim().parse().map_err(|_| misunderstood(&said))?;
    Ok((at_main_ms * MILLISECOND_NS).saturating_sub(before.as_nanos() as u64))
}

/// Milliseconds until `main`.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let median_ms = found.find(&Machine::BatonMarkSweep.key("start")).and_then(|rounds| {
        let medians = P50(rounds).into_iter().map(|ns| ns / MILLISECOND_NS as f64);
        let spread = Spread::of(medians).ok_or("no round")?;
        Ok((spread.median, Some(spread)))
    });
    vec![Ratio::new("start_ms", median_ms, Some(Bar::AtMost(40.0)))]
}
