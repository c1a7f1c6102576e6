//! `baton bench rpc`: a call that carries a payload there and back.
//!
//! Every system has two processes, which live through the whole run and sleep while another
//! system is measured. For each placement and payload the systems take turns, a chunk of calls
//! each, in rounds: what disturbs the machine for a while disturbs all of them.

use crate::case::Case;
use crate::form::{self, BenchError, Finding, FormArgs, progress};
use crate::objects;
use crate::order::Chunk;
use crate::pair::Pair;
use crate::payload::{COMMON_BYTES, HUGE_BYTES, LARGE_BYTES, SMALL_BYTES};
use crate::plan::{Counting, Plan};
use crate::processors::Placement::{self, Different, Same};
use crate::processors::Processors;
use crate::report::{Bar, Ratio, RowKey};
use crate::results::{P50, Results};
use crate::service::Service;
use crate::system::Peers;
use crate::system::System::{self, *};
use crate::table::Unit;
use crate::testbed::{Setting, Testbed};
use crate::throughput;
use crate::variants;
use std::collections::BTreeSet;
use std::process::ExitCode;
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
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = Peers::called)]
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

impl Plan {
    fn of(args: &RpcArgs, setting: &Setting) -> Plan {
        let (rounds, n_calls) = if args.form.quick { (5, 1000) } else { (7, 5000) };
        let is_wanted = |system: &System| !system.is_peer() || args.peers.0.contains(system);
        let (counting, payloads, clients) = match args.instructions {
            false => (Counting::Time, &PAYLOADS[..], args.clients.0.clone()),
            // One processor, one client.
            true => (Counting::Instructions, &COUNTED_PAYLOADS[..], Vec::new()),
        };
        Plan {
            systems: System::called().filter(is_wanted).collect(),
            rounds: args.rounds.unwrap_or(rounds),
            n_calls: args.calls.unwrap_or(n_calls),
            placements: setting.placements(),
            processors: setting.processors,
            payloads,
            clients,
            cases: args.cases.objects.clone(),
            counting,
        }
    }

    /// In the order in which they are measured, each once a round.
    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let cases = self.payloads.iter().flat_map(|&payload_bytes| {
            self.placements.iter().map(move |&placement| (placement, payload_bytes))
        });
        let chunk = |(placement, payload_bytes)| {
            let n_calls = self.n_calls / fewer(payload_bytes);
            let (n_warm_up, n_calls) = ((n_calls / 10).clamp(1, 500), n_calls.max(1));
            let chunk = Chunk::new(placement, payload_bytes, n_warm_up, n_calls);
            std::iter::repeat_n(chunk, self.rounds as usize)
        };
        cases.flat_map(chunk)
    }
}

fn run(args: &RpcArgs) -> Result<Finding, BenchError> {
    let mut setting = Setting::look()?;
    let plan = Plan::of(args, &setting);
    let (mut found, mut ratios) = (plan.results(), Vec::new());
    if args.cases.plain {
        measure(&plan, &mut found)?;
        ratios.extend(call_ratios(&found, plan.counting));
        if plan.is_timed() {
            throughput::measure(&plan, &mut found)?;
            variants::measure(&plan, &mut found)?;
            ratios.extend([throughput::ratios(&found), variants::ratios(&found)].concat());
        }
    }
    if !plan.cases.is_empty() {
        objects::measure(&plan, &mut found)?;
        ratios.extend(objects::ratios(&plan, &found));
    }
    let lead = "Time of a call and its answer: how many of them are not longer, all rounds \
                together. Time is on a logarithmic axis, as are the nines of the share. Below, \
                calls a second of many clients at once, and what each of them sees.";
    let charts = found.charts().into_iter().chain(throughput::chart(&found)).collect();
    let mut unit = Unit::Microseconds;
    if !plan.is_timed() {
        unit = Unit::Instructions;
        setting.machine.clock += " (an instruction is a nanosecond)";
    }
    let rows = found.rows(|_, rounds| throughput::keys(rounds));
    let report = setting.report("rpc", plan.rounds, rows, ratios);
    Ok(Finding { unit, ..Finding::new(report, charts, lead) })
}

fn measure(plan: &Plan, found: &mut Results) -> Result<(), BenchError> {
    let testbed = Testbed::start()?;
    let place = testbed.place(Service::Echo);
    let mut pairs = found.start(plan.systems.iter().copied(), |system| {
        let (name, case) = system.row();
        (RowKey::new(name, case).label(system.name()), Pair::start(system, place))
    });
    let chunks: Vec<Chunk> = plan.chunks().collect();
    let progress = progress(chunks.len());
    for chunk in chunks {
        let title = Placement::title(chunk.placement);
        progress.set_message(format!("{title}, {} bytes", chunk.payload_bytes));
        pairs.retain_mut(|(system, pair)| add_round(found, *system, pair, &chunk, plan.processors));
        progress.inc(1);
    }
    Ok(())
}

