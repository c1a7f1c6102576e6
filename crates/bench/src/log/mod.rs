//! `baton bench log`: what a record costs, beside other ways to write one.
//!
//! The test of Walker, *Android Logger vs. Shared Memory* (linux-kernel, March 2012): sixteen
//! messages in turn, as fast as one writer can, and as one writer on each processor can. Beside
//! ours the paper's own scheme, the least that any log could cost, and what others use.
//!
//! - [`messages`]; [`system`]: the systems, and how each is set up; [`log_writer`]: who writes the
//!   messages, and is measured.
//! - [`paper`]: the paper's scheme. Other peers are programs of their own, in bench/peers/log.
//! - [`realtime`]: a writer that must not be late; [`kill_test`]: writers that are killed;
//!   [`processes`]: the processes beside this one, and what they do.
//! - [`results`]: all that was measured, as rows and ratios.

mod kill_test;
pub mod log_writer;
mod messages;
mod paper;
pub(crate) mod processes;
mod realtime;
mod results;
mod system;

use crate::form::{self, BenchError, Finding, FormArgs, or_without, progress};
use crate::processors;
use crate::report::RowKey;
use crate::results::Rounds;
use crate::table::Unit;
use crate::testbed::Setting;
use baton_log::moment::Source;
use baton_rt::memory;
use log_writer::Length;
use results::{Count, LogResults, WriteRate, add_round, missing};

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use system::{MOST_TURNS, SYSTEMS, Setup, System};

const NAME: &str = "log";

/// How it is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Peers that are programs of their own are \
built by bench/peers/log/build; a \
row says why if one is not there.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct LogArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// Others' logs to measure beside: names, all or none
    #[arg(long, value_name = "LIST", default_value = "all", value_delimiter = ',')]
    pub peers: Vec<String>,
    /// Rounds [default: 31, quick 15]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub rounds: Option<u32>,
    /// Records of each writer in a round, fewer for what is slow [default: 400000, quick 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    pub records: Option<u32>,
}

impl LogArgs {
    fn n_rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.form.quick { 15 } else { 31 })
    }

    fn n_records(&self) -> usize {
        self.records.unwrap_or(if self.form.quick { 100_000 } else { 400_000 }) as usize
    }

    fn systems(&self) -> impl Iterator<Item = System> {
        let named = |name: &str| self.peers.iter().any(|peer| peer == name);
        let wanted = move |system: &System| {
            system.program().is_none() || named(system.name()) || named("all")
        };
        SYSTEMS.into_iter().map(|row| row.0).filter(wanted)
    }
}

pub(crate) fn log(args: &LogArgs) -> ExitCode {
    form::finish(NAME, &args.form, run(args))
}

fn run(args: &LogArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let cpu = setting.processors.client;
    let all = processors::allowed().map_err(BenchError::Processors)?;
    let _locked = or_without("bench log", memory::Locked::new());
    let mut results = LogResults { n_processors: all.len(), ..LogResults::default() };
    rates(args, &[(Count::One, &[cpu]), (Count::All, &all)], &mut results);
    let found = &mut results.found;
    let charts = found.charts();
    let real_time = realtime::measure(found, args.n_rounds(), args.form.quick, cpu);
    let ours = System::Baton(Source::best()).name();
    found.ok(RowKey::new(ours, WriteRate::Full.into()), real_time);
    let n_kills = if args.form.quick { 10 } else { 100 };
    if let Some(tally) = found.ok(LogResults::killed(), kill_test::run(n_kills)) {
        results.add_faults(tally.faults());
        results.found.tell(LogResults::killed(), tally.keys());
    }
    let report = setting.report(NAME, args.n_rounds(), results.rows(), results.ratios());
    let lead = "What a single record takes, two readings of the clock included: how many are not \
                longer. Time is on a logarithmic axis, as are the nines of the share.";
    Ok(Finding { unit: Unit::Nanoseconds, ..Finding::new(report, charts, lead) })
}

/// All systems in turn, in each round, with writers on some processors.
fn rates(args: &LogArgs, counts: &[(Count, &[usize])], results: &mut LogResults) {
    let most = counts.iter().map(|(_, cpus)| cpus.len()).max().unwrap_or(1);
    let setup = |system| (missing(system), Setup::new(system, most));
    let mut setups = results.found.start(args.systems(), setup);
    let progress = progress(args.n_rounds() as usize * counts.len());
    for _ in 0..args.n_rounds() {
        for &(count, cpus) in counts {
            let case: &str = count.into();
            progress.set_message(case);
            round(&mut setups, (count, cpus), args.n_records(), results);
            progress.inc(1);
        }
    }
}

/// A round. A system that fails is missing from then on.
fn round(
    setups: &mut Vec<(System, Setup)>,
    (count, cpus): (Count, &[usize]),
    n_records: usize,
    results: &mut LogResults,
) {
    let mut lasted_ns = BTreeMap::<System, u64>::new();
    for turn in 0..MOST_TURNS {
        setups.retain_mut(|(system, setup)| {
            if turn >= system.n_turns() {
                return true;
            }
            let duration_ns = setup.writers.many(cpus, turn_of(*system, n_records));
            let duration_ns = results.found.ok(missing(*system), duration_ns);
            *lasted_ns.entry(*system).or_default() += duration_ns.unwrap_or(0);
            duration_ns.is_some()
        });
    }
    setups.retain_mut(|(system, setup)| {
        let length = Length::with_practice(n_records.div_ceil(system.slowness()).div_ceil(4));
        let singles = setup.writers.singles(cpus, length);
        let Some(singles) = results.found.ok(missing(*system), singles) else { return false };
        let n_in_a_row = turn_of(*system, n_records).n_records * system.n_turns();
        let all = (n_in_a_row, lasted_ns[system]);
        let add = |rounds: &mut Rounds, singles: Vec<u64>| add_round(rounds, all, &singles);
        results.found.add(results.key(count, *system), Ok::<_, io::Error>(singles), add)
    });
}

/// One turn of a system's round, with no less practice than a whole round has: others have been
/// there meanwhile.
fn turn_of(system: System, n_records: usize) -> Length {
    let round = Length::with_practice(n_records.div_ceil(system.slowness()));
    Length { n_records: round.n_records.div_ceil(system.n_turns()), ..round }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_a_part_of_a_round_with_no_less_practice() {
        for (system, n_records, each) in [
            (System::Baton(Source::Vdso), 100_000, 12_500),
            (System::Baton(Source::Vdso), 9, 2),
            (System::Baton(Source::SystemCall), 100_000, 3125),
            (System::Null, 100_000, 25_000),
        ] {
            let (turn, round) = (turn_of(system, n_records), n_records.div_ceil(system.slowness()));
            assert_eq!((turn.n_records, turn.n_practice), (each, round / 10), "{system:?}");
        }
    }
}
