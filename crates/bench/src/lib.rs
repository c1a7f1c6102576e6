//! Benchmarks: Baton beside its peers, in one run and one form.
//!
//! - [`rpc`]: a call and its answer; [`ratios`]: what it must hold. Its parts: [`throughput`] of
//!   many clients, a call among idle [`lanes`], and loopers that [`follow`].
//! - [`tester`] and [`add_ints`]: two experiments of others, each an [`experiment`].
//! - [`latency`]: how late threads wake up, and where a call's time goes.
//! - [`rt`]: real-time callers among ordinary ones, with a directory of its own.
//! - [`nucleus`]: Greenaway's experiments, on the kernels of the nucleus.
//! - [`log`]: what a record costs, with a directory of its own.
//! - [`pages`]: what superpages would gain; [`memory`], [`scene`]: what it plays with.
//! - [`system`]: what can be measured, with one file each in `systems`; [`service`]: what a server
//!   does; [`payload`]: what an echo carries.
//! - [`actor`]: a process that a run has started; [`pair`]: two that play one system, as the run
//!   sees them; [`crowd`]: one server and many clients, which wait at a [`gate`]; [`endpoint`]: as
//!   they see themselves, `server_pool`: a server of many; [`processors`]: where they run;
//!   [`stage`]: what they need around them.
//! - [`form`]: what every benchmark takes and prints; [`distribution`]: what came of it;
//!   [`report`]: in JSON, [`table`]: for a person, [`html`]: as a page of [`curve`]s and of
//!   [`load`]; [`machine`]: where all this was true;
//!   `perf`: what the kernel counts of other processes.
//!
//! **Invariant**: at any instant one pair or crowd at most is measured, and everything else sleeps.

pub mod actor;
pub mod add_ints;
pub mod crowd;
pub mod curve;
pub mod distribution;
pub mod endpoint;
pub mod experiment;
pub mod follow;
pub mod form;
pub mod gate;
pub mod html;
pub mod lanes;
pub mod latency;
pub mod load;
pub mod log;
pub mod machine;
pub mod memory;
pub mod nucleus;
pub mod pages;
pub mod pair;
pub mod payload;
mod perf;
pub mod processors;
pub mod ratios;
pub mod report;
pub mod rpc;
pub mod rt;
pub mod scene;
mod server_pool;
pub mod service;
pub mod stage;
pub mod system;
mod systems;
pub mod table;
pub mod tester;
pub mod throughput;

use clap::Subcommand;
use std::process::ExitCode;

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Measure a call and its answer: Baton, and other ways to reach another process
    Rpc(rpc::RpcArgs),
    /// Measure when a message of 272 bytes is where, on its way there and back
    Tester(experiment::ExperimentArgs),
    /// Measure a call that adds two ints, with and without a sleep between calls
    AddInts(experiment::ExperimentArgs),
    /// Measure what superpages would gain: a drawing loop, and a large parcel
    Pages(pages::PagesArgs),
    /// Measure IPC and scheduling of the nucleus's kernels
    Nucleus(nucleus::NucleusArgs),
    /// Measure how late a real-time thread wakes up, and a call's way there and back
    Latency(latency::LatencyArgs),
    /// Measure how late a real-time caller is served among ordinary ones
    Rt(rt::RtArgs),
    /// Measure what a record of the log costs, beside other logs
    Log(log::LogArgs),
    /// A process of the benchmark of the log
    #[command(hide = true)]
    LogRole(log::role::RoleArgs),
    /// A process of the benchmark of real-time callers
    #[command(hide = true)]
    RtRole(rt::role::RoleArgs),
    /// One end of a system: what a benchmark starts
    #[command(hide = true)]
    Endpoint(endpoint::EndpointArgs),
}

impl Bench {
    /// Runs it: 0 if all went well, 1 if a ratio does not hold (with `--check`) or nothing could
    /// be measured.
    pub fn run(self) -> ExitCode {
        match self {
            Bench::Rpc(args) => rpc::rpc(&args),
            Bench::Tester(args) => tester::tester(&args),
            Bench::AddInts(args) => add_ints::add_ints(&args),
            Bench::Pages(args) => pages::pages(&args),
            Bench::Nucleus(args) => nucleus::nucleus(&args),
            Bench::Latency(args) => latency::latency(&args),
            Bench::Rt(args) => rt::rt(&args),
            Bench::Log(args) => log::log(&args),
            Bench::LogRole(args) => log::role::role(&args),
            Bench::RtRole(args) => rt::role::role(&args),
            Bench::Endpoint(args) => endpoint::play(&args),
        }
    }
}