fn add_round(
    found: &mut Results,
    system: System,
    pair: &mut Pair,
    chunk: &Chunk,
    processors: Processors,
) -> bool {
    let &Chunk { placement: Some(placement), payload_bytes, .. } = chunk else { return true };
    let key = call(system, placement, payload_bytes);
    let (most_bytes, why) = system.most_bytes();
    if payload_bytes > most_bytes {
        found.ok(RowKey { placement: None, ..key }, Err::<(), _>(why));
        return true;
    }
    let is_measured = system.runs(placement) && system.carries(payload_bytes);
    !is_measured || found.add_times(key, pair.measure(chunk, &processors))
}

/// A name, the row over, the row under, and the bar.
type Definition = (String, RowKey, RowKey, Option<Bar>);

/// The row of one system's calls.
fn call(system: System, placement: Placement, payload_bytes: usize) -> RowKey {
    let (name, case) = system.row();
    RowKey::new(name, case).bytes(payload_bytes).at(placement).label(system.name())
}

fn small(system: System, placement: Placement) -> RowKey {
    call(system, placement, SMALL_BYTES)
}

/// What holds of instructions, the kernel's included. They are of one processor.
fn of_instructions() -> Vec<Definition> {
    let of = |system| small(system, Same);
    let kernel_over = |name: &str, under| (name.to_owned(), of(KernelBinder), of(under), None);
    let name = "guest_instructions_over_futex".to_owned();
    vec![
        (name, of(BatonTyped), of(Futex), Some(Bar::AtMost(1.15))),
        kernel_over("guest_instructions_kernel_binder_over_typed", BatonTyped),
        kernel_over("guest_instructions_kernel_binder_over_uapi_libc", BatonUapiLibc),
    ]
}

fn of_times() -> Vec<Definition> {
    let (same, apart) = (|system| small(system, Same), |system| small(system, Different));
    let common = |system| call(system, Same, COMMON_BYTES);
    let (at_least, at_most) = (|bar| Some(Bar::AtLeast(bar)), |bar| Some(Bar::AtMost(bar)));
    let (typed, typed_apart) = (same(BatonTyped), apart(BatonTyped));
    let (libc, kernel) = (same(BatonUapiLibc), same(KernelBinder));
    // One memcpy of the payload and a call of four bytes.
    let loan = |placement, bytes| call(BatonLoan, placement, bytes);
    let floor = |placement, bytes| call(Memcpy, placement, bytes);
    let (large, huge) = (LARGE_BYTES, HUGE_BYTES);
    let definitions = [
        ("typed_same_over_futex", typed.clone(), same(Futex), at_most(1.2)),
        ("unix_same_over_uapi_libc", same(Unix), libc.clone(), at_least(1.0)),
        ("typed_diff_over_spin", typed_apart.clone(), apart(FutexSpin), at_most(2.0)),
        ("unix_diff_over_typed", apart(Unix), typed_apart, at_least(10.0)),
        ("typed_124_over_4", common(BatonTyped), typed.clone(), at_most(1.1)),
        ("uapi_libc_same_over_futex", libc.clone(), same(Futex), None),
        ("uapi_trap_same_over_futex", same(BatonUapiTrap), same(Futex), None),
        ("loan_64k_over_floor", loan(Same, large), floor(Same, large), at_most(1.3)),
        ("loan_64k_diff_over_floor", loan(Different, large), floor(Different, large), at_most(1.3)),
        ("loan_1m_over_floor", loan(Same, huge), floor(Same, huge), None),
        ("loan_1m_diff_over_floor", loan(Different, huge), floor(Different, huge), None),
        ("kernel_binder_same_over_typed", kernel.clone(), typed, at_least(2.0)),
        ("kernel_binder_124_same_over_typed", common(KernelBinder), common(BatonTyped), None),
        ("kernel_binder_same_over_uapi_libc", kernel, libc, None),
    ];
    let named = |(name, over, under, bar): (&str, _, _, _)| (name.to_owned(), over, under, bar);
    let mut all = definitions.map(named).to_vec();
    for peer in System::called().filter(|system| system.is_peer()) {
        for (placement, word) in [(Same, "same"), (Different, "diff")] {
            let name = format!("{}_{word}_over_typed", peer.key());
            if peer.runs(placement) && all.iter().all(|other| other.0 != name) {
                all.push((name, small(peer, placement), small(BatonTyped, placement), None));
            }
        }
    }
    all
}

