//! `hostile measure`: compares the times of victims' calls during an attack with those beside as
//! many busy loops of the attacker's user.
//!
//! Rounds with attackers and with busy loops alternate in one run with the same honest processes.
//! The limit applies to the ratio of the medians of the rounds' 99th percentiles.

use crate::attack::attacks_by_name;
use crate::honest::Amount;
use crate::play::{Attack, Load, Play};
use crate::scale::{Run, Scale};
use crate::stage::{Group, Setting, Stage};
use baton_bench::distribution::Distribution;
use baton_bench::machine::Machine;
use baton_bench::report::{Bar, Figures, Ratio};
use clap::Args;
use serde::Serialize;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// Largest ratio of times beside an attack to those beside busy loops.
const BAR: f64 = 2.0;
/// Largest ratio of a first call among thousands of clients to one among a hundred.
const CROWD_BAR: f64 = 5.0;
/// Name of the role that runs a busy loop.
pub const BURN: &str = "burn";
/// Number of clients of the small crowd, and of the large ones.
const FEW: usize = 100;
const CROWDS: [(&str, usize); 2] = [("open_storm", 2_000), ("many_clients", 4_000)];

/// Options of `hostile measure`.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Attacks; all that can be measured unless given
    names: Vec<String>,
    /// More rounds of more calls, and larger attacks
    #[arg(long)]
    long: bool,
    /// How long an answer may take before it counts as a hang
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
    /// Rounds of each side
    #[arg(long)]
    rounds: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Fail if a ratio does not hold what it must
    #[arg(long)]
    check: bool,
}

/// Kind and number of a victim's calls in a round.
#[derive(Clone, Copy)]
struct Case {
    kind: &'static str,
    amount: Amount,
}

/// The calls of each case take many time slices of the processors, however short a call is.
fn cases(scale: Scale) -> [Case; 3] {
    let milliseconds = scale.of(500, 3_000);
    let case = |kind, n| Case { kind, amount: Amount { n, milliseconds } };
    [case("plain", 2_000), case("object", 300), case("open", 50)]
}

/// Times of one kind of call beside one load.
#[derive(Serialize)]
struct Row {
    attack: &'static str,
    case: &'static str,
    /// The load beside the calls: attackers, busy loops, or a number of other clients.
    beside: String,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Serialize)]
struct Report {
    bench: &'static str,
    version: &'static str,
    machine: Machine,
    rounds: usize,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
}

/// Measures attacks. Returns 0 if all were measured and, with `--check`, are within the limits; 1
/// if not; 2 for an unknown name.
pub fn measure(args: &MeasureArgs) -> ExitCode {
    let attacks = match attacks_by_name(&args.names) {
        Ok(attacks) => attacks,
        Err(name) => {
            eprintln!("hostile measure: no attack is called {name}; see `hostile list`");
            return ExitCode::from(2);
        }
    };
    let scale = if args.long { Scale::Long } else { Scale::Short };
    let run = Run { scale, patience: Duration::from_secs(args.patience) };
    let rounds = args.rounds.unwrap_or(scale.of(5, 9));
    let (rows, ratios) = (Vec::new(), Vec::new());
    let (version, machine) = (env!("CARGO_PKG_VERSION"), Machine::look());
    let mut report = Report { bench: "hostile", version, machine, rounds, rows, ratios };
    if !args.json {
        let Machine { cpu, cpus, kernel, load, .. } = &report.machine;
        println!("{cpu}, {cpus} processors, Linux {kernel}, load before {load}");
        println!("p99 in microseconds: median of {rounds} rounds [least greatest]\n");
    }
    for attack in attacks {
        let before = report.ratios.len();
        let is_crowd = CROWDS.iter().any(|(name, _)| *name == attack.name);
        if is_crowd {
            beside_crowds(attack, &run, &mut report);
        } else if let Some(load) = attack.load(&run) {
            beside_attackers(attack, &load, &run, &mut report);
        } else if !args.names.is_empty() {
            eprintln!("hostile measure: {} is no load, and is not measured", attack.name);
        }
        if !args.json {
            report.ratios[before..].iter().for_each(|ratio| show(&report, ratio));
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).expect("strings and numbers"));
    }
    let all_hold = report.ratios.iter().all(|ratio| ratio.holds != Some(false));
    let is_measured = report.ratios.iter().any(|ratio| ratio.value.is_some());
    ExitCode::from(u8::from(!is_measured || args.check && !all_hold))
}

/// For each case, the times beside each of the two loads.
type Times = [[Distribution; 2]; 3];

fn beside_attackers(attack: &'static Attack, load: &Load, run: &Run, report: &mut Report) {
    let mut times = Times::default();
    let done = match attack.obstacle() {
        Some(why) => Err(why.to_owned()),
        None => alternate(load, run, report.rounds, &mut times).map_err(|why| why.to_string()),
    };
    for (case, [attacked, burnt]) in cases(run.scale).iter().zip(&times) {
        let name = format!("{}_{}_p99", attack.name, case.kind);
        let value = match &done {
            Ok(()) => Ok(Distribution::ratio_of(attacked, burnt, |round| round.p99 as f64)),
            Err(why) => Err(why.clone()),
        };
        report.ratios.push(Ratio::new(name, value, Some(Bar::AtMost(BAR))));
        for (beside, times) in [("attackers", attacked), ("burners", burnt)] {
            let (attack, case, beside) = (attack.name, case.kind, beside.to_owned());
            let row = |figures| Row { attack, case, beside, figures };
            report.rows.extend(Figures::of(times).map(row));
        }
    }
}

