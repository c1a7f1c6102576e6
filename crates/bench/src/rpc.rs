//! `baton bench rpc`: a call that carries a payload there and back.
//!
//! Every system has two processes, which live through the whole run and sleep while another
//! system is measured. For each placement and payload the systems take turns, a chunk of calls
//! each, in rounds: what disturbs the machine for a while disturbs all of them.

use crate::html;
use crate::machine::Machine;
use crate::pair::{Chunk, Pair, PairError, Place};
use crate::processors::{Placement, Processors};
use crate::ratios::{COMMON_BYTES, Case, Counting, Results, SMALL_BYTES};
use crate::report::{Figures, Outcome, Report, Row};
use crate::system::System;
use crate::table;
use baton_broker::{Config, RunError, Running};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Payloads, in bytes: an `int`; a common request; a page; a large one.
pub const PAYLOADS: [usize; 4] = [SMALL_BYTES, COMMON_BYTES, 4096, 65536];
/// Those of which instructions are counted: an emulator may copy a word at a time.
const COUNTED_PAYLOADS: [usize; 2] = [SMALL_BYTES, COMMON_BYTES];

/// How the benchmark is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Every figure is the median of the rounds, with \
the least and greatest round beside it. Run it on a machine that has nothing else to do.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct RpcArgs {
    /// Fewer calls: under a minute
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write percentile curves to a file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What to measure beside Baton: all, none, or names with commas between
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = parse_peers)]
    pub peers: Peers,
    /// Fail if a ratio does not hold what it must
    #[arg(long)]
    pub check: bool,
    /// Take nanoseconds for instructions: what an emulator's clock can count
    #[arg(long)]
    pub instructions: bool,
    /// Rounds [default: 7, quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Calls of a round [default: 5000, quick 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub calls: Option<u32>,
}

impl RpcArgs {
    fn counting(&self) -> Counting {
        if self.instructions { Counting::Instructions } else { Counting::Time }
    }
}

/// What to measure beside Baton.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(pub Vec<System>);

fn parse_peers(text: &str) -> Result<Peers, String> {
    let all = || System::ALL.into_iter().filter(|system| system.is_peer());
    let find = |name| all().find(|system| system.name() == name);
    match text {
        "all" => Ok(Peers(all().collect())),
        "none" => Ok(Peers(Vec::new())),
        _ => text.split(',').map(find).collect::<Option<_>>().map(Peers).ok_or_else(|| {
            let names: Vec<&str> = all().map(System::name).collect();
            format!("neither all nor none nor of {}", names.join(","))
        }),
    }
}

/// Why there is no result at all.
#[derive(Debug, thiserror::Error)]
enum RpcError {
    #[error("cannot start: {0}")]
    Broker(#[from] RunError),
    #[error("cannot tell the processors: {0}")]
    Processors(Errno),
    #[error("cannot make a directory: {0}")]
    Directory(io::Error),
    #[error("cannot write {path}: {error}")]
    Output { path: PathBuf, error: io::Error },
}

/// Runs it and prints what it found.
pub fn rpc(args: &RpcArgs) -> ExitCode {
    let passed = run(args).and_then(|(report, results)| {
        show(args, &report)?;
        if let Some(path) = &args.html {
            let page = html::page(&report, &results);
            std::fs::write(path, page)
                .map_err(|error| RpcError::Output { path: path.clone(), error })?;
        }
        Ok(!results.measured.is_empty() && (!args.check || report.holds()))
    });
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("baton bench rpc: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(args: &RpcArgs, report: &Report) -> Result<(), RpcError> {
    let text = match args.json {
        true => serde_json::to_string_pretty(report).expect("strings and numbers") + "\n",
        false => table::text(report),
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(RpcError::Output { path: "standard output".into(), error })
        }
        _ => Ok(()),
    }
}

/// How much is measured.
struct Plan {
    rounds: u32,
    n_calls: u32,
    placements: Vec<Placement>,
    payloads: &'static [usize],
}

impl Plan {
    fn new(args: &RpcArgs, processors: &Processors) -> Plan {
        let (rounds, n_calls) = if args.quick { (5, 1000) } else { (7, 5000) };
        let mut placements = vec![Placement::Same, Placement::Different];
        placements.retain(|&placement| processors.server(placement).is_some());
        let (rounds, n_calls) = (args.rounds.unwrap_or(rounds), args.calls.unwrap_or(n_calls));
        let payloads = match args.counting() {
            Counting::Time => &PAYLOADS[..],
            Counting::Instructions => &COUNTED_PAYLOADS,
        };
        Plan { rounds, n_calls, placements, payloads }
    }

    /// In the order in which they are measured, each once a round.
    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let n_warm_up = (self.n_calls / 10).clamp(1, 500);
        let cases = self.placements.iter().flat_map(|&placement| {
            self.payloads.iter().map(move |&payload_bytes| (placement, payload_bytes))
        });
        let chunk = move |(placement, payload_bytes)| {
            let chunk = Chunk { placement, payload_bytes, n_warm_up, n_calls: self.n_calls };
            std::iter::repeat_n(chunk, self.rounds as usize)
        };
        cases.flat_map(chunk)
    }
}

