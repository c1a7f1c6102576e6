//! `baton latency`: how late a real-time thread wakes up, and where a call's time goes.
//!
//! The first is what `cyclictest` tells, and can be measured beside it. The second is RTAndroid's
//! pair of delays (Kalkov 2018, figure 6.3), over a call of the typed API between two processes:
//!
//! ```text
//!   client   t_pre ----.                  .----> t_post
//!   handler             `-> first .. last'
//!            |-- T_CALL --|        |- T_RET -|
//! ```
//!
//! - [`timer`]: the thread. [`call`]: the two delays. [`cyclictest`]: the other one. [`stress`]:
//!   what runs beside.
//! - [`found`]: all that was measured; [`show`]: as rows, tables, charts and ratios.

pub mod call;
pub mod cyclictest;
pub mod found;
pub mod show;
pub mod stress;
pub mod timer;

use crate::form::{self, BenchError, Finding, FormArgs, or_without, progress};
use crate::pair::PairError;
use crate::stage::Setting;
use baton_rt::schedule::{Prioritized, parse_cpus};
use baton_rt::{Paths, SchedPriority, idle, memory};
use found::Measured;
use std::process::ExitCode;
use stress::Stress;
use timer::Period;

const NAME: &str = "latency";
const QUICK_LOOPS: u32 = 2_000;

/// How it is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Priorities, locked memory and awake \
processors are used as far as this \
user may have them; what is missing is said on standard error. For a frequency that does not \
change, run it under \
`baton rt run --frequency max -- baton latency`.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct LatencyArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// Period, and pause between two calls, in microseconds
    #[arg(
        short, long, value_name = "US", default_value = "1000",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub interval: u32,
    /// Wake-ups of each thread, and calls of each kind, all rounds together [default: 10000]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: Option<u32>,
    /// SCHED_FIFO priority of threads, caller and server; 0 for ordinary ones
    #[arg(
        short, long, value_name = "N", default_value = "80",
        value_parser = clap::value_parser!(u8).range(0..=99)
    )]
    pub priority: u8,
    /// A thread for each of these processors, bound to it: 0,2-3; without a list for all [default:
    /// one, wherever it likes]
    #[arg(
        short = 'a', long, value_name = "LIST", num_args = 0..=1, default_missing_value = "all",
        value_parser = cpus
    )]
    pub cpus: Option<Cpus>,
    /// Measure also while so many ordinary threads compute and write memory
    #[arg(long, value_name = "N", default_value = "0")]
    pub load: usize,
    /// Measure wake-ups with cyclictest too, in turn
    #[arg(long)]
    pub beside_cyclictest: bool,
    /// No calls
    #[arg(long)]
    pub no_calls: bool,
    /// Rounds
    #[arg(
        long, value_name = "N", default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub rounds: u32,
}

/// Processors that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// Those that this process may use.
    All,
    /// These.
    List(Vec<usize>),
}

fn cpus(text: &str) -> Result<Cpus, &'static str> {
    match text {
        "all" => Ok(Cpus::All),
        _ => parse_cpus(text).map(Cpus::List).ok_or("no list of processors as 0,2-3 is"),
    }
}

impl LatencyArgs {
    /// Of one round.
    fn n_loops(&self) -> u32 {
        let default = if self.form.quick { QUICK_LOOPS } else { 10_000 };
        self.loops.unwrap_or(default).div_ceil(self.rounds)
    }

    /// Where threads are bound; one thread that is not, without -a.
    fn places(&self) -> Result<Vec<Option<usize>>, BenchError> {
        Ok(match &self.cpus {
            None => vec![None],
            Some(Cpus::List(cpus)) => cpus.iter().copied().map(Some).collect(),
            Some(Cpus::All) => {
                let set =
                    rustix::thread::sched_getaffinity(None).map_err(BenchError::Processors)?;
                let allowed = |&cpu: &usize| set.is_set(cpu);
                (0..rustix::thread::CpuSet::MAX_CPU).filter(allowed).map(Some).collect()
            }
        })
    }

    /// Numbers of threads that run beside.
    fn loads(&self) -> Vec<usize> {
        if self.load == 0 { vec![0] } else { vec![0, self.load] }
    }
}

/// Runs it and prints what it found.
pub fn latency(args: &LatencyArgs) -> ExitCode {
    form::finish(NAME, &args.form, run(args))
}

fn run(args: &LatencyArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let places = args.places()?;
    let _awake = or_without(NAME, idle::Bound::new(&Paths::default(), 0));
    let _locked = or_without(NAME, memory::Locked::new());
    let asked = (args.priority > 0).then_some(SchedPriority::fifo(args.priority));
    // Only to see whether it may be had.
    let priority = asked.filter(|&priority| or_without(NAME, Prioritized::new(priority)).is_some());
    let period = Period { interval_us: args.interval, n_loops: args.n_loops(), priority };
    let mut found = Measured { priority, ..Measured::default() };
    wake_ups(args, &period, &places, &mut found);
    if !args.no_calls {
        calls(args, &period, &setting, &mut found)?;
    }
    let mut report = setting.report(NAME, args.rounds, show::rows(&found));
    report.ratios = show::ratios(&found);
    let tables = show::tables(&report.rows);
    let page = show::page(&report, &found, &tables);
    Ok(Finding { report, tables, page })
}

fn wake_ups(args: &LatencyArgs, period: &Period, places: &[Option<usize>], found: &mut Measured) {
    let systems: &[_] =
        if args.beside_cyclictest { &[timer::NAME, cyclictest::NAME] } else { &[timer::NAME] };
    let progress = progress(args.rounds as usize * args.loads().len() * systems.len());
    for _ in 0..args.rounds {
        for load in args.loads() {
            let _stress = Stress::start(load);
            for &system in systems {
                progress.set_message(system);
                let measured = match system {
                    timer::NAME => period.measure(places).map_err(|error| error.to_string()),
                    _ => cyclictest::measure(period, places).map_err(|error| error.to_string()),
                };
                found.add(system, load, places, measured);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
}

fn calls(
    args: &LatencyArgs,
    period: &Period,
    setting: &Setting,
    found: &mut Measured,
) -> Result<(), BenchError> {
    let stage = crate::stage::Stage::set()?;
    let placements: Vec<_> =
        std::iter::once(None).chain(setting.placements().into_iter().map(Some)).collect();
    let progress = progress(args.rounds as usize * args.loads().len() * placements.len());
    let mut done = call::Caller::start(&stage, period.priority);
    for _ in 0..args.rounds {
        for load in args.loads() {
            let _stress = Stress::start(load);
            for &placement in &placements {
                progress.set_message("calls");
                let delays = done.as_mut().map_err(|error: &mut PairError| error.to_string());
                let delays = delays.and_then(|caller| {
                    caller
                        .measure(period, placement, &setting.processors)
                        .map_err(|error| error.to_string())
                });
                found.add_calls(placement, load, delays);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_on_the_command_line() {
        assert_eq!(cpus("all"), Ok(Cpus::All));
        assert_eq!(cpus("1,3"), Ok(Cpus::List(vec![1, 3])));
        assert!(cpus("1,").is_err());
    }
}
