//! `baton bench vm`: Java programs on `baton dalvikvm`, beside the JDK's interpreter.
//!
//! - *kernels*: the six kinds of CaffeineMark, and SciMark's five (bench/vm/Kernels.java). A run of
//!   a kernel is a process, which computes the kernel several times. Its results are compared.
//! - *binder*: round trips of Java's Binder classes: see [`java_binder`].
//! - *collectors*: what the collectors cost, and whom they stop: see [`java_collectors`].
//! - *start*: from the start of a process to `main` (bench/vm/Hello.java).

use crate::form::{self, BenchError, Finding, FormArgs, progress};
use crate::report::{Bar, Keys, Ratio, RowKey};
use crate::results::{P50, Results, ratio};
use crate::testbed::Setting;
use crate::{java_binder, java_collectors};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use strum::VariantArray;

const NAME: &str = "vm";
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
/// Calls of a Java client in a round.
const N_CALLS: u32 = 20_000;
const QUICK_CALLS: u32 = 5_000;
const OURS: [Machine; 2] = [Machine::BatonMarkSweep, Machine::BatonCounting];
/// Times that a process computes its kernel.
const N_TIMES: usize = 3;
/// Starts in a round.
const N_STARTS: usize = 5;
/// A clock of milliseconds tells when `main` runs.
const MILLISECOND_NS: u64 = 1_000_000;

/// Periods of a real-time thread in a round, 10 ms each.
const N_PERIODS: u32 = 1000;
const QUICK_PERIODS: u32 = 100;

/// How it is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Every figure is the median of the rounds, \
with the least and greatest round beside it. It needs a JDK and the programs that `bench/vm/build` \
makes.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct VmArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// Only these parts
    #[arg(
        long, value_name = "LIST", value_enum, value_delimiter = ',',
        default_values_t = Part::VARIANTS.to_vec()
    )]
    pub parts: Vec<Part>,
    /// Rounds [default: 5, quick 1]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub rounds: Option<u32>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, VariantArray, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Part {
    /// Kernels of six kinds, and SciMark's.
    Kernels,
    /// From the start of a process to `main`.
    Start,
    /// Calls of a Java service by a Java client.
    Binder,
    /// A real-time thread beside one that makes garbage, and what the collectors cost.
    Collectors,
}

/// A virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
enum Machine {
    /// `baton dalvikvm`, with the collector that stops the world.
    BatonMarkSweep,
    /// `baton dalvikvm`, with the collector that counts.
    BatonCounting,
    /// The JDK's interpreter.
    JavaXint,
}

impl Machine {
    /// A program on this machine.
    fn command(self) -> io::Result<Command> {
        Ok(match self {
            Machine::BatonMarkSweep | Machine::BatonCounting => {
                let collector = match self {
                    Machine::BatonCounting => "-Xgc:counting",
                    _ => "-Xgc:mark-sweep",
                };
                let mut command = Command::new(baton()?);
                command.args(["dalvikvm", collector, "-cp"]).arg(program("vm-kernels.dex")?);
                command
            }
            Machine::JavaXint => {
                let mut command = Command::new("java");
                command.args(["-Xint", "-cp"]).arg(program("vm-kernels.jar")?);
                command
            }
        })
    }

    fn key(self, case: &'static str) -> RowKey {
        RowKey::new(self.into(), case).heading(case.to_owned())
    }
}

fn program(name: &str) -> io::Result<PathBuf> {
    beside(name, "`bench/vm/build` builds it")
}

/// `baton`, and the class path of the programs for Binder.
fn binder_program() -> io::Result<(PathBuf, String)> {
    let paths = ["vm-android.dex", "vm-binder.dex"].map(program);
    let [android, programs] = paths;
    let class_path = format!("{}:{}", android?.display(), programs?.display());
    Ok((baton()?, class_path))
}

fn baton() -> io::Result<PathBuf> {
    beside("baton", "`make build` builds it")
}

fn beside(name: &str, advice: &str) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    let missing = || io::Error::other(format!("{name} is not there: {advice}"));
    if path.exists() { Ok(path) } else { Err(missing()) }
}