fn run(args: &RpcArgs) -> Result<(Report, Results), RpcError> {
    // The broker makes its socket's directory for one user; memory is found by a link in it.
    let directory = tempfile::tempdir().map_err(RpcError::Directory)?;
    let contexts = [System::BatonUapiLibc, System::BatonUapiTrap].map(|s| s.name().to_owned());
    let socket = directory.path().join("broker.sock");
    let broker = Running::start(Config { contexts: contexts.into(), ..Config::at(socket) })?;
    let processors = Processors::choose().map_err(RpcError::Processors)?;
    let mut machine = Machine::look();
    if args.counting() == Counting::Instructions {
        machine.clock += " (an instruction is a nanosecond)";
    }
    let mut systems = System::ALL.to_vec();
    systems.retain(|system| !system.is_peer() || args.peers.0.contains(system));
    let plan = Plan::new(args, &processors);
    let mut results = measure(&systems, &plan, &processors, broker.socket(), directory.path());
    results.counting = args.counting();
    // Few machines have one: who does not ask for it need not say so.
    if !systems.contains(&System::KernelBinder) {
        results.excused.insert(System::KernelBinder);
    }
    let report = Report {
        bench: "rpc",
        version: env!("CARGO_PKG_VERSION"),
        machine,
        pinning: processors,
        rounds: plan.rounds as usize,
        rows: rows(&results),
        ratios: results.ratios(),
    };
    Ok((report, results))
}

fn measure(
    systems: &[System],
    plan: &Plan,
    processors: &Processors,
    broker: &Path,
    directory: &Path,
) -> Results {
    let mut results = Results::default();
    let mut pairs = BTreeMap::new();
    for &system in systems {
        match Pair::start(system, Place { broker, directory }) {
            Ok(pair) => drop(pairs.insert(system, pair)),
            Err(why) => {
                if matches!(why, PairError::NotHere { .. }) {
                    results.excused.insert(system);
                }
                results.missing.insert(system, why.to_string());
            }
        }
    }
    let chunks: Vec<Chunk> = plan.chunks().collect();
    let progress = progress(chunks.len());
    for chunk in chunks {
        let Chunk { placement, payload_bytes, .. } = chunk;
        progress.set_message(format!("{} processors, {payload_bytes} bytes", word(placement)));
        pairs.retain(|&system, pair| {
            if !system.runs(placement) {
                return true;
            }
            match pair.measure(&chunk, processors) {
                Ok(times_ns) => {
                    let case = Case { placement, payload_bytes, system };
                    results.measured.entry(case).or_default().add_round(&times_ns);
                    true
                }
                Err(why) => {
                    results.missing.insert(system, why.to_string());
                    false
                }
            }
        });
        progress.inc(1);
    }
    progress.finish_and_clear();
    results
}

/// How a placement reads in a sentence.
pub fn word(placement: Placement) -> &'static str {
    match placement {
        Placement::Same => "same",
        Placement::Different => "different",
    }
}

/// On standard error, and only where a person looks at it.
fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {eta} left");
    ProgressBar::new(steps as u64).with_style(style.expect("a sound template"))
}

fn rows(results: &Results) -> Vec<Row> {
    let measured = results.measured.iter().filter_map(|(case, distribution)| {
        let outcome = Outcome::Measured(Figures::of(distribution)?);
        let (payload_bytes, placement) = (Some(case.payload_bytes), Some(case.placement));
        Some(Row { system: case.system.name(), case: "call", payload_bytes, placement, outcome })
    });
    let missing = results.missing.iter().map(|(system, why)| Row {
        system: system.name(),
        case: "call",
        payload_bytes: None,
        placement: None,
        outcome: Outcome::Missing { why: why.clone() },
    });
    measured.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_by_name() {
        assert_eq!(parse_peers("none"), Ok(Peers(vec![])));
        assert_eq!(parse_peers("unix,futex"), Ok(Peers(vec![System::Unix, System::Futex])));
        assert_eq!(parse_peers("all").unwrap().0.len(), 14);
        assert!(parse_peers("unix,dbus").is_err());
        assert!(parse_peers("baton-typed").is_err());
    }

    #[test]
    fn rounds_of_a_case_follow_each_other() {
        let plan =
            Plan { rounds: 5, n_calls: 10, placements: vec![Placement::Same], payloads: &PAYLOADS };
        let chunks: Vec<Chunk> = plan.chunks().collect();
        assert_eq!(chunks.len(), 5 * PAYLOADS.len());
        assert!(chunks[..5].iter().all(|chunk| chunk.payload_bytes == PAYLOADS[0]));
        assert_eq!((chunks[0].n_warm_up, chunks[0].n_calls), (1, 10));
    }
}
