//! Kernels of an interpreter's benchmark, and what more libraries cost them.
//!
//! The kernels are CaffeineMark's six kinds, and SciMark's five (bench/vm/Kernels.java). A run of a
//! kernel is a process, which computes the kernel several times. A machine's result that differs
//! from the JDK's is an error. The six kinds also run beside three more libraries, as in table 5.1
//! of the OKL4 thesis.

use crate::java_programs::{Machine, dalvikvm, misunderstood, number, program, run};
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, Results, ratio};
use crate::turns::{by_name, each_round};
use std::io;
use std::process::Command;

/// CaffeineMark's six kinds, and then SciMark's.
const KERNELS: [&str; 11] = [
    "sieve",
    "loop",
    "logic",
    "string",
    "float",
    "method",
    "fft",
    "sor",
    "monte-carlo",
    "sparse",
    "lu",
];
const N_KINDS: usize = 6;
const OURS: [Machine; 2] = [Machine::BatonMarkSweep, Machine::BatonCounting];
/// Times that a process computes its kernel.
const N_TIMES: usize = 3;
/// Files beside the class library and the kernels, and a class of each.
const LIBRARIES: [(&str, &str); 3] = [
    ("vm-android.dex", "android.content.Intent"),
    ("vm-binder.dex", "BinderEcho"),
    ("vm-junit.dex", "org.junit.Assert"),
];

/// A process's times of a kernel, in nanoseconds, and the kernel's result.
fn compute(
    mut command: Command,
    kernel: &str,
    libraries: &[&str],
) -> io::Result<(Vec<u64>, String)> {
    command.args(["Kernels", kernel, &N_TIMES.to_string()]).args(libraries);
    let [said, _] = run(command)?;
    let (mut times_ns, mut results) = (Vec::new(), Vec::new());
    for line in said.lines() {
        let (time_ns, result) = line.split_once(' ').ok_or_else(|| misunderstood(line))?;
        times_ns.push(number(time_ns)?);
        results.push(result);
    }
    match results.first() {
        Some(first) if results.len() == N_TIMES && results.iter().all(|it| it == first) => {
            Ok((times_ns, (*first).to_owned()))
        }
        _ => Err(misunderstood(&said)),
    }
}

/// Measures the kernels, machines in turn.
pub fn measure(found: &mut Results, rounds: u32) {
    each_round(rounds, &KERNELS, by_name, |kernel| round_of(found, kernel));
}

/// A kernel's round: other results than the JDK's are wrong ones.
fn round_of(found: &mut Results, kernel: &'static str) {
    let of = |machine: Machine| compute(machine.command(&[])?, kernel, &[]);
    let theirs = of(Machine::JavaXint);
    for machine in OURS {
        let ours = match (of(machine), &theirs) {
            (Ok((_, ours)), Ok((_, theirs))) if ours != *theirs => {
                Err(io::Error::other(format!("its result is {ours}, and the JDK's {theirs}")))
            }
            (ours, _) => ours,
        };
        found.add_times(machine.key(kernel), ours.map(|(times_ns, _)| times_ns));
    }
    found.add_times(Machine::JavaXint.key(kernel), theirs.map(|(times_ns, _)| times_ns));
}

/// How much longer the JDK's interpreter computes: for each kernel, and the geometric mean.
pub fn ratios(found: &Results) -> Vec<Ratio> {
    OURS.into_iter().zip([1.2, 1.0]).flat_map(|(machine, bar)| of(machine, bar, found)).collect()
}

fn of(machine: Machine, bar: f64, found: &Results) -> Vec<Ratio> {
    let name = format!("xint_over_{}", machine.word().trim_start_matches("baton_"));
    let of = |kernel: &'static str| {
        let [ours, theirs] = [machine, Machine::JavaXint].map(|it| found.find(&it.key(kernel)));
        ratio(format!("{name}_{}", kernel.replace('-', "_")), theirs, ours, P50, None)
    };
    let ratios: Vec<Ratio> = KERNELS.map(of).into();
    let values: Option<Vec<f64>> = ratios.iter().map(|ratio| ratio.value).collect();
    let mean = values.ok_or_else(|| "a kernel is missing".to_owned()).map(|values| {
        let sum: f64 = values.iter().map(|value| value.ln()).sum();
        ((sum / values.len() as f64).exp(), None)
    });
    let mean = Ratio::new(name, mean, Some(Bar::AtLeast(bar)));
    ratios.into_iter().chain([mean]).collect()
}

/// Measures the six kinds with two libraries and with five, in turn.
pub fn measure_libraries(found: &mut Results, rounds: u32) {
    each_round(rounds, &KERNELS[..N_KINDS], by_name, |kernel| {
        for n_more in [0, LIBRARIES.len()] {
            let done = with_libraries(kernel, &LIBRARIES[..n_more]);
            found.add_times(libraries_key(kernel, n_more), done);
        }
    });
}

fn libraries_key(kernel: &str, n_more: usize) -> RowKey {
    let machine: &str = Machine::BatonMarkSweep.into();
    RowKey::new(machine, "libraries")
        .with("kernel", kernel)
        .with("libraries", 2 + n_more)
        .heading(format!("{kernel} beside libraries"))
}

fn with_libraries(kernel: &str, more: &[(&str, &str)]) -> io::Result<Vec<u64>> {
    let mut class_path = program("vm-kernels.dex")?.into_os_string();
    for (file, _) in more {
        class_path.push(":");
        class_path.push(program(file)?);
    }
    let mut command = dalvikvm()?;
    command.arg("-cp").arg(class_path);
    let classes: Vec<&str> = more.iter().map(|(_, class)| *class).collect();
    Ok(compute(command, kernel, &classes)?.0)
}

/// How much longer each kind computes with five libraries.
pub fn libraries_ratios(found: &Results) -> Vec<Ratio> {
    let of = |kernel: &&'static str| {
        let [five, two] =
            [LIBRARIES.len(), 0].map(|n_more| found.find(&libraries_key(kernel, n_more)));
        ratio(format!("libraries_5_over_2_{kernel}"), five, two, P50, None)
    };
    KERNELS[..N_KINDS].iter().map(of).collect()
}
