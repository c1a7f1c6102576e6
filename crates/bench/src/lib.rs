//! Benchmarks: Baton beside its peers, in one run and one form.
//!
//! - [`rpc`]: a call and its answer; [`ratios`]: what it must hold.
//! - [`system`]: what can be measured, with one file each in `systems`; [`payload`]: what is
//!   carried.
//! - [`pair`]: two processes that play one system, as the run sees them; [`party`]: as they see
//!   themselves; [`processors`]: where they run.
//! - [`distribution`]: what came of it; [`report`]: in JSON, [`table`]: for a person, [`html`]: as
//!   a page of [`curve`]s; [`machine`]: where all this was true.
//!
//! **Invariant**: at any instant one pair at most is measured, and everything else sleeps.

pub mod crowd;
pub mod curve;
pub mod distribution;
pub mod form;
pub mod gate;
mod hall;
pub mod html;
pub mod lanes;
pub mod load;
pub mod machine;
pub mod pair;
pub mod party;
pub mod payload;
pub mod processors;
pub mod ratios;
pub mod report;
pub mod rpc;
pub mod service;
pub mod stage;
pub mod system;
mod systems;
pub mod table;
pub mod throughput;

use clap::Subcommand;
use std::process::ExitCode;

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Measure a call and its answer: Baton, and other ways to reach another process
    Rpc(rpc::RpcArgs),
    /// One end of a system: what a benchmark starts
    #[command(hide = true)]
    Party(party::PartyArgs),
}

impl Bench {
    /// Runs it: 0 if all went well, 1 if a ratio does not hold (with `--check`) or nothing could
    /// be measured.
    pub fn run(self) -> ExitCode {
        match self {
            Bench::Rpc(args) => rpc::rpc(&args),
            Bench::Party(args) => party::party(&args),
        }
    }
}
