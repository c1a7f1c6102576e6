//! `baton bench nucleus`: Greenaway's experiments, on the ten kernels of the nucleus.
//!
//! *From "Real Fast" to Real-Time* (UNSW 2007): ping-pong by number of words (figure 5.2), hot potato
//! (5.3, 5.4), IPC queueing (5.5). Everything runs on one processor, kernels in turn. Times are of
//! batches, so a percentile is one of batches, not of single IPCs.

mod count;
mod play;
mod switching;

use crate::distribution::{Distribution, Spread};
use crate::form::{self, BenchError, Finding, FormArgs, progress};
use crate::html;
use crate::processors::{self, Placement};
use crate::report::{Bar, Detail, Figures, Outcome, Quoted, Ratio, Row};
use crate::stage::Setting;
use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::process::ExitCode;

/// How the experiments are to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Kernels: Fastpath, Slowpath, Direct/Lazy, Direct/Eager, Strict/Lazy, Strict/Eager, IPC-Scan, IPC-Ordered, \
IPC-Heap, Strict+.

Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct NucleusArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// These kernels only
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub kernel: Vec<String>,
    /// Rounds
    #[arg(long, value_name = "N", default_value = "7", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// One run of ping-pong, for who counts its instructions: KERNEL:WORDS:BATCHES
    #[arg(long, hide = true)]
    pub play: Option<String>,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    Switch,
    PingPong { n_words: u8 },
    HotPotato { n_potatoes: usize },
    Queueing { n_senders: usize },
}

const CASES: &[Case] = &[
    Case::Switch,
    Case::PingPong { n_words: 0 },
    Case::PingPong { n_words: 8 },
    Case::PingPong { n_words: 16 },
    Case::PingPong { n_words: 64 },
    Case::HotPotato { n_potatoes: 1 },
    Case::HotPotato { n_potatoes: 50 },
    Case::HotPotato { n_potatoes: 125 },
    Case::HotPotato { n_potatoes: 249 },
    Case::Queueing { n_senders: 1 },
    Case::Queueing { n_senders: 10 },
    Case::Queueing { n_senders: 50 },
    Case::Queueing { n_senders: 100 },
    Case::Queueing { n_senders: 250 },
];
/// What ratios are of.
const COMMON: Case = Case::PingPong { n_words: 8 };
const SWITCH: &str = "bare-switch";

/// The thesis's cycles of a ping-pong IPC, at 400 MHz: section 5.2.1.
const THESIS: [(&str, f64); 9] = [
    ("Fastpath", 173.0),
    ("Slowpath", 294.0),
    ("Direct/Lazy", 297.0),
    ("Strict/Lazy", 365.0),
    ("Direct/Eager", 374.0),
    ("Strict/Eager", 452.0),
    ("IPC-Scan", 296.0),
    ("IPC-Ordered", 304.0),
    ("IPC-Heap", 297.0),
];
const SOURCE: &str = "Greenaway, From 'Real Fast' to Real-Time, 2007, section 5.2.1, at 400 MHz";

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Switch => "switch",
            Case::PingPong { .. } => "ping-pong",
            Case::HotPotato { .. } => "hot-potato",
            Case::Queueing { .. } => "queueing",
        }
    }

    fn title(self) -> String {
        match self {
            Case::Switch => "switch of stacks".to_owned(),
            Case::PingPong { n_words } => format!("ping-pong, {n_words} words"),
            Case::HotPotato { n_potatoes } => format!("hot potato, {n_potatoes} of 250"),
            Case::Queueing { n_senders } => format!("queueing, {n_senders} senders"),
        }
    }

    fn play<K: Variant>(self, n_batches: u64) -> io::Result<Vec<u64>> {
        match self {
            Case::Switch => Ok(Vec::new()),
            Case::PingPong { n_words } => play::ping_pong::<K>(n_words, n_batches),
            Case::HotPotato { n_potatoes } => play::hot_potato::<K>(n_potatoes, n_batches / 10),
            Case::Queueing { n_senders } => {
                play::queueing::<K>(n_senders, n_batches * 10 / n_senders as u64 + 10)
            }
        }
    }
}

