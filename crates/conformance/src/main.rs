//! Plays the same scenarios on Baton and on the kernel's own driver.
#![cfg(target_os = "linux")]

mod actor;
mod arena;
mod cargo;
mod choices;
mod compare;
mod crew;
mod decode;
mod encode;
mod generate;
mod judge;
mod peek;
mod play;
mod profile;
mod progress;
mod random;
mod rules;
mod seeds;
mod shrink;
mod sides;
mod skips;
mod step;
mod stillness;
mod tally;
mod transcript;
mod world;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plays scenarios on the driver that is here, and prints what came of them
    Play(transcript::PlayArgs),
    /// Plays them on both, and says where the two differ
    Compare(judge::CompareArgs),
    /// Does nothing until it is killed
    #[command(hide = true)]
    Idle,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Play(arguments) => transcript::play(&arguments),
        Command::Compare(arguments) => judge::compare(&arguments),
        Command::Idle => actor::idle(),
    }
}
