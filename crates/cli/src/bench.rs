//! `baton bench` and `baton latency`: the benchmarks, which are a program of their own.

use crate::failure::{Failure, Kind};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "baton-bench";

/// What `baton-bench` is told.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct BenchArgs {
    /// The benchmark and its options: see `baton bench --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Executes `baton-bench`, the one beside this program before one on PATH. Returns only if it
/// cannot be executed.
pub fn bench(subcommand: Option<&str>, BenchArgs { args }: BenchArgs) -> Failure {
    let tried = format!("run {PROGRAM}");
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let program = beside.filter(|path| path.is_file()).unwrap_or(PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(subcommand).args(args).exec();
    match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(
            tried,
            "it is neither beside baton nor on PATH",
        )
        .kind(Kind::NotFound)
        .advice(
            "build it with `cargo build --release --package baton-bench`, and install it beside \
                 baton",
        ),
        _ => {
            Failure::new(tried, format!("{}: {error}", program.display())).kind(Kind::NotExecutable)
        }
    }
}