#[derive(Default)]
struct Results {
    /// In picoseconds.
    measured: BTreeMap<(Case, &'static str), Distribution>,
    missing: BTreeMap<(Case, &'static str), String>,
    instructions: BTreeMap<&'static str, Result<f64, String>>,
}

/// Runs it and prints what it found.
pub fn nucleus(args: &NucleusArgs) -> ExitCode {
    match &args.play {
        Some(play) => count_play(play),
        None => form::finish("nucleus", &args.form, run(args)),
    }
}

/// What `--play` asks for.
fn count_play(play: &str) -> ExitCode {
    let mut parts = play.split(':');
    let (name, words) = (parts.next(), parts.next().and_then(|text| text.parse().ok()));
    let (Some(name), Some(n_words), Some(n_batches)) =
        (name, words, parts.next().and_then(|text| text.parse().ok()))
    else {
        return ExitCode::FAILURE;
    };
    each_kernel!(K => if K::NAME == name {
        let times = play::ping_pong::<K>(n_words, n_batches);
        return times.map_or(ExitCode::FAILURE, |_| ExitCode::SUCCESS);
    });
    ExitCode::FAILURE
}

fn run(args: &NucleusArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    processors::go_to(Some(setting.processors.client)).map_err(BenchError::Processors)?;
    let n_batches = if args.form.quick { 100 } else { 1000 };
    let is_wanted =
        |name: &str| args.kernel.is_empty() || args.kernel.iter().any(|wanted| wanted == name);
    let mut results = Results::default();
    let progress = progress(CASES.len() * args.rounds as usize);
    for &case in CASES {
        for _ in 0..args.rounds {
            results.add_round(case, n_batches, &is_wanted);
            progress.inc(1);
        }
    }
    each_kernel!(K => if is_wanted(K::NAME) {
        results.instructions.insert(K::NAME, count::instructions(K::NAME, 8));
    });
    progress.finish_and_clear();
    Ok(finding(setting, args.rounds, &results))
}

impl Results {
    fn add_round(&mut self, case: Case, n_batches: u64, is_wanted: &dyn Fn(&str) -> bool) {
        if case == Case::Switch {
            let times = switching::bare_switch(n_batches);
            self.measured.entry((case, SWITCH)).or_default().add_round(&times);
            return;
        }
        each_kernel!(K => if is_wanted(K::NAME) {
            self.add(case, K::NAME, case.play::<K>(n_batches));
        });
    }

    fn add(&mut self, case: Case, kernel: &'static str, round: io::Result<Vec<u64>>) {
        match round {
            Ok(times) if times.is_empty() => {
                self.missing.insert((case, kernel), "a thread has failed".to_owned());
            }
            Ok(times) => self.measured.entry((case, kernel)).or_default().add_round(&times),
            Err(why) => {
                self.missing.insert((case, kernel), why.to_string());
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let row = |system, case: Case, outcome| Row {
            system,
            case: case.name(),
            payload_bytes: match case {
                Case::PingPong { n_words } => Some(usize::from(n_words) * 8),
                _ => None,
            },
            placement: Some(Placement::Same),
            detail: match case {
                Case::HotPotato { n_potatoes } => Some(Detail::Parties { parties: n_potatoes }),
                Case::Queueing { n_senders } => Some(Detail::Parties { parties: n_senders }),
                _ => None,
            },
            outcome,
        };
        let measured = self.measured.iter().filter_map(|(&(case, kernel), distribution)| {
            let figures = nanoseconds(Figures::of(distribution)?);
            Some(row(kernel, case, Outcome::Measured(figures)))
        });
        let missing = self
            .missing
            .iter()
            .map(|(&(case, kernel), why)| row(kernel, case, Outcome::Missing { why: why.clone() }));
        let quoted = THESIS.iter().map(|&(kernel, cycles)| {
            let mean_ns = cycles * 2.5;
            let quoted =
                Quoted { source: SOURCE, mean_ns: Some(mean_ns), min_ns: None, max_ns: None };
            row(kernel, COMMON, Outcome::Quoted(quoted))
        });
        measured.chain(missing).chain(quoted).collect()
    }

    fn over(&self, over: (Case, &'static str), under: (Case, &'static str)) -> Value {
        let find = |key| self.measured.get(&key).ok_or_else(|| "not measured".to_owned());
        Ok(Distribution::ratio(find(over)?, find(under)?))
    }

    fn ratios(&self) -> Vec<Ratio> {
        let common = |kernel| (COMMON, kernel);
        let instructions = self.instructions.get("Fastpath").cloned();
        let instructions = instructions.unwrap_or_else(|| Err("not measured".to_owned()));
        let at_most =
            |name: &str, value, bound| Ratio::new(name.to_owned(), value, Some(Bar::AtMost(bound)));
        let mut ratios = vec![
            at_most("fastpath_instructions", instructions.map(|count| (count, None)), 60.0),
            at_most(
                "fastpath_over_switch",
                self.over(common("Fastpath"), (Case::Switch, SWITCH)),
                2.0,
            ),
            at_most(
                "interface_overhead",
                self.over(common("Direct/Lazy"), common("Slowpath")),
                1.05,
            ),
            at_most(
                "strict_plus_over_fastpath",
                self.over(common("Strict+"), common("Fastpath")),
                1.25,
            ),
        ];
        for (kernel, _) in THESIS.iter().skip(1) {
            let name = kernel.to_lowercase().replace(['/', '-'], "_") + "_over_fastpath";
            ratios.push(Ratio::new(name, self.over(common(kernel), common("Fastpath")), None));
        }
        ratios
    }
}

type Value = Result<(f64, Option<Spread>), String>;

/// Figures of times that were measured in picoseconds.
fn nanoseconds(figures: Figures) -> Figures {
    let ns = |ps: f64| (ps / 10.0).round() / 100.0;
    Figures {
        p50_ns: ns(figures.p50_ns),
        p99_ns: ns(figures.p99_ns),
        p999_ns: ns(figures.p999_ns),
        min_ns: figures.min_ns / 1000,
        max_ns: figures.max_ns / 1000,
        mean_ns: ns(figures.mean_ns),
        p50_spread_ns: figures.p50_spread_ns.map(ns),
        p99_spread_ns: figures.p99_spread_ns.map(ns),
        n: figures.n,
    }
}

fn finding(setting: Setting, rounds: u32, results: &Results) -> Finding {
    let mut report = setting.report("nucleus", rounds, results.rows());
    report.ratios = results.ratios();
    let tables = tables(results);
    let lead = "Time of one IPC, of batches: how many are not longer. In picoseconds.";
    let mut names: Vec<&'static str> = results.measured.keys().map(|&(_, kernel)| kernel).collect();
    names.sort_unstable();
    names.dedup();
    let charts = CASES.iter().map(|&case| {
        let of_case = results.measured.iter().filter(|((other, _), _)| *other == case);
        html::chart(&case.title(), of_case.map(|(&(_, kernel), times)| (kernel, times)))
    });
    let page = html::frame(&report, lead, &names, &charts.collect::<String>(), &tables);
    Finding { report, tables, page }
}

/// A line for each kernel and case.
fn tables(results: &Results) -> String {
    let mut text = String::new();
    for &case in CASES {
        let _ = writeln!(text, "\n{:<40}{:>9}  {:>15}", case.title(), "p50 ns", "of rounds");
        for ((_, kernel), times) in results.measured.iter().filter(|((it, _), _)| *it == case) {
            let Some(p50) = times.over_rounds(|round| round.p50 as f64 / 1000.0) else { continue };
            let spread = format!("[{:.1}, {:.1}]", p50.least, p50.greatest);
            let _ = writeln!(text, "  {kernel:<38}{:>9.2}  {spread:>15}", p50.median);
        }
    }
    let _ =
        writeln!(text, "\n{:<40}{:>9}  {:>15}", "one IPC of 8 words", "instr.", "thesis, cycles");
    for (kernel, count) in &results.instructions {
        let thesis = THESIS.iter().find(|(name, _)| name == kernel);
        let thesis = thesis.map_or(String::new(), |(_, cycles)| format!("{cycles:.0}"));
        let _ = match count {
            Ok(count) => writeln!(text, "  {kernel:<38}{count:>9.1}  {thesis:>15}"),
            Err(why) => writeln!(text, "  {kernel:<38}{why}"),
        };
    }
    text
}
