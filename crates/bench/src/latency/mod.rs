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
//! - [`timer`]: the thread. [`cyclictest`]: the other one. [`stress`]: the load.
//! - [`results`]: all that was measured, as rows and ratios.

pub mod cyclictest;
mod results;
mod stress;
pub mod timer;

use crate::form::{self, BenchError, Finding, FormArgs, or_without};
use crate::pair::{Chunk, Pair, Place};
use crate::processors;
use crate::report::RowKey;
use crate::service::{STAMPED_BYTES, Service};
use crate::system::System;
use crate::testbed::{Setting, Testbed};
use crate::turns::each_round;
use baton_rt::schedule::{Prioritized, parse_cpus};
use baton_rt::{Paths, SchedPriority, idle, memory};
use results::{LEGS, LatencyResults};
use stress::Stress;
use timer::Period;

const NAME: &str = "latency";
const QUICK_LOOPS: u32 = 2_000;
/// The most threads of the load.
const MOST_LOAD: usize = 1024;
const N_WARM_UP: u32 = 100;

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
    #[arg(short, long, value_name = "US", default_value = "1000", value_parser = form::positive())]
    pub interval: u32,
    /// Wake-ups of each thread, and calls of each kind, all rounds together [default: 10000]
    #[arg(short, long, value_name = "N", value_parser = form::positive())]
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
    #[arg(long, value_name = "N", default_value = "0", value_parser = load)]
    pub load: usize,
    /// Measure wake-ups with cyclictest too, in turn
    #[arg(long)]
    pub beside_cyclictest: bool,
    /// No calls
    #[arg(long)]
    pub no_calls: bool,
    /// Rounds
    #[arg(long, value_name = "N", default_value = "5", value_parser = form::positive())]
    pub rounds: u32,
}

/// Processors that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(Vec<usize>);

fn cpus(text: &str) -> Result<Cpus, String> {
    match text {
        "all" => processors::allowed().map(Cpus).map_err(|errno| errno.to_string()),
        _ => {
            let listed = parse_cpus(text).ok_or("no list of processors as 0,2-3 is")?;
            let allowed = processors::allowed().map_err(|errno| errno.to_string())?;
            match listed.iter().find(|cpu| !allowed.contains(cpu)) {
                Some(cpu) => Err(format!("this process may not run on processor {cpu}")),
                None => Ok(Cpus(listed)),
            }
        }
    }
}

fn load(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= MOST_LOAD);
    number.ok_or_else(|| format!("a number of threads from 0 to {MOST_LOAD}"))
}

impl LatencyArgs {
    fn n_loops(&self) -> u32 {
        let default = if self.form.quick { QUICK_LOOPS } else { 10_000 };
        self.loops.unwrap_or(default).div_ceil(self.rounds)
    }

    /// Where threads are bound; one thread that is not, without -a.
    fn places(&self) -> Vec<Option<usize>> {
        match &self.cpus {
            None => vec![None],
            Some(Cpus(cpus)) => cpus.iter().copied().map(Some).collect(),
        }
    }

    fn loads(&self) -> Vec<usize> {
        if self.load == 0 { vec![0] } else { vec![0, self.load] }
    }
}

pub(crate) fn run(args: &LatencyArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let places = args.places();
    let _awake = or_without(NAME, idle::Bound::new(&Paths::default(), 0));
    let _locked = or_without(NAME, memory::Locked::new());
    let asked = (args.priority > 0).then_some(SchedPriority::fifo(args.priority));
    // Only to see whether it may be had.
    let priority = asked.filter(|&priority| or_without(NAME, Prioritized::new(priority)).is_some());
    let period = Period { interval_us: args.interval, n_loops: args.n_loops(), priority };
    let mut found = LatencyResults { priority, ..LatencyResults::default() };
    wake_ups(args, &period, &places, &mut found);
    if !args.no_calls {
        calls(args, &period, &setting, &mut found)?;
    }
    found.quote();
    let report = setting.report(NAME, args.rounds, found.rows(), found.ratios());
    let lead = "How late a thread wakes up at the time that it has asked for, and how long a call \
                takes to its handler (call) and back (return): how many are not longer, all rounds \
                together. Time is on a logarithmic axis, as are the nines of the share.";
    Ok(Finding::new(report, found.found.charts(), lead))
}