/// Alternates rounds with attackers and with busy loops among the same honest processes.
fn alternate(load: &Load, run: &Run, rounds: usize, times: &mut Times) -> io::Result<()> {
    let mut stage = Stage::start_processes(run, load.setting)?;
    let busy_loops = |group: &Group| Group { attack: BURN, ..*group };
    let busy_loops: Vec<Group> = load.groups.iter().map(busy_loops).collect();
    for _ in 0..rounds {
        for (side, groups) in [&load.groups, &busy_loops].into_iter().enumerate() {
            stage.prepare(groups)?;
            stage.go();
            for (at, case) in cases(run.scale).iter().enumerate() {
                let round = stage.ask_client(case.kind, case.amount, "measured");
                if let Some(harm) = stage.findings.harms.first() {
                    return Err(io::Error::other(harm.clone()));
                }
                times[at][side].add_round(&round);
            }
            stage.dismiss();
            stage.await_release();
        }
    }
    Ok(())
}

/// Measures first calls among few clients and among many.
fn beside_crowds(attack: &'static Attack, run: &Run, report: &mut Report) {
    let large = CROWDS.iter().find(|(name, _)| *name == attack.name).map_or(FEW, |(_, n)| *n);
    let mut times = [Distribution::default(), Distribution::default()];
    let mut whole = [Distribution::default(), Distribution::default()];
    let rounds = report.rounds.min(3);
    let mut measured = || -> io::Result<()> {
        let (broker_descriptors, server_descriptors) = (19_000, 19_000);
        let setting = Setting { broker_descriptors, server_descriptors, ..Setting::default() };
        for _ in 0..rounds {
            for (side, members) in [large, FEW].into_iter().enumerate() {
                let mut stage = Stage::start_processes(run, setting)?;
                stage.prepare(&[Group { attack: attack.name, user: None, processes: 1 }])?;
                stage.go_with(members);
                let heard = stage.await_attackers().concat();
                let ms = heard.strip_prefix("all in ").and_then(|rest| rest.split_once(' '));
                let Some(Ok(ms)) = ms.map(|(ms, _)| ms.parse::<u64>()) else {
                    return Err(io::Error::other(heard));
                };
                whole[side].add_round(&[ms * 1_000_000 / members as u64]);
                let round = stage.ask_client("open", Amount::of(50), "measured");
                if let Some(harm) = stage.findings.harms.first() {
                    return Err(io::Error::other(harm.clone()));
                }
                times[side].add_round(&round);
            }
        }
        Ok(())
    };
    let done = measured().map_err(|why| why.to_string());
    for (what, [many, few]) in [("first_call_p50", &times), ("each_at_once", &whole)] {
        let name = format!("{}_{what}_over_{FEW}", attack.name);
        let ratio = || Distribution::ratio_of(many, few, |round| round.p50 as f64);
        let value = done.clone().map(|()| ratio());
        report.ratios.push(Ratio::new(name, value, Some(Bar::AtMost(CROWD_BAR))));
        for (beside, times) in [(large, many), (FEW, few)] {
            let (attack, case, beside) = (attack.name, what, format!("{beside} clients"));
            let row = |figures| Row { attack, case, beside, figures };
            report.rows.extend(Figures::of(times).map(row));
        }
    }
}

fn show(report: &Report, ratio: &Ratio) {
    let holds = if ratio.holds == Some(false) { "  FAILS" } else { "" };
    let (Some(value), Some([least, greatest])) = (ratio.value, ratio.spread) else {
        let why = ratio.why.as_deref().unwrap_or_default();
        return println!("{:<40} not measured: {why}{holds}", ratio.name);
    };
    let bar = ratio.bar.unwrap_or_default();
    println!("{:<40} {value:>7.2} [{least:.2} {greatest:.2}] at most {bar}{holds}", ratio.name);
    let is_its = |row: &&Row| ratio.name.starts_with(&format!("{}_{}", row.attack, row.case));
    for row in report.rows.iter().filter(is_its) {
        let [least, greatest] = row.figures.p99_spread_ns.map(|ns| ns / 1e3);
        let (p50, p99) = (row.figures.p50_ns / 1e3, row.figures.p99_ns / 1e3);
        let beside = &row.beside;
        println!(
            "    beside {beside:<14} p50 {p50:>9.1}  p99 {p99:>10.1} [{least:.1} {greatest:.1}]"
        );
    }
}

/// Whether victims are measured during an attack.
pub fn is_measured(attack: &Attack) -> bool {
    let is_crowd = CROWDS.iter().any(|(name, _)| *name == attack.name);
    is_crowd || !matches!(attack.play, Play::Own(_) | Play::Together(_))
}
