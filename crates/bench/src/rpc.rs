//! `baton bench rpc`: a call that carries a payload there and back.
//!
//! Every system has two processes, which live through the whole run and sleep while another
//! system is measured. For each placement and payload the systems take turns, a chunk of calls
//! each, in rounds: what disturbs the machine for a while disturbs all of them.

use crate::follow::{self, Following};
use crate::form::{self, BenchError, Finding, FormArgs, progress};
use crate::html;
use crate::lanes::{self, Idle};
use crate::pair::{Chunk, Pair, PairError, Place};
use crate::processors::{Placement, Processors};
use crate::ratios::{COMMON_BYTES, Case, Counting, HUGE_BYTES, LARGE_BYTES, Results, SMALL_BYTES};
use crate::report::{Figures, Outcome, Row};
use crate::service::Service;
use crate::stage::{Setting, Stage};
use crate::system::System;
use crate::table;
use crate::throughput::{self, Throughputs};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Payloads, in bytes: an `int`; a common request; a page; a large one; a very large one.
pub const PAYLOADS: [usize; 5] = [SMALL_BYTES, COMMON_BYTES, 4096, LARGE_BYTES, HUGE_BYTES];
/// Those of which instructions are counted: an emulator may copy a word at a time.
const COUNTED_PAYLOADS: [usize; 2] = [SMALL_BYTES, COMMON_BYTES];

/// How the benchmark is to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a table; with --json one JSON object instead. Every figure is the median of the rounds, \
with \
the least and greatest round beside it. Run it on a machine that has nothing else to do.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct RpcArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// What to measure beside Baton: all, none, or names with commas between
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = parse_peers)]
    pub peers: Peers,
    /// How many clients call at once, to tell the throughput: none, or numbers with commas between
    #[arg(long, value_name = "LIST", default_value = "1,2,8,64", value_parser = parse_clients)]
    pub clients: Clients,
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

