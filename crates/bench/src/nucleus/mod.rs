//! `baton bench nucleus`: Greenaway's experiments, on the ten kernels of the nucleus.
//!
//! *From "Real Fast" to Real-Time* (UNSW 2007): ping-pong by number of words (figure 5.2), hot
//! potato
//! (5.3, 5.4), IPC queueing (5.5), and how late the highest thread runs (A.1 to A.3); and what a
//! call between two services costs as threads of a kernel, and as processes. Everything runs on one
//! processor, kernels in turn, but for IPC between two kernels, which has two. Times of IPCs are of
//! batches, so a percentile is one of batches; latencies are single ones.

mod between;
mod case;
mod count;
mod histogram;
mod hosting;
mod latency;
mod peers;
mod play;
mod results;
mod sampler;
mod service;
mod signalled;
mod switching;
mod table;
mod workload;

use crate::form::{self, BenchError, Finding, FormArgs, progress};
use crate::html;
use crate::processors::{self, Placement};
use crate::stage::Setting;
use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use case::{CASES, Case, Since};
use clap::builder::PossibleValuesParser;
use hosting::{Calls, Hosting};
use results::{Results, THESIS};
use std::fmt::Write;
use std::process::ExitCode;
use table::Tables;

/// How the experiments are to run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success; 1 nothing could be measured, or, with --check, a ratio does not hold.")]
pub struct NucleusArgs {
    /// How it reports
    #[command(flatten)]
    pub form: FormArgs,
    /// These kernels only, and no peers
    #[arg(
        long, value_name = "NAME", num_args = 1..,
        value_parser = PossibleValuesParser::new(kernels())
    )]
    pub kernel: Vec<String>,
    /// These experiments only
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = EXPERIMENTS)]
    pub only: Vec<String>,
    /// Rounds
    #[arg(
        long, value_name = "N", default_value = "7",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub rounds: u32,
    /// One run of ping-pong, for who counts its instructions: KERNEL:WORDS:BATCHES
    #[arg(long, hide = true)]
    pub play: Option<String>,
}

/// As cases' names begin, and what is not one of the cases.
const EXPERIMENTS: [&str; 10] = [
    "switch",
    "ping-pong",
    "between",
    "hot-potato",
    "queueing",
    "service-call",
    "elevator",
    "start-stop",
    "chaining",
    "workload",
];

fn kernels() -> Vec<&'static str> {
    let mut names = Vec::new();
    each_kernel!(K => names.push(K::NAME));
    names
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
    let is_kernel =
        |name: &str| args.kernel.is_empty() || args.kernel.iter().any(|wanted| wanted == name);
    let is_case = |case: &&Case| {
        let name = case.name();
        args.only.is_empty() || args.only.iter().any(|wanted| name.starts_with(wanted.as_str()))
    };
    let cases: Vec<Case> = CASES.iter().filter(is_case).copied().collect();
    let server = setting.processors.server(Placement::Different);
    let mut results =
        Results { pair: server.map(|it| [setting.processors.client, it]), ..Results::default() };
    let progress = progress(cases.len() * args.rounds as usize);
    let is_call = |case: &Case| matches!(case, Case::ServiceCall { .. });
    let wants_calls = args.kernel.is_empty() && cases.iter().any(is_call);
    let mut hosting = wants_calls.then(Hosting::start).transpose()?;
    for &case in &cases {
        for _ in 0..args.rounds {
            match (case, &mut hosting) {
                (Case::ServiceCall { payload_bytes }, Some(hosting)) => {
                    let calls = Calls { payload_bytes, n_batches };
                    hosting.add_round(&mut results, calls, &setting.processors);
                }
                _ => results.add_round(case, n_batches, &is_kernel),
            }
            if case == results::COMMON && args.kernel.is_empty() {
                results.add_peers(n_batches);
            }
            if case == results::BETWEEN && args.kernel.is_empty() {
                results.add_futex_between(n_batches);
            }
            progress.inc(1);
        }
    }
    if cases.contains(&results::COMMON) {
        each_kernel!(K => if is_kernel(K::NAME) {
            results.instructions.insert(K::NAME, count::instructions(K::NAME, 8));
        });
    }
    if args.only.is_empty() || args.only.iter().any(|wanted| wanted == "workload") {
        let n_tasks = if args.form.quick { 5_000 } else { 50_000 };
        results.tables = Tables::fill(n_tasks, &is_kernel);
    }
    progress.finish_and_clear();
    Ok(finding(setting, args.rounds, &results))
}

fn finding(setting: Setting, rounds: u32, results: &Results) -> Finding {
    let mut report = setting.report("nucleus", rounds, results.rows());
    report.ratios = results.ratios();
    let tables = tables(results);
    let lead = "Times: how many are not longer. Of an IPC in picoseconds, of batches. Latencies of \
        the \
                highest thread since its timer's signal, of single ones: how many of a hundred are \
                in each \
                step, in a row for each kernel.";
    let mut names: Vec<&'static str> = results.measured.keys().map(|&(_, kernel)| kernel).collect();
    names.sort_unstable();
    names.dedup();
    let charts = CASES.iter().map(|&case| {
        let of_case = || results.measured.iter().filter(move |((other, _), _)| *other == case);
        match case {
            Case::Latency { .. } => histogram::figure(
                &case.title(),
                of_case().map(|(&(_, kernel), times)| (kernel, times)),
            ),
            _ => html::chart(&case.title(), of_case().map(|(&(_, kernel), times)| (kernel, times))),
        }
    });
    let page = html::frame(&report, lead, &names, &charts.collect::<String>(), &tables);
    Finding { report, tables, page }
}

/// A line for each kernel and case.
fn tables(results: &Results) -> String {
    let mut text = String::new();
    let both = |&case: &Case| match case {
        Case::Latency { load, n_threads, .. } => {
            vec![case, Case::Latency { load, n_threads, since: Since::Due }]
        }
        _ => vec![case],
    };
    for case in CASES.iter().flat_map(both) {
        let mut of_case = results.measured.iter().filter(|((it, _), _)| *it == case).peekable();
        if of_case.peek().is_none() {
            continue;
        }
        let _ = writeln!(
            text,
            "\n{:<40}{:>9}  {:>15}{:>11}",
            case.title(),
            "p50 ns",
            "of rounds",
            "p99 ns"
        );
        for ((_, kernel), times) in of_case {
            let Some(p50) = times.over_rounds(|round| round.p50 as f64 / 1000.0) else { continue };
            let Some(p99) = times.over_rounds(|round| round.p99 as f64 / 1000.0) else { continue };
            let spread = format!("[{:.1}, {:.1}]", p50.least, p50.greatest);
            let _ = writeln!(
                text,
                "  {kernel:<38}{:>9.2}  {spread:>15}{:>11.2}",
                p50.median, p99.median
            );
        }
    }
    text + &instructions(results) + &results.tables.text()
}

fn instructions(results: &Results) -> String {
    let mut text = String::new();
    if results.instructions.is_empty() {
        return text;
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