/// Runs a program, and returns its output.
fn output(mut command: Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        io::Error::other(format!("{}: {error}", command.get_program().display()))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("nothing");
        return Err(io::Error::other(format!("it ends with {}, saying {last}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

fn misunderstood(line: &str) -> io::Error {
    io::Error::other(format!("it says {line:?}"))
}

/// A process's times of a kernel, in nanoseconds, and the kernel's result.
fn compute(machine: Machine, kernel: &str) -> io::Result<(Vec<u64>, String)> {
    let mut command = machine.command()?;
    command.args(["Kernels", kernel, &N_TIMES.to_string()]);
    let said = output(command)?;
    let (mut times_ns, mut results) = (Vec::new(), Vec::new());
    for line in said.lines() {
        let (time_ns, result) = line.split_once(' ').ok_or_else(|| misunderstood(line))?;
        times_ns.push(time_ns.parse().map_err(|_| misunderstood(line))?);
        results.push(result);
    }
    match results.first() {
        Some(first) if results.len() == N_TIMES && results.iter().all(|it| it == first) => {
            Ok((times_ns, (*first).to_owned()))
        }
        _ => Err(misunderstood(&said)),
    }
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

pub fn vm(args: &VmArgs) -> ExitCode {
    form::finish(NAME, &args.form, run(args))
}

fn run(args: &VmArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let rounds = args.rounds.unwrap_or(if args.form.quick { 1 } else { 5 });
    let mut found = measure(&args.parts, rounds);
    if args.parts.contains(&Part::Binder) {
        let n_calls = if args.form.quick { QUICK_CALLS } else { N_CALLS };
        java_binder::measure(&mut found, &setting, &binder_program, (rounds, n_calls))?;
    }
    if args.parts.contains(&Part::Collectors) {
        let n_periods = if args.form.quick { QUICK_PERIODS } else { N_PERIODS };
        java_collectors::measure(&mut found, &programs, rounds, n_periods);
    }
    let mut ratios = Vec::new();
    for part in &args.parts {
        match part {
            Part::Kernels => ratios.extend(of_kernels(&found)),
            Part::Start => ratios.push(of_start(&found)),
            Part::Binder => ratios.extend(java_binder::ratios(&found, &setting)),
            Part::Collectors => ratios.extend(java_collectors::ratios(&found)),
        }
    }
    let report = setting.report(NAME, rounds, found.rows(|_, _| Keys::new()), ratios);
    let lead = "How long a program computes, and how long a process takes to its main: how many \
                times are not longer, all rounds together. Time is on a logarithmic axis, as are \
                the nines of the share.";
    Ok(Finding::new(report, found.charts(), lead))
}

/// Both machines take turns in each case.
fn measure(parts: &[Part], rounds: u32) -> Results {
    let mut found = Results::default();
    let n_cases = parts.iter().map(|part| match part {
        Part::Kernels => KERNELS.len(),
        Part::Start => 1,
        // They have a progress of their own.
        Part::Binder | Part::Collectors => 0,
    });
    let progress = progress(rounds as usize * n_cases.sum::<usize>());
    for _ in 0..rounds {
        for part in parts {
            match part {
                Part::Kernels => {
                    for kernel in KERNELS {
                        progress.set_message(kernel);
                        round_of(&mut found, kernel);
                        progress.inc(1);
                    }
                }
                Part::Start => {
                    progress.set_message("start");
                    for machine in Machine::VARIANTS {
                        let times_ns = (0..N_STARTS).map(|_| start(*machine));
                        let times_ns: io::Result<Vec<u64>> = times_ns.collect();
                        found.add_times(machine.key("start"), times_ns);
                    }
                    progress.inc(1);
                }
                Part::Binder | Part::Collectors => {}
            }
        }
    }
    progress.finish_and_clear();
    found
}

/// The programs of the part on collectors.
fn programs() -> io::Result<java_collectors::Programs> {
    let (dex, jar) = (program("vm-kernels.dex")?, program("vm-kernels.jar")?);
    Ok(java_collectors::Programs { baton: baton()?, dex, jar })
}

/// A kernel's round: other results than the JDK's are wrong ones.
fn round_of(found: &mut Results, kernel: &'static str) {
    let theirs = compute(Machine::JavaXint, kernel);
    for machine in OURS {
        let ours = match (compute(machine, kernel), &theirs) {
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
fn of_kernels(found: &Results) -> Vec<Ratio> {
    OURS.into_iter().zip([1.2, 1.0]).flat_map(|(machine, bar)| of(machine, bar, found)).collect()
}

fn of(machine: Machine, bar: f64, found: &Results) -> Vec<Ratio> {
    let name: &str = machine.into();
    let name = format!("xint_over_{}", name.trim_start_matches("baton-").replace('-', "_"));
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

/// Milliseconds.
fn of_start(found: &Results) -> Ratio {
    let median_ms = found.find(&Machine::BatonMarkSweep.key("start")).and_then(|rounds| {
        let medians = P50(rounds).into_iter().map(|ns| ns / MILLISECOND_NS as f64);
        let spread = crate::distribution::Spread::of(medians).ok_or("no round")?;
        Ok((spread.median, Some(spread)))
    });
    Ratio::new("start_ms", median_ms, Some(Bar::AtMost(40.0)))
}
