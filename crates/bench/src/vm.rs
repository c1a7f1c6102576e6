//! `baton bench vm`: Java programs on `baton dalvikvm`, beside the JDK's machines.
//!
//! - [`java_kernels`]: how fast it computes, and what more libraries cost.
//! - [`java_start`]: from the start of a process to `main`. [`java_zygote`]: the same from a
//!   zygote, and the memory of its children.
//! - [`java_binder`]: round trips of Java's Binder classes.
//! - [`java_jni`]: calls from Java to C.
//! - [`java_collectors`]: what the collectors cost, and whom they stop.
//!
//! [`java_programs`] finds the programs.
//!
//! [`java_programs`]: crate::java_programs

use crate::form::{self, BenchError, Finding, FormArgs};
use crate::results::Results;
use crate::testbed::Setting;
use crate::{java_binder, java_collectors, java_jni, java_kernels, java_start, java_zygote};
use strum::VariantArray;

const NAME: &str = "vm";
/// Calls of a Java client in a round.
const N_CALLS: u32 = 20_000;
const QUICK_CALLS: u32 = 5_000;

/// Times that a process makes 1,000 calls from Java to C, after as many to warm up.
const N_TIMES: u32 = 2000;
const QUICK_TIMES: u32 = 300;

/// Rounds of the real-time thread, and its periods in each: many short ones, in turn.
const LATE_ROUNDS: u32 = 12;
const N_PERIODS: u32 = 300;
const QUICK_PERIODS: u32 = 100;

/// How it is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Every figure is the median of the rounds, \
with the least and greatest round beside it. It needs a JDK and the programs that `bench/vm/build` \
makes.

Beside the real-time thread of the part `collectors`, a thread of a higher priority wakes up at \
the same instants on the same processor: the machine's own lateness. Bars are of p99.9 of the \
difference, of all rounds together (columns `all`). An interval that holds 95 of 100 draws of \
rounds decides: the bar holds at both of its ends, at none, or it is not decided. \
`--parts collectors --period-us 1000 --periods 3000` decides in 20 minutes, on an idle machine. \
It needs the right to real-time priorities, and `chrt` and `taskset`.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold or is \
not decided.")]
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
    /// Rounds [default: 5, of collectors 12, quick 1]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub rounds: Option<u32>,
    /// Periods of the real-time thread in a round [default: 300, quick 100]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub periods: Option<u32>,
    /// Length of such a period; the garbage of a second stays the same
    #[arg(
        long, value_name = "US", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(500..=100_000)
    )]
    pub period_us: u32,
    /// Objects that the real-time thread allocates in a period
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub objects: u32,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, VariantArray, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Part {
    /// Kernels of six kinds, and SciMark's.
    Kernels,
    /// The six kinds beside two libraries and beside five.
    Libraries,
    /// From the start of a process to `main`.
    Start,
    /// Calls of a Java service by a Java client.
    Binder,
    /// Calls from Java to C.
    Jni,
    /// A real-time thread beside one that makes garbage, and what the collectors cost.
    Collectors,
}

pub(crate) fn run(args: &VmArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let is_quick = args.form.quick;
    let rounds = args.rounds.unwrap_or(if is_quick { 1 } else { 5 });
    let (mut found, mut ratios) = (Results::default(), Vec::new());
    for part in &args.parts {
        match part {
            Part::Kernels => {
                java_kernels::measure(&mut found, rounds);
                ratios.extend(java_kernels::ratios(&found));
            }
            Part::Libraries => {
                java_kernels::measure_libraries(&mut found, rounds);
                ratios.extend(java_kernels::libraries_ratios(&found));
            }
            Part::Start => {
                java_start::measure(&mut found, rounds);
                ratios.extend(java_start::ratios(&found));
                java_zygote::measure(&mut found, rounds);
                ratios.extend(java_zygote::ratios(&found));
            }
            Part::Binder => {
                let n_calls = if is_quick { QUICK_CALLS } else { N_CALLS };
                java_binder::measure(&mut found, &setting, rounds, n_calls);
                ratios.extend(java_binder::ratios(&found, &setting));
            }
            Part::Jni => {
                let n_times = if is_quick { QUICK_TIMES } else { N_TIMES };
                java_jni::measure(&mut found, rounds, n_times);
                ratios.extend(java_jni::ratios(&found));
            }
            Part::Collectors => {
                let default = if is_quick { QUICK_PERIODS } else { N_PERIODS };
                let n_periods = args.periods.unwrap_or(default);
                let (period_us, n_objects) = (args.period_us, args.objects);
                let cpu = setting.processors.client;
                let work = java_collectors::Work { n_periods, period_us, n_objects, cpu };
                let default = if is_quick { 1 } else { LATE_ROUNDS };
                java_collectors::measure(&mut found, args.rounds.unwrap_or(default), work);
                ratios.extend(java_collectors::ratios(&found));
            }
        }
    }
    let report = setting.report(NAME, rounds, found.rows(java_collectors::keys), ratios);
    let lead = "How long a program computes, and how long a process takes to its main: how many \
                times are not longer, all rounds together. Time is on a logarithmic axis, as are \
                the nines of the share.";
    Ok(Finding::new(report, found.charts(), lead))
}
