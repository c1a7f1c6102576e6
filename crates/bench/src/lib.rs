//! Benchmarks: Baton beside its peers, in one run and one form.
//!
//! - [`rpc`]: a call and its answer; [`ratios`]: what it must hold. Its parts: [`throughput`] of
//!   many clients, a call among idle [`lanes`], the looper's [`affinity`], and calls that carry
//!   [`objects`]: in each [`case`] what their [`object_client`] does.
//! - [`experiment`]: `tester` and `add-ints`, two experiments of others.
//! - [`latency`]: how late threads wake up, and where a call's time goes.
//! - [`rt`]: real-time callers among ordinary ones, with a directory of its own.
//! - [`broadcast`]: real-time intents among ordinary ones, with a directory of its own.
//! - [`nucleus`]: Greenaway's experiments, on the kernels of the nucleus.
//! - [`log`]: what a record costs, with a directory of its own.
//! - [`vm`]: Java programs on the Dalvik VM, with a file for each of its parts; a [`sentinel`]
//!   measures the machine beside them.
//! - [`pages`]: what superpages would gain; [`memory`] on them, and the [`drawing`] of a frame.
//! - [`system`]: what can be measured; [`systems`]: one file each; [`service`]: what a server does;
//!   [`payload`]: what an echo carries; [`random`]: numbers that
//!   look so.
//! - [`child`]: a process that a run has started, both ends of it; [`pair`]: a server and its
//!   clients, as the run sees them; [`endpoint`]: as they see themselves; [`order`]: what they tell
//!   each other; [`start_barrier`]: where clients wait, in a [`shared_map`]; [`processors`]: where
//!   they run; [`testbed`]: what they need around them.
//! - [`form`]: what every benchmark takes and prints; [`turns`]: in which order it measures;
//!   [`results`]: what came of it, of
//!   [`distribution`]s of times, and of all rounds [`pooled`]; [`report`]: in JSON, [`table`]: for
//!   a person, [`chart`]: as a page; [`machine`]: where all this was true; [`perf`]: what the
//!   kernel counts of other processes.
//!
//! **Invariant**: at any instant one server and its clients at most are measured, and everything
//! else sleeps.

mod affinity;
mod arrivals;
pub mod broadcast;
pub mod case;
mod chart;
mod child;
pub mod distribution;
mod drawing;
pub mod endpoint;
mod experiment;
mod form;
mod java_binder;
mod java_collectors;
mod java_jni;
mod java_kernels;
mod java_programs;
mod java_start;
mod java_zygote;
mod lanes;
mod latency;
pub mod log;
pub mod machine;
mod memory;
mod nucleus;
pub mod object_client;
mod objects;
pub mod order;
mod pages;
mod pair;
pub mod payload;
mod perf;
mod pooled;
mod processors;
mod random;
mod ratios;
pub mod report;
mod results;
mod rpc;
pub mod rt;
mod sentinel;
pub mod service;
mod shared_map;
mod start_barrier;
pub mod system;
mod systems;
mod table;
mod testbed;
mod throughput;
mod turns;
mod vm;

pub use child::{RoleArgs, end_with, say};
use clap::Subcommand;
use form::finish;
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
    /// Measure how late real-time intents come to their receivers among ordinary ones
    Broadcast(broadcast::BroadcastArgs),
    /// Measure what a record of the log costs, beside other logs
    Log(log::LogArgs),
    /// Measure Java programs on `baton dalvikvm`, beside the JDK's interpreter
    Vm(vm::VmArgs),
    /// A process of the benchmark of the log
    #[command(hide = true)]
    LogRole(RoleArgs),
    /// A process of the benchmark of broadcasts
    #[command(hide = true)]
    BroadcastRole(RoleArgs),
    /// A process of the benchmark of real-time callers
    #[command(hide = true)]
    RtRole(RoleArgs),
    /// A kernel whose instructions are counted
    #[command(hide = true)]
    NucleusRole(RoleArgs),
    /// One end of a system: what a benchmark starts
    #[command(hide = true)]
    Endpoint(RoleArgs),
}

impl Bench {
    /// Runs it: 0 if all went well, 1 if a ratio does not hold (with `--check`) or nothing could
    /// be measured.
    pub fn run(self) -> ExitCode {
        match self {
            Bench::Rpc(args) => finish("rpc", &args.form, rpc::run(&args)),
            Bench::Tester(args) => finish("tester", &args.form, experiment::tester(&args)),
            Bench::AddInts(args) => finish("add-ints", &args.form, experiment::add_ints(&args)),
            Bench::Pages(args) => finish("pages", &args.form, pages::run(&args)),
            Bench::Nucleus(args) => finish("nucleus", &args.form, nucleus::run(&args)),
            Bench::Latency(args) => finish("latency", &args.form, latency::run(&args)),
            Bench::Rt(args) => finish("rt", &args.form, rt::run(&args)),
            Bench::Broadcast(args) => finish("broadcast", &args.form, broadcast::run(&args)),
            Bench::Vm(args) => finish("vm", &args.form, vm::run(&args)),
            Bench::Log(args) => finish("log", &args.form, log::run(&args)),
            Bench::LogRole(args) => log::parts::run(&args),
            Bench::BroadcastRole(args) => broadcast::parts::run(&args),
            Bench::RtRole(args) => rt::parts::run(&args),
            Bench::NucleusRole(args) => nucleus::count::run(&args),
            Bench::Endpoint(args) => endpoint::run(&args),
        }
    }
}
