//! `baton bench log`: what a record costs, beside other ways to write one.
//!
//! The test of Walker, *Android Logger vs. Shared Memory* (linux-kernel, March 2012): sixteen
//! messages in turn, as fast as one writer can, and as one writer on each processor can. Beside
//! ours the paper's own scheme, the least that any log could cost, and what others use.
//!
//! - [`messages`]; [`log_writer`]: who writes them, and is measured; [`system`]: how each is set
//!   up.
//! - [`floor`], [`paper`], [`descriptors`]: what ours is compared with. Others are programs of
//!   their own, in bench/peers/log.
//! - [`realtime`]: a writer that must not be late; [`step`]: what a clock of steps tells of it.
//!   [`storm`]: writers that are killed. [`role`]: processes beside this one.
//! - [`found`]: all that was measured, its rows and ratios; [`show`]: as tables and charts.

pub mod descriptors;
pub mod floor;
pub mod found;
pub mod log_writer;
pub mod messages;
pub mod paper;
pub mod realtime;
pub mod role;
pub mod show;
pub mod step;
pub mod storm;
pub mod system;

use crate::form::{self, BenchError, Finding, FormArgs, or_without, progress};
use crate::stage::Setting;
use baton_rt::memory;
use found::{Crowd, Measured};
use log_writer::{Length, Places};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use system::{MOST_TURNS, Setup, System};
use tempfile::TempDir;

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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
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
        let wanted =
            move |system: &System| !system.is_peer() || named(system.name()) || named("all");
        System::ALL.into_iter().filter(wanted)
    }
}

/// Where a system's files are: in memory, as a log's are.
fn directory() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

/// Runs it and prints what it found.
pub fn log(args: &LogArgs) -> ExitCode {
    form::finish(NAME, &args.form, run(args))
}

fn run(args: &LogArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let [one, all] = Places::choose(setting.processors.client)?;
    let _locked = or_without("bench log", memory::Locked::new());
    let mut found = Measured::default();
    rates(args, &[(Crowd::One, one), (Crowd::All, all)], &mut found);
    let cpu = setting.processors.client;
    let real_time = realtime::measure(args.n_rounds(), args.form.quick, cpu);
    found.real_time = Some(real_time.map_err(|error| error.to_string()));
    let n_kills = if args.form.quick { 10 } else { 100 };
    found.storm = Some(storm::rage(n_kills).map_err(|error| error.to_string()));
    let mut report = setting.report(NAME, args.n_rounds(), found.rows());
    report.ratios = found.ratios();
    let tables = show::tables(&report.rows);
    let page = show::page(&report, &found, &tables);
    Ok(Finding { report, tables, page })
}

/// All systems in turn, in each round.
fn rates(args: &LogArgs, places: &[(Crowd, Places)], found: &mut Measured) {
    let most = places.iter().map(|(_, places)| places.n_writers()).max().unwrap_or(1);
    let mut setups = Vec::new();
    for system in args.systems() {
        match Setup::new(system, most) {
            Ok(setup) => setups.push((system, setup)),
            Err(why) => drop(found.missing.insert(system, why.to_string())),
        }
    }
    let progress = progress(args.n_rounds() as usize * places.len());
    for _ in 0..args.n_rounds() {
        for (crowd, places) in places {
            progress.set_message(crowd.case());
            round(&mut setups, (*crowd, places), args.n_records(), found);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
}

fn round(
    setups: &mut Vec<(System, Setup)>,
    (crowd, places): (Crowd, &Places),
    n_records: usize,
    found: &mut Measured,
) {
    let mut lasted_ns = BTreeMap::new();
    for turn in 0..MOST_TURNS {
        each(setups, found, |system, setup, _| {
            if turn < system.n_turns() {
                let length = Length::of(system, n_records);
                let duration_ns = setup.choir.many(places, length.in_a_turn(system))?;
                *lasted_ns.entry(system).or_default() += duration_ns;
            }
            Ok(())
        });
    }
    each(setups, found, |system, setup, found| {
        let length = Length::of(system, n_records);
        let times = setup.choir.singles(places, length.of_singles())?;
        let rounds = found.rounds.entry((crowd, system)).or_default();
        rounds.add(places.n_writers(), length.in_all_turns(system), lasted_ns[&system]);
        rounds.times.add_round(&times);
        Ok(())
    });
}

/// Does something with each system. One that fails is missing from then on.
fn each(
    setups: &mut Vec<(System, Setup)>,
    found: &mut Measured,
    mut work: impl FnMut(System, &mut Setup, &mut Measured) -> io::Result<()>,
) {
    setups.retain_mut(|(system, setup)| match work(*system, setup, found) {
        Ok(()) => true,
        Err(error) => {
            found.missing.insert(*system, error.to_string());
            false
        }
    });
}
