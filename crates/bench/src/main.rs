//! The program `baton-bench`, which `baton bench` and `baton latency` execute.

use baton_bench::Bench;
use clap::Parser;
use std::process::ExitCode;

/// Measure Baton beside its peers
#[derive(Parser)]
#[command(name = "baton-bench", bin_name = "baton bench", version)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

fn main() -> ExitCode {
    Cli::parse().bench.run()
}
