//! JNI: what a call from Java to C takes (bench/vm/Native.java), on `baton dalvikvm` and on the
//! JDK's interpreter and compiler, with one library.
//!
//! A time is that of 1,000 calls, the loop included: of an empty Java method, of an empty function,
//! and of functions that add the 31 numbers of an array, copied or in place.

use crate::form::progress;
use crate::java_programs::{Machine, misunderstood, output, program};
use crate::report::{Ratio, RowKey};
use crate::results::{P50, Results, ratio};
use std::io;
use std::process::Command;

const CASES: [&str; 4] = ["java", "empty", "copied", "in-place"];
/// The machines: those that interpret, and the JDK with its compilers.
const MACHINES: [Option<Machine>; 4] =
    [Some(Machine::BatonMarkSweep), Some(Machine::BatonCounting), Some(Machine::JavaXint), None];

fn key(machine: Option<Machine>, case: &'static str) -> RowKey {
    let name = machine.map_or("java", Into::into);
    RowKey::new(name, "jni").with("call", case).heading(format!("1,000 calls: {case}"))
}

/// Nanoseconds of 1,000 calls, many times.
fn run(machine: Option<Machine>, case: &str, n_times: u32) -> io::Result<Vec<u64>> {
    let mut command = match machine {
        Some(machine) => machine.command()?,
        None => {
            let mut command = Command::new("java");
            command.arg("-cp").arg(program("vm-kernels.jar")?);
            command
        }
    };
    let library = program("libvm-native.so")?;
    let directory = library.parent().expect("a file is in a directory").display();
    command.arg(format!("-Djava.library.path={directory}"));
    command.args(["Native", case, &n_times.to_string()]);
    let said = output(command)?;
    said.lines().map(|line| line.parse().map_err(|_| misunderstood(line))).collect()
}

/// Measures all, machines in turn.
pub fn measure(found: &mut Results, rounds: u32, n_times: u32) {
    let progress = progress(rounds as usize * CASES.len());
    for _ in 0..rounds {
        for case in CASES {
            progress.set_message(case);
            for machine in MACHINES {
                found.add_times(key(machine, case), run(machine, case, n_times));
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
}

/// How many times as long calls take here as on the JDK's machines.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for case in CASES {
        for (name, peer) in [("xint", Some(Machine::JavaXint)), ("java", None)] {
            let [ours, theirs] = [Some(Machine::BatonMarkSweep), peer]
                .map(|machine| found.find(&key(machine, case)));
            let name = format!("jni_{}_over_{name}", case.replace('-', "_"));
            ratios.push(ratio(name, ours, theirs, P50, None));
        }
    }
    ratios
}
