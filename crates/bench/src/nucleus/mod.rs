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
mod hosting;
mod ipc;
mod latency;
mod peers;

mod results;
mod sampler;
mod service;
mod signalled;
mod switching;
mod workload;
mod workload_results;

use crate::chart;
use crate::form::{self, BenchError, Finding, FormArgs, progress};
use crate::processors::{self, Placement};
use crate::testbed::Setting;
use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use case::{CASES, Case};
use clap::builder::PossibleValuesParser;
use hosting::{Calls, Hosting};
use results::NucleusResults;
use std::process::ExitCode;
use workload_results::WorkloadResults;

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
    #[arg(long, value_name = "N", default_value = "7", value_parser = form::positive())]
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
        let times = ipc::ping_pong::<K>(n_words, n_batches);
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
    let mut results = NucleusResults {
        pair: server.map(|it| [setting.processors.client, it]),
        ..NucleusResults::default()
    };
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
        results.workloads = WorkloadResults::measure(n_tasks, &is_kernel);
    }
    progress.finish_and_clear();
    let mut report = setting.report("nucleus", args.rounds, results.rows());
    report.ratios = results.ratios();
    let tables = results.tables();
    let lead = "Times: how many are not longer. Of an IPC in picoseconds, of batches. Latencies of \
                the highest thread since its timer's signal, of single ones: how many of a hundred \
                are in each step, in a row for each kernel.";
    let mut names: Vec<&str> = results.measured.keys().map(|&(_, kernel)| kernel).collect();
    names.sort_unstable();
    names.dedup();
    let page = chart::page(&report, lead, &names, &results.charts(), &tables);
    Ok(Finding { report, tables, page })
}
