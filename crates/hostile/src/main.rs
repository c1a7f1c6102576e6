//! Attacks on a broker and honest processes, and whether these survive.

mod attack;
mod attacker;
mod broker;
mod budget;
mod child;
mod client;
mod crowd;
mod fork;
mod honest;
mod measure;
mod play;
mod role;
mod run;
mod scale;
mod stage;
mod starter;
mod verdict;
mod vitals;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Attacks a broker and honest processes as strangers could, and reports who is harmed.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Attackers are processes of users 1000 and 1001, honest parties are root's. As another user than \
root, rows that need a stranger are skipped by name.

Exit codes: 0 every row is green or skipped, or everything was measured and with --check holds; \
1 if not; 2 wrong usage."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Names the attacks
    List,
    /// Plays attacks, and says whether the honest parties survive them
    Run(run::RunArgs),
    /// Measures victims' calls during attacks, beside busy loops of the same user
    Measure(measure::MeasureArgs),
    /// The part of a process that a run has started
    #[command(hide = true)]
    Role(role::RoleArgs),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::List => run::list(),
        Command::Run(args) => run::run(&args),
        Command::Measure(args) => measure::measure(&args),
        Command::Role(args) => role::play(args),
    }
}
