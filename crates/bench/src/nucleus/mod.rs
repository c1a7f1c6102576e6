//! `baton bench nucleus`: Greenaway's experiments, on the ten kernels of the nucleus.
//!
//! *From "Real Fast" to Real-Time* (UNSW 2007): ping-pong by number of words (figure 5.2), hot
//! potato
//! (5.3, 5.4), IPC queueing (5.5), and how late the highest thread runs (A.1 to A.3); and what a
//! call between two services costs as threads of a kernel, and as processes. Everything runs on one
//! processor, kernels in turn, but for IPC between two kernels, which has two. Times of IPCs are of
//! batches, so a percentile is one of batches; latencies are single ones.

mod batch;
mod between;
mod case;
pub mod count;
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

use crate::form::{self, BenchError, Finding, FormArgs};
use crate::processors::{self, Placement};
use crate::report::Keys;
use crate::table::Unit;
use crate::testbed::Setting;
use crate::turns::each_step;
use baton_nucleus::each_kernel;
use baton_nucleus::variant::Variant;
use case::{CASES, Case};
use clap::builder::PossibleValuesParser;
use hosting::Hosting;
use peers::PEERS;
use results::{BETWEEN, COMMON, NucleusResults, SWITCH};
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

impl NucleusArgs {
    fn wants_kernel(&self, name: &str) -> bool {
        self.kernel.is_empty() || self.kernel.iter().any(|wanted| wanted == name)
    }

    fn wants(&self, experiment: &str) -> bool {
        let is_wanted = |wanted: &String| experiment.starts_with(wanted.as_str());
        self.only.is_empty() || self.only.iter().any(is_wanted)
    }
}

pub(crate) fn run(args: &NucleusArgs) -> Result<Finding, BenchError> {
    let setting = Setting::look()?;
    processors::go_to(Some(setting.processors.client)).map_err(BenchError::Processors)?;
    let n_batches = if args.form.quick { 100 } else { 1000 };
    let cases = CASES.iter().copied().filter(|case| args.wants(case.name()));
    let cases: Vec<Case> = cases.collect();
    let mut results = NucleusResults::default();
    let is_call = |case: &Case| matches!(case, Case::ServiceCall { .. });
    let wants_calls = args.kernel.is_empty() && cases.iter().any(is_call);
    let mut hosting = wants_calls.then(Hosting::start).transpose()?;
    let title = |case: &Case| case.name();
    each_step(args.rounds, &cases, title, |&case| {
        add_round(&mut results, case, n_batches, (args, &setting, &mut hosting));
    });
    if cases.contains(&COMMON) {
        each_kernel!(K => if args.wants_kernel(K::NAME) {
            results.instructions.insert(K::NAME, count::instructions(K::NAME, 8));
        });
    }
    if args.wants("workload") {
        let n_tasks = if args.form.quick { 5_000 } else { 50_000 };
        results.workloads = WorkloadResults::measure(n_tasks, &|name| args.wants_kernel(name));
    }
    let charts = results.found.charts();
    results.quote();
    let rows = results.found.rows(|_, _| Keys::new());
    let report = setting.report("nucleus", args.rounds, rows, results.ratios());
    let lead = "Times: how many are not longer. Of an IPC in picoseconds, of batches. Latencies of \
                the highest thread since its timer's signal, of single ones: how many of a hundred \
                are in each step, in a row for each kernel.";
    let finding = Finding::new(report, charts, lead);
    Ok(Finding { unit: Unit::Nanoseconds, notes: results.workloads.text(), ..finding })
}

/// One round of a case, on the kernels that are wanted, and of what else is measured of it.
fn add_round(
    results: &mut NucleusResults,
    case: Case,
    n_batches: u64,
    (args, setting, hosting): (&NucleusArgs, &Setting, &mut Option<Hosting>),
) {
    let server = setting.processors.server(Placement::Different);
    let pair = server.map(|server| [setting.processors.client, server]);
    match (case, hosting) {
        (Case::Switch, _) => {
            results.add(case, SWITCH, switching::bare_switch(n_batches));
        }
        (Case::ServiceCall { payload_bytes }, Some(hosting)) => {
            let rounds = hosting.measure(payload_bytes, n_batches, &setting.processors);
            for (system, round) in rounds {
                results.add(case, system, round);
            }
        }
        (Case::ServiceCall { .. }, None) => {}
        _ => {
            each_kernel!(K => if args.wants_kernel(K::NAME) {
                results.add_both(case, K::NAME, case.measure::<K>(pair, n_batches));
            });
        }
    }
    if case == COMMON && args.kernel.is_empty() {
        for peer in &PEERS {
            results.add(case, peer.name, (peer.measure)(n_batches));
        }
    }
    if case == BETWEEN && args.kernel.is_empty() && server.is_some() {
        results.add(case, PEERS[0].name, peers::futex(n_batches, server));
    }
}
