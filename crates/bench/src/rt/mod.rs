//! `baton bench rt`: how late a real-time caller is served among ordinary ones.
//!
//! RTAndroid's experiments (Kalkov 2018, chapter 6.3), over Baton's typed API and peers: one
//! real-time caller, or several, that call once a period; beside them ordinary threads of another
//! process, which call the same method as fast as they can. What is told of each call is T_CALL,
//! T_RET and both together. Beside these, priority inversion on one processor; and cyclictest, so
//! that a longest time can be judged.
//!
//! - [`way`]: how calls are made, a file each: `typed`, `uapi`, `unix`, `mqueue`; [`request`]: what
//!   is asked.
//! - [`processes`]: a measurement's processes, as the run sees them; [`role`]: as they see
//!   themselves; [`caller`]: the real-time ones; [`inversion`]: a scenario of three; [`misuse`]:
//!   those that want to hurt them; [`steady`]: what the kernel counts of both sides.
//! - [`plan`]: what is measured; `rounds`: how; [`found`]: what came of it; [`ratios`]: what it
//!   must hold; [`thesis`]: the figures beside ours; [`show`]: all of it as rows, tables and
//!   charts.

pub mod caller;
pub mod found;
pub mod inversion;
pub mod misuse;
mod mqueue;
pub mod plan;
pub mod processes;
pub mod ratios;
pub mod request;
pub mod role;
mod rounds;
pub mod show;
pub mod steady;
mod stranger;
pub mod thesis;
mod typed;
mod uapi;
mod unix;
pub mod way;

use crate::form::{self, BenchError, Finding, FormArgs};
use crate::pair;
use crate::stage::Setting;
use found::Bound;
use plan::Plan;
use std::process::ExitCode;
use way::Way;

const NAME: &str = "rt";

/// What to measure.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Every figure is the median of the rounds, \
with the least and greatest \
round beside it, but for the longest time of all. It needs real-time priorities: root, or \
RLIMIT_RTPRIO.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct RtArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// What to measure beside Baton: all, none, or names with commas between
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = parse_peers)]
    pub peers: Peers,
    /// Only these parts
    #[arg(
        long, value_name = "LIST", value_enum, value_delimiter = ',',
        default_values_t = Part::ALL
    )]
    pub parts: Vec<Part>,
    /// Calls of each caller in a round [default: 2500, quick 300]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub calls: Option<u32>,
    /// Rounds
    #[arg(
        long, value_name = "N", default_value = "5",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub rounds: u32,
    /// Time from one call to the next, in microseconds [default: 2000, quick 1000]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..))]
    pub period_us: Option<u64>,
    /// SCHED_FIFO priorities of callers; bars are of the first
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [80, 20],
        value_parser = clap::value_parser!(u8).range(1..=99))]
    pub priorities: Vec<u8>,
    /// Ordinary callers; bars are of the most and of none
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [0, 100])]
    pub callers: Vec<usize>,
    /// Who is bound to a processor, where a caller is alone; bars are of bound ones
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',',
        default_values_t = Bound::ALL)]
    pub bound: Vec<Bound>,
    /// Real-time callers at once; bars are of seven and one
    #[arg(
        long, value_name = "LIST", value_delimiter = ',',
        default_values_t = [1, 2, 3, 4, 5, 6, 7]
    )]
    pub real_time_callers: Vec<usize>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// One real-time caller among none and many.
    Calls,
    /// Several real-time callers.
    Scaling,
    /// Wake-ups, by cyclictest.
    WakeUps,
    /// A call while somebody in between keeps the processor.
    Inversion,
    /// What a call takes of the system.
    Steady,
    /// A real-time caller beside processes that want to hurt it.
    Misuse,
}

impl Part {
    const ALL: [Part; 6] =
        [Part::Calls, Part::Scaling, Part::WakeUps, Part::Inversion, Part::Steady, Part::Misuse];
}

impl std::fmt::Display for Part {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use clap::ValueEnum;
        let value = self.to_possible_value().expect("none is hidden");
        out.write_str(value.get_name())
    }
}

/// What to measure beside Baton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(pub Vec<Way>);

fn parse_peers(text: &str) -> Result<Peers, String> {
    let all = || Way::ALL.into_iter().filter(|way| way.is_peer());
    let find = |name| all().find(|way| way.name() == name);
    match text {
        "all" => Ok(Peers(all().collect())),
        "none" => Ok(Peers(Vec::new())),
        _ => text.split(',').map(find).collect::<Option<_>>().map(Peers).ok_or_else(|| {
            let names: Vec<&str> = all().map(Way::name).collect();
            format!("neither all nor none nor of {}", names.join(","))
        }),
    }
}

/// Runs it and prints what it found.
pub fn rt(args: &RtArgs) -> ExitCode {
    form::finish(NAME, &args.form, run(args))
}

fn run(args: &RtArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    let plan = Plan::new(args);
    let mut found = rounds::measure(&plan, &setting.processors);
    found.has_kernel_binder = pair::has_kernel_binder().is_ok();
    let mut report = setting.report(NAME, plan.rounds, show::rows(&found));
    report.ratios = ratios::of(&found, args);
    let tables = show::tables(&report);
    let page = show::page(&report, &found, &tables);
    Ok(Finding { report, tables, page })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_by_name() {
        assert_eq!(parse_peers("none"), Ok(Peers(vec![])));
        assert_eq!(parse_peers("mqueue,unix"), Ok(Peers(vec![Way::Mqueue, Way::Unix])));
        assert_eq!(parse_peers("all").unwrap().0.len(), 4);
        for wrong in ["", "futex", "baton-typed"] {
            assert!(parse_peers(wrong).is_err(), "{wrong}");
        }
    }
}
