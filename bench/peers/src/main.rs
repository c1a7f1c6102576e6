//! Peers of the benchmarks that bring dependencies of their own. Started by `baton bench`, with the
//! words of one of its own parties.

mod rsbinder_rpc;

use baton_bench::party::{self, PartyArgs, Side};
use baton_bench::system::System;
use clap::{Parser, Subcommand};
use std::io;
use std::process::ExitCode;

#[derive(Parser)]
struct Words {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    Party(PartyArgs),
}

fn main() -> ExitCode {
    let Command::Bench(Bench::Party(args)) = Words::parse().command;
    match play(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}, {:?}: {error}", args.system.name(), args.side);
            ExitCode::FAILURE
        }
    }
}

fn play(args: &PartyArgs) -> io::Result<()> {
    party::end_with(args.starter)?;
    match (args.system, args.side) {
        (System::RsbinderRpc, Side::Client) => {
            party::calls(Box::new(rsbinder_rpc::connect(&args.directory)?))
        }
        (System::RsbinderRpc, Side::Server) => {
            party::serves(baton_bench::system::ready(rsbinder_rpc::listen(&args.directory)?))
        }
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "a system of baton's own")),
    }
}
