//! `baton bench rpc`: a call that carries a payload there and back.
//!
//! Every system has two processes, which live through the whole run and sleep while another
//! system is measured. For each placement and payload the systems take turns, a chunk of calls
//! each, in rounds: what disturbs the machine for a while disturbs all of them.

use crate::affinity;
use crate::case::Case;
use crate::chart::Chart;
use crate::form::{self, BenchError, Finding, FormArgs};
use crate::lanes;
use crate::objects;
use crate::pair::{Chunk, Pair, Place, start_each};
use crate::payload::{COMMON_BYTES, HUGE_BYTES, LARGE_BYTES, SMALL_BYTES};
use crate::processors::{Placement, Processors};
use crate::ratios::{CallResults, Counting, call};
use crate::report::{Keys, Ratio, Row, RowKey};
use crate::results::Results;
use crate::service::Service;
use crate::system::{Peers, System};
use crate::table::Unit;
use crate::testbed::{Setting, Testbed};
use crate::throughput;
use crate::turns::each_step;
use std::collections::BTreeSet;
use strum::VariantArray;

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
    /// Which calls: plain, of bytes alone; objects, all that carry objects and descriptors; single
    /// ones of these by name (object_known, get_service, ...); with commas between, or all
    #[arg(long, value_name = "LIST", default_value = "plain", value_parser = parse_cases)]
    pub cases: Cases,
    /// Rounds [default: 7, quick 5]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub rounds: Option<u32>,
    /// Calls of a round [default: 5000, quick 1000]
    #[arg(long, value_name = "N", value_parser = form::positive())]
    pub calls: Option<u32>,
}

impl RpcArgs {
    fn counting(&self) -> Counting {
        if self.instructions { Counting::Instructions } else { Counting::Time }
    }
}

/// Which calls are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cases {
    /// Calls of bytes alone, and the benchmark's other parts.
    pub plain: bool,
    /// Calls that carry objects and descriptors, and with any of them plain ones of the same
    /// processes.
    pub objects: BTreeSet<Case>,
}

fn parse_cases(text: &str) -> Result<Cases, String> {
    let mut cases = Cases::default();
    for word in text.split(',') {
        let case = Case::VARIANTS.iter().find(|&case| *case != Case::Plain && case.name() == word);
        match (word, case) {
            ("plain", _) => cases.plain = true,
            ("objects", _) => cases.objects.extend(Case::VARIANTS),
            ("all", _) => {
                cases.plain = true;
                cases.objects.extend(Case::VARIANTS);
            }
            (_, Some(&case)) => cases.objects.extend([Case::Plain, case]),
            (_, None) => {
                let names: Vec<&str> = Case::VARIANTS[1..].iter().map(|case| case.name()).collect();
                return Err(format!("'{word}' is none of all,plain,objects,{}", names.join(",")));
            }
        }
    }
    Ok(cases)
}

