//! `baton bench log`: what a record costs, beside other ways to write one.
//!
//! The test of Walker, *Android Logger vs. Shared Memory* (linux-kernel, March 2012): sixteen
//! messages in turn, as fast as one writer can, and as one writer on each processor can. Beside
//! ours the paper's own scheme, the least that any log could cost, and what others use.
//!
//! - [`messages`]; [`system`]: what is measured; [`log_writer`]: who writes them, and is measured;
//!   [`setup`]: how each system is set up.
//! - [`floor`], [`paper`], [`descriptors`]: what ours is compared with. Others are programs of
//!   their own, in bench/peers/log.
//! - [`realtime`]: a writer that must not be late; [`step`]: what a clock of steps tells of it.
//!   [`kill_test`]: writers that are killed. [`role`]: processes beside this one; [`parts`]: what
//!   they do.
//! - [`results`]: all that was measured, as rows and ratios.

mod descriptors;
mod floor;
mod kill_test;
pub mod log_writer;
mod messages;
mod paper;
pub(crate) mod parts;
mod realtime;
mod results;
mod role;
pub(crate) mod setup;
mod step;
mod system;

use crate::form::{self, BenchError, Finding, FormArgs, or_without};
use crate::processors;
use crate::report::RowKey;
use crate::table::Unit;
use crate::testbed::Setting;
use crate::turns::each_round;
use baton_log::moment::Source;
use baton_rt::memory;
use log_writer::Length;
use results::{Count, LogResults, WriteRate, add_round, missing};
use setup::Setup;
use std::collections::BTreeMap;
use std::io;
use system::{MOST_TURNS, SYSTEMS, System};

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
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = parse_peers)]
    pub peers: Peers,
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
        let wanted = |system: &System| system.program().is_none() || self.peers.0.contains(system);
        SYSTEMS.into_iter().map(|row| row.0).filter(wanted)
    }
}

/// Others' logs, which are programs of their own.
#[derive(Clone, Debug)]
pub struct Peers(Vec<System>);

fn parse_peers(text: &str) -> Result<Peers, String> {
    let all = SYSTEMS.into_iter().map(|row| row.0).filter(|system| system.program().is_some());
    form::parse_peers(text, all, System::name).map(Peers)
}

pub(crate) fn run(args: &LogArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let cpu = setting.processors.client;
    let all = processors::allowed().map_err(BenchError::Processors)?;
    let _locked = or_without("bench log", memory::Locked::new());
    let mut results = LogResults { n_processors: all.len(), ..LogResults::default() };
    rates(args, &[(Count::One, vec![cpu]), (Count::All, all)], &mut results);
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

/// All systems in turn, in each round.
fn rates(args: &LogArgs, places: &[(Count, Vec<usize>)], results: &mut LogResults) {
    let most = places.iter().map(|(_, places)| places.len()).max().unwrap_or(1);
    let mut setups = Vec::new();
    for system in args.systems() {
        let setup = results.found.ok(missing(system), Setup::new(system, most));
        setups.extend(setup.map(|setup| (system, setup)));
    }
    let title = |(count, _): &(Count, Vec<usize>)| <&str>::from(count);
    each_round(args.n_rounds(), places, title, |(count, places)| {
        round(&mut setups, (*count, places), args.n_records(), results);
    });
}

fn round(
    setups: &mut Vec<(System, Setup)>,
    (count, places): (Count, &[usize]),
    n_records: usize,
    results: &mut LogResults,
) {
    let mut lasted_ns = BTreeMap::new();
    for turn in 0..MOST_TURNS {
        each(setups, results, |system, setup, _| {
            if turn < system.n_turns() {
                let duration_ns = setup.writers.many(places, turn_of(system, n_records))?;
                *lasted_ns.entry(system).or_default() += duration_ns;
            }
            Ok(())
        });
    }
    each(setups, results, |system, setup, results| {
        let length = Length::with_practice(n_records.div_ceil(system.slowness()).div_ceil(4));
        let singles = setup.writers.singles(places, length)?;
        let n_in_a_row = turn_of(system, n_records).n_records * system.n_turns();
        let all = (n_in_a_row, lasted_ns[&system]);
        let key = results.key(count, system);
        results.found.add(key, Ok::<_, io::Error>(singles), |rounds, singles| {
            add_round(rounds, all, &singles);
        });
        Ok(())
    });
}

/// One turn of a system's round, with no less practice than a whole round has: others have been
/// there meanwhile.
fn turn_of(system: System, n_records: usize) -> Length {
    let round = Length::with_practice(n_records.div_ceil(system.slowness()));
    Length { n_records: round.n_records.div_ceil(system.n_turns()), ..round }
}

/// Does something with each system. One that fails is missing from then on.
fn each(
    setups: &mut Vec<(System, Setup)>,
    results: &mut LogResults,
    mut work: impl FnMut(System, &mut Setup, &mut LogResults) -> io::Result<()>,
) {
    setups.retain_mut(|(system, setup)| {
        let done = work(*system, setup, results);
        results.found.ok(missing(*system), done).is_some()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_programs_of_their_own() {
        let all = parse_peers("all").unwrap().0;
        assert!(!all.is_empty() && all.iter().all(|system| system.program().is_some()));
        assert_eq!(parse_peers(all[0].name()).unwrap().0, [all[0]]);
        assert_eq!(parse_peers("none").unwrap().0, []);
        for bad in ["nonsense", System::Null.name(), ""] {
            assert!(parse_peers(bad).is_err(), "{bad:?}");
        }
    }

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