/// Every ratio that has a bar, and those of systems that were to be measured: medians over medians.
fn call_ratios(found: &Results, counting: Counting) -> Vec<Ratio> {
    let definitions = match counting {
        Counting::Time => of_times(),
        Counting::Instructions => of_instructions(),
    };
    let ratio = |(name, over, under, bar): Definition| {
        found.ratio_if_asked(name, [&over, &under], P50, bar)
    };
    definitions.into_iter().filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_by_name() {
        assert_eq!(Peers::called("none"), Ok(Peers(vec![])));
        assert_eq!(Peers::called("unix,futex"), Ok(Peers(vec![System::Unix, System::Futex])));
        assert_eq!(Peers::called("all").unwrap().0.len(), 14);
        assert!(Peers::called("unix,dbus").is_err());
        assert!(Peers::called("baton-typed").is_err());
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
    fn rounds_of_a_case_follow_each_other() {
        let placements = vec![Same];
        let plan =
            Plan { rounds: 5, n_calls: 10, placements, payloads: &PAYLOADS, ..Plan::default() };
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

#[cfg(test)]
mod ratio_tests {
    use super::*;

    fn results(medians: &[(System, Placement, usize, u64)]) -> Results {
        let mut found = Results::default();
        for &(system, placement, payload_bytes, median_ns) in medians {
            for time_ns in [median_ns - 1, median_ns, median_ns + 1] {
                let key = call(system, placement, payload_bytes);
                found.add_times(key, Ok::<_, String>(vec![time_ns]));
            }
        }
        found
    }

    fn miss(found: &mut Results, system: System, why: &str) {
        let (name, case) = system.row();
        found.ok(RowKey::new(name, case).label(system.name()), Err::<(), _>(why));
    }

    fn of_time(found: &Results) -> Vec<Ratio> {
        call_ratios(found, Counting::Time)
    }

    fn find(ratios: Vec<Ratio>, name: &str) -> Ratio {
        ratios.into_iter().find(|ratio| ratio.name == name).unwrap()
    }

    #[test]
    fn every_name_is_there_once() {
        let mut results = Results::default();
        System::called().for_each(|system| miss(&mut results, system, "asleep"));
        let ratios = of_time(&results);
        for name in [
            "typed_same_over_futex",
            "unix_same_over_uapi_libc",
            "typed_diff_over_spin",
            "unix_diff_over_typed",
            "typed_124_over_4",
            "loan_64k_over_floor",
            "loan_64k_diff_over_floor",
            "loan_1m_over_floor",
            "loan_1m_diff_over_floor",
            "uapi_libc_same_over_futex",
            "uapi_trap_same_over_futex",
            "futex_same_over_typed",
            "futex_spin_diff_over_typed",
            "rsbinder_rpc_same_over_typed",
            "kernel_binder_same_over_typed",
            "kernel_binder_124_same_over_typed",
            "kernel_binder_same_over_uapi_libc",
        ] {
            assert_eq!(ratios.iter().filter(|ratio| ratio.name == name).count(), 1, "{name}");
        }
        assert!(ratios.iter().all(|ratio| ratio.value.is_none() && ratio.why.is_some()));
    }

    #[test]
    fn bars() {
        for (typed_ns, holds) in [(1200, true), (1210, false)] {
            let results = results(&[(BatonTyped, Same, 4, typed_ns), (Futex, Same, 4, 1000)]);
            let ratio = find(of_time(&results), "typed_same_over_futex");
            assert_eq!((ratio.value, ratio.holds), (Some(typed_ns as f64 / 1000.0), Some(holds)));
        }
        for (unix_ns, holds) in [(1000, true), (990, false)] {
            let results = results(&[(Unix, Same, 4, unix_ns), (BatonUapiLibc, Same, 4, 1000)]);
            assert_eq!(find(of_time(&results), "unix_same_over_uapi_libc").holds, Some(holds));
        }
    }

    #[test]
    fn what_was_not_asked_for_is_no_ratio() {
        let results = results(&[(BatonTyped, Same, 4, 1000)]);
        // But for bars, which do not hold by not being measured.
        assert!(of_time(&results).iter().all(|ratio| ratio.bar.is_some()));
        assert!(of_time(&results).iter().any(|ratio| ratio.holds == Some(false)));
    }

    #[test]
    fn the_kernels_binder_has_a_bar_unless_it_is_excused() {
        let name = "kernel_binder_same_over_typed";
        for (kernel_ns, holds) in [(2000, true), (1990, false)] {
            let results =
                results(&[(BatonTyped, Same, 4, 1000), (KernelBinder, Same, 4, kernel_ns)]);
            assert_eq!(find(of_time(&results), name).holds, Some(holds));
        }
        for (excused, holds) in [(None, Some(false)), (Some(KernelBinder.name()), None)] {
            let mut found = Results::excusing(excused.into_iter());
            miss(&mut found, BatonTyped, "asleep");
            miss(&mut found, KernelBinder, "no device");
            assert_eq!(find(of_time(&found), name).holds, holds);
        }
    }

    #[test]
    fn instructions_have_ratios_of_their_own() {
        for (typed_count, holds) in [(1150, true), (1160, false)] {
            let found = results(&[(BatonTyped, Same, 4, typed_count), (Futex, Same, 4, 1000)]);
            let ratios = call_ratios(&found, Counting::Instructions);
            assert!(ratios.iter().all(|ratio| ratio.name != "typed_same_over_futex"));
            assert_eq!(find(ratios, "guest_instructions_over_futex").holds, Some(holds));
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut results = results(&[(BatonTyped, Same, 4, 1000)]);
        miss(&mut results, Futex, "asleep");
        let ratio = find(of_time(&results), "typed_same_over_futex");
        assert_eq!(ratio.why.as_deref(), Some("futex: asleep"));
        assert_eq!(ratio.holds, Some(false));
    }
}
