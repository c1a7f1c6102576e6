//! From the start of a process to its `main` (bench/vm/Hello.java). All machines tell the time by
//! the system's monotonic clock.

use crate::java_programs::{INTERPRETERS, Machine, until_main};
use crate::report::{Bar, Ratio};
use crate::results::{P50, Results, median_in};
use crate::turns::{by_name, each_round};
use std::io;

/// Starts in a round.
const N_STARTS: usize = 5;

/// Measures starts, machines in turn.
pub fn measure(found: &mut Results, rounds: u32) {
    each_round(rounds, &INTERPRETERS, by_name, |&machine| {
        let times_ns: io::Result<Vec<u64>> = (0..N_STARTS).map(|_| start(machine)).collect();
        found.add_times(machine.key("start"), times_ns);
    });
}

fn start(machine: Machine) -> io::Result<u64> {
    let mut command = machine.command(&[])?;
    command.arg("Hello");
    until_main(command)
}

/// Milliseconds until `main`.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let rounds = found.find(&Machine::BatonMarkSweep.key("start"));
    vec![Ratio::new("start_ms", median_in(1e6, rounds, P50), Some(Bar::AtMost(40.0)))]
}
