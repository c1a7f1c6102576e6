//! JNI: what a call from Java to C takes (bench/vm/Native.java), on `baton dalvikvm` and on the
//! JDK's interpreter and compiler, with one library.
//!
//! A time is that of 1,000 calls, the loop included: of an empty Java method, of an empty function,
//! and of functions that add the 31 numbers of an array, copied or in place.

use crate::java_programs::{INTERPRETERS, Machine, numbers, program, run};
use crate::report::{Ratio, RowKey};
use crate::results::{P50, Results, ratio};
use crate::turns::{by_name, each_round};
use std::io;

const CASES: [&str; 4] = ["java", "empty", "copied", "in-place"];

fn key(machine: Machine, case: &'static str) -> RowKey {
    RowKey::new(machine.into(), "jni").with("call", case).heading(format!("1,000 calls: {case}"))
}

/// Nanoseconds of 1,000 calls, many times.
fn time(machine: Machine, case: &str, n_times: u32) -> io::Result<Vec<u64>> {
    let library = program("libvm-native.so")?;
    let directory = library.parent().expect("a file is in a directory").display();
    let mut command = machine.command(&[])?;
    command.arg(format!("-Djava.library.path={directory}"));
    command.args(["Native", case, &n_times.to_string()]);
    numbers(&run(command)?[0])
}

/// Measures all, machines in turn.
pub fn measure(found: &mut Results, rounds: u32, n_times: u32) {
    each_round(rounds, &CASES, by_name, |&case| {
        for machine in INTERPRETERS.into_iter().chain([Machine::Java]) {
            found.add_times(key(machine, case), time(machine, case, n_times));
        }
    });
}

/// How many times as long calls take here as on the JDK's machines.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for case in CASES {
        for (name, peer) in [("xint", Machine::JavaXint), ("java", Machine::Java)] {
            let [ours, theirs] =
                [Machine::BatonMarkSweep, peer].map(|machine| found.find(&key(machine, case)));
            let name = format!("jni_{}_over_{name}", case.replace('-', "_"));
            ratios.push(ratio(name, ours, theirs, P50, None));
        }
    }
    ratios
}