pub(crate) fn parse_peers(text: &str) -> Result<Peers, String> {
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

/// How many clients call at once: ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients(pub Vec<usize>);

/// More than this many processes tell nothing new.
const MOST_CLIENTS: usize = 512;

fn parse_clients(text: &str) -> Result<Clients, String> {
    if text == "none" {
        return Ok(Clients(Vec::new()));
    }
    let number =
        |word: &str| word.parse().ok().filter(|number| (1..=MOST_CLIENTS).contains(number));
    let numbers: Option<Vec<usize>> = text.split(',').map(number).collect();
    let wrong = || format!("neither none nor numbers from 1 to {MOST_CLIENTS}");
    let mut numbers = numbers.ok_or_else(wrong)?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok(Clients(numbers))
}

/// Everything that a run has found.
#[derive(Debug, Default)]
pub struct Measured {
    /// Calls, one at a time.
    pub results: Results,
    /// Calls of many clients.
    pub throughputs: Throughputs,
    /// Calls among idle lanes.
    pub idle: Idle,
    /// Calls that sleep.
    pub following: Following,
}

/// Runs it and prints what it found.
pub fn rpc(args: &RpcArgs) -> ExitCode {
    form::finish("rpc", &args.form, run(args))
}

/// How many times fewer calls of so many bytes are enough: each takes that much longer.
fn fewer(payload_bytes: usize) -> u32 {
    match payload_bytes {
        ..65536 => 1,
        65536 => 4,
        _ => 40,
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
    fn new(args: &RpcArgs, setting: &Setting) -> Plan {
        let (rounds, n_calls) = if args.form.quick { (5, 1000) } else { (7, 5000) };
        let placements = setting.placements();
        let (rounds, n_calls) = (args.rounds.unwrap_or(rounds), args.calls.unwrap_or(n_calls));
        let payloads = match args.counting() {
            Counting::Time => &PAYLOADS[..],
            Counting::Instructions => &COUNTED_PAYLOADS,
        };
        Plan { rounds, n_calls, placements, payloads }
    }

    /// In the order in which they are measured, each once a round.
    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let cases = self.payloads.iter().flat_map(|&payload_bytes| {
            self.placements.iter().map(move |&placement| (placement, payload_bytes))
        });
        let chunk = |(placement, payload_bytes)| {
            let n_calls = self.n_calls / fewer(payload_bytes);
            let (n_warm_up, n_calls) = ((n_calls / 10).clamp(1, 500), n_calls.max(1));
            let placement = Some(placement);
            let chunk = Chunk { placement, payload_bytes, n_warm_up, n_calls, delay_us: 0 };
            std::iter::repeat_n(chunk, self.rounds as usize)
        };
        cases.flat_map(chunk)
    }

    fn throughput(&self, args: &RpcArgs) -> throughput::Plan {
        let clients = match args.counting() {
            Counting::Time => args.clients.0.clone(),
            // One processor, one client.
            Counting::Instructions => Vec::new(),
        };
        throughput::Plan { clients, rounds: self.rounds, n_calls: self.n_calls }
    }
}

fn run(args: &RpcArgs) -> Result<Finding, BenchError> {
    let mut setting = Setting::look()?;
    if args.counting() == Counting::Instructions {
        setting.machine.clock += " (an instruction is a nanosecond)";
    }
    let mut systems = System::ALL.to_vec();
    systems.retain(|system| !system.is_peer() || args.peers.0.contains(system));
    let plan = Plan::new(args, &setting);
    let stage = Stage::set()?;
    let place = stage.place(Service::Echo);
    let mut results = measure(&systems, &plan, &setting.processors, place);
    results.counting = args.counting();
    // Few machines have one: who does not ask for it need not say so.
    if !systems.contains(&System::KernelBinder) {
        results.excused.insert(System::KernelBinder);
    }
    let throughputs = throughput::measure(&systems, &plan.throughput(args))?;
    let (idle, following) = match args.counting() {
        Counting::Time => (
            lanes::measure(&setting, plan.rounds, plan.n_calls)?,
            follow::measure(&setting, plan.rounds, plan.n_calls)?,
        ),
        Counting::Instructions => Default::default(),
    };
    Ok(finding(setting, plan.rounds, &Measured { results, throughputs, idle, following }))
}

fn finding(setting: Setting, rounds: u32, found: &Measured) -> Finding {
    let Measured { results, throughputs, idle, following } = found;
    let rows = [rows(results), throughputs.rows(), idle.rows(), following.rows()].concat();
    let mut report = setting.report("rpc", rounds, rows);
    report.ratios = found.results.ratios();
    if found.results.counting == Counting::Time {
        report.ratios.extend(found.throughputs.ratios());
        report.ratios.extend(found.idle.ratios());
        report.ratios.extend(found.following.ratios());
    }
    let (tables, page) = (table::of_calls(&report), html::page(&report, found));
    Finding { report, tables, page }
}

fn measure(systems: &[System], plan: &Plan, processors: &Processors, place: Place<'_>) -> Results {
    let mut results = Results::default();
    let mut pairs = BTreeMap::new();
    for &system in systems {
        match Pair::start(system, place) {
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
        let words = chunk.placement.map(word).unwrap_or_default();
        progress.set_message(format!("{words} processors, {} bytes", chunk.payload_bytes));
        pairs.retain(|&system, pair| {
            let done = add_round(&mut results, system, pair, &chunk, processors);
            done.inspect_err(|why| drop(results.missing.insert(system, why.to_string()))).is_ok()
        });
        progress.inc(1);
    }
    progress.finish_and_clear();
    results
}

fn add_round(
    results: &mut Results,
    system: System,
    pair: &mut Pair,
    chunk: &Chunk,
    processors: &Processors,
) -> Result<(), PairError> {
    let &Chunk { placement: Some(placement), payload_bytes, .. } = chunk else { return Ok(()) };
    let (most_bytes, why) = system.most_bytes();
    if payload_bytes > most_bytes {
        results.too_large.insert((system, payload_bytes), why);
    } else if system.runs(placement) && system.carries(payload_bytes) {
        let times_ns = pair.measure(chunk, processors)?;
        let case = Case { placement, payload_bytes, system };
        results.measured.entry(case).or_default().add_round(&times_ns);
    }
    Ok(())
}

/// How a placement reads in a sentence.
pub fn word(placement: Placement) -> &'static str {
    match placement {
        Placement::Same => "same",
        Placement::Different => "different",
    }
}

fn rows(results: &Results) -> Vec<Row> {
    let row = |system: System, payload_bytes, placement, outcome| {
        let (system, case) = system.row();
        Row { system, case, payload_bytes, placement, detail: None, outcome }
    };
    let measured = results.measured.iter().filter_map(|(case, distribution)| {
        let outcome = Outcome::Measured(Figures::of(distribution)?);
        Some(row(case.system, Some(case.payload_bytes), Some(case.placement), outcome))
    });
    let too_large = results.too_large.iter().map(|(&(system, payload_bytes), &why)| {
        row(system, Some(payload_bytes), None, Outcome::Missing { why: why.to_owned() })
    });
    let missing = results
        .missing
        .iter()
        .map(|(&system, why)| row(system, None, None, Outcome::Missing { why: why.clone() }));
    measured.chain(too_large).chain(missing).collect()
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
    fn numbers_of_clients() {
        assert_eq!(parse_clients("none"), Ok(Clients(vec![])));
        assert_eq!(parse_clients("8,1,8"), Ok(Clients(vec![1, 8])));
        for wrong in ["", "0", "1,", "many", "513"] {
            assert!(parse_clients(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rounds_of_a_case_follow_each_other() {
        let plan =
            Plan { rounds: 5, n_calls: 10, placements: vec![Placement::Same], payloads: &PAYLOADS };
        let chunks: Vec<Chunk> = plan.chunks().collect();
        assert_eq!(chunks.len(), 5 * PAYLOADS.len());
        assert!(chunks[..5].iter().all(|chunk| chunk.payload_bytes == PAYLOADS[0]));
        assert_eq!((chunks[0].n_warm_up, chunks[0].n_calls), (1, 10));
        assert_eq!(
            chunks.last().map(|chunk| (chunk.payload_bytes, chunk.n_calls)),
            Some((1 << 20, 1))
        );
    }
}