fn wake_ups(
    args: &LatencyArgs,
    period: &Period,
    places: &[Option<usize>],
    found: &mut LatencyResults,
) {
    let systems: &[_] =
        if args.beside_cyclictest { &[timer::NAME, cyclictest::NAME] } else { &[timer::NAME] };
    let title = |load: &usize| format!("wake-ups, load {load}");
    each_round(args.rounds, &args.loads(), title, |&load| {
        let _stress = Stress::start(load);
        for &system in systems {
            let round = match system {
                timer::NAME => period.measure(places).map_err(|error| error.to_string()),
                _ => cyclictest::measure(period, places).map_err(|error| error.to_string()),
            };
            let missing = RowKey::new(system, "wake-up");
            let round = found.found.ok(missing, round).unwrap_or_default();
            for (&place, delays_ns) in places.iter().zip(round) {
                let key = found.wake_up(system, load, place);
                found.found.add_times(key, Ok::<_, String>(delays_ns));
            }
        }
    });
}

fn calls(
    args: &LatencyArgs,
    period: &Period,
    setting: &Setting,
    found: &mut LatencyResults,
) -> Result<(), BenchError> {
    let testbed = Testbed::start()?;
    let placements: Vec<_> =
        [None].into_iter().chain(setting.placements().into_iter().map(Some)).collect();
    let system = System::BatonTyped;
    // Both at one priority, at which even the first call is served.
    let place = Place { priority: period.priority, ..testbed.place(Service::Stamp) };
    let missing = || RowKey::new(system.name(), LEGS[0]);
    let Some(mut pair) = found.found.ok(missing(), Pair::start(system, place)) else {
        return Ok(());
    };
    let n_warm_up = N_WARM_UP.min(period.n_loops);
    let title = |load: &usize| format!("calls, load {load}");
    each_round(args.rounds, &args.loads(), title, |&load| {
        let _stress = Stress::start(load);
        for &placement in &placements {
            let chunk = Chunk::new(placement, STAMPED_BYTES, n_warm_up, period.n_loops);
            let chunk = Chunk { delay_us: u64::from(period.interval_us), ..chunk };
            let points = pair.find(&chunk, &setting.processors);
            for (leg, times_ns) in found.found.ok(missing(), points).iter().flat_map(|it| legs(it))
            {
                let key = found.call(leg, load, placement);
                found.found.add_times(key, Ok::<_, String>(times_ns));
            }
        }
    });
    Ok(())
}

fn legs(points: &[Vec<u64>]) -> [(&'static str, Vec<u64>); 2] {
    let [received, replied, ended] = points else {
        unreachable!("a stamped message has three points")
    };
    let back = ended.iter().zip(replied).map(|(end, reply)| end.saturating_sub(*reply));
    [(LEGS[0], received.clone()), (LEGS[1], back.collect())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::CpuSet;

    #[test]
    fn processors_on_the_command_line() {
        let allowed = processors::allowed().unwrap();
        let words: Vec<String> = allowed.iter().map(usize::to_string).collect();
        assert_eq!(cpus(&words.join(",")), Ok(Cpus(allowed.clone())));
        assert_eq!(cpus("all"), Ok(Cpus(allowed)));
        assert!(cpus("1,").is_err());
        let wrong = cpus(&(CpuSet::MAX_CPU - 1).to_string()).unwrap_err();
        assert!(wrong.starts_with("this process may not run on processor "), "{wrong}");
    }

    #[test]
    fn a_load_has_so_many_threads_that_a_machine_can_start_them() {
        assert_eq!((load("0"), load("1024")), (Ok(0), Ok(1024)));
        for bad in ["1025", "-1", "many"] {
            assert!(load(bad).is_err(), "{bad}");
        }
    }
}