pub(crate) fn parse_peers(text: &str) -> Result<Peers, String> {
    let all = System::called().filter(|system| system.is_peer());
    form::parse_peers(text, all, System::name).map(Peers)
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

/// How many times fewer calls of so many bytes are enough: each takes that much longer.
fn fewer(payload_bytes: usize) -> u32 {
    match payload_bytes {
        ..65536 => 1,
        65536 => 4,
        _ => 40,
    }
}

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

    /// In the order in which they are measured.
    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let cases = self.payloads.iter().flat_map(|&payload_bytes| {
            self.placements.iter().map(move |&placement| (placement, payload_bytes))
        });
        let chunk = |(placement, payload_bytes)| {
            let n_calls = self.n_calls / fewer(payload_bytes);
            let (n_warm_up, n_calls) = ((n_calls / 10).clamp(1, 500), n_calls.max(1));
            Chunk::new(placement, payload_bytes, n_warm_up, n_calls)
        };
        cases.map(chunk)
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

pub(crate) fn run(args: &RpcArgs) -> Result<Finding, BenchError> {
    let mut setting = Setting::look()?;
    let is_timed = args.counting() == Counting::Time;
    if !is_timed {
        setting.machine.clock += " (an instruction is a nanosecond)";
    }
    let is_wanted = |system: &System| !system.is_peer() || args.peers.0.contains(system);
    let systems: Vec<System> = System::called().filter(is_wanted).collect();
    let plan = Plan::new(args, &setting);
    let mut told = Told::default();
    if args.cases.plain {
        measure_plain(args, &plan, &systems, &setting, &mut told)?;
    }
    if !args.cases.objects.is_empty() {
        let Plan { rounds, n_calls, .. } = plan;
        let (cases, counting) = (args.cases.objects.clone(), args.counting());
        let plan = objects::Plan { rounds, n_calls, cases, counting };
        let found = objects::measure(&setting, &systems, plan)?;
        told.add(found.rows(), found.ratios(), found.charts());
    }
    let lead = "Time of a call and its answer: how many of them are not longer, all rounds \
                together. Time is on a logarithmic axis, as are the nines of the share. Below, \
                calls a second of many clients at once, and what each of them sees.";
    let report = setting.report("rpc", plan.rounds, told.rows, told.ratios);
    let finding = Finding::new(report, told.charts, lead);
    Ok(Finding { unit: if is_timed { finding.unit } else { Unit::Instructions }, ..finding })
}

/// Rows, ratios and charts of all parts.
#[derive(Default)]
struct Told {
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
    charts: Vec<Chart>,
}

impl Told {
    fn add(&mut self, rows: Vec<Row>, ratios: Vec<Ratio>, charts: Vec<Chart>) {
        self.rows.extend(rows);
        self.ratios.extend(ratios);
        self.charts.extend(charts);
    }
}

fn measure_plain(
    args: &RpcArgs,
    plan: &Plan,
    systems: &[System],
    setting: &Setting,
    told: &mut Told,
) -> Result<(), BenchError> {
    let testbed = Testbed::start()?;
    let mut found = measure(systems, plan, &setting.processors, testbed.place(Service::Echo));
    found.counting = args.counting();
    // Few machines have one: a run that does not ask for it need not say so.
    if !systems.contains(&System::KernelBinder) {
        found.calls.excuse(System::KernelBinder.name());
    }
    let rows = |found: &Results| found.rows(|_, _| Keys::new());
    told.add(rows(&found.calls), found.ratios(), found.calls.charts());
    let many = throughput::measure(systems, &plan.throughput(args))?;
    told.add(throughput::rows(&many), throughput::ratios(&many), throughput::charts(&many));
    if args.counting() == Counting::Time {
        let idle = lanes::measure(setting, plan.rounds, plan.n_calls)?;
        told.add(rows(&idle), lanes::ratios(&idle), idle.charts());
        let affinity = affinity::measure(setting, plan.rounds, plan.n_calls)?;
        told.add(rows(&affinity), affinity::ratios(&affinity), affinity.charts());
    }
    Ok(())
}

fn measure(
    systems: &[System],
    plan: &Plan,
    processors: &Processors,
    place: Place<'_>,
) -> CallResults {
    let mut results = CallResults::default();
    let key = |system: System| {
        let (name, case) = system.row();
        RowKey::new(name, case).label(system.name())
    };
    let start = |system| Pair::start(system, place);
    let mut pairs = start_each(systems.iter().copied(), &mut results.calls, key, start);
    let chunks: Vec<Chunk> = plan.chunks().collect();
    let title = |chunk: &Chunk| {
        format!("{}, {} bytes", Placement::title(chunk.placement), chunk.payload_bytes)
    };
    each_step(plan.rounds, &chunks, title, |chunk| {
        pairs.retain(|&system, pair| add_round(&mut results, system, pair, chunk, processors));
    });
    results
}

fn add_round(
    results: &mut CallResults,
    system: System,
    pair: &mut Pair,
    chunk: &Chunk,
    processors: &Processors,
) -> bool {
    let &Chunk { placement: Some(placement), payload_bytes, .. } = chunk else { return true };
    let (most_bytes, why) = system.most_bytes();
    if payload_bytes > most_bytes {
        let key = RowKey { placement: None, ..call(system, placement, payload_bytes) };
        results.calls.ok(key, Err::<(), _>(why));
        return true;
    }
    if !system.runs(placement) || !system.carries(payload_bytes) {
        return true;
    }
    let key = call(system, placement, payload_bytes);
    results.calls.add_times(key, pair.measure(chunk, processors))
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
    fn cases_by_group_and_by_name() {
        let cases = |plain, objects: &[Case]| {
            Ok(Cases { plain, objects: objects.iter().copied().collect() })
        };
        for (text, expected) in [
            ("plain", cases(true, &[])),
            ("objects", cases(false, Case::VARIANTS)),
            ("all", cases(true, Case::VARIANTS)),
            ("object_known", cases(false, &[Case::Plain, Case::ObjectKnown])),
            ("descriptor,plain", cases(true, &[Case::Plain, Case::Descriptor])),
            ("objects,get_service", cases(false, Case::VARIANTS)),
        ] {
            assert_eq!(parse_cases(text), expected, "{text}");
        }
        for wrong in ["", "object", "plain,", "ObjectKnown"] {
            let error = parse_cases(wrong).unwrap_err();
            assert!(error.contains("plain,objects,object_known,"), "{error}");
        }
    }

    #[test]
    fn large_payloads_have_fewer_calls() {
        let plan =
            Plan { rounds: 5, n_calls: 10, placements: vec![Placement::Same], payloads: &PAYLOADS };
        let chunks: Vec<Chunk> = plan.chunks().collect();
        assert!(chunks.iter().map(|chunk| chunk.payload_bytes).eq(PAYLOADS));
        assert_eq!((chunks[0].n_warm_up, chunks[0].n_calls), (1, 10));
        assert_eq!(
            chunks.last().map(|chunk| (chunk.payload_bytes, chunk.n_calls)),
            Some((1 << 20, 1))
        );
    }
}
