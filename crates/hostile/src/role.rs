//! The roles of this program's processes.

use crate::attack;
use crate::attacker::Attacker;
use crate::measure::BURN;
use crate::scale::Scale;
use crate::starter::say;
use crate::{broker, honest};
use clap::{Args, Subcommand};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// A role and its options
#[derive(Debug, Args)]
pub struct RoleArgs {
    /// Pid of the starter: this process ends when the starter ends
    #[arg(long)]
    starter: u32,
    /// Path of the broker's socket
    #[arg(long)]
    socket: PathBuf,
    /// RLIMIT_NOFILE
    #[arg(long)]
    descriptors: Option<u64>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// A broker
    Broker {
        /// Limit the capabilities like the packaged unit
        #[arg(long)]
        packaged: bool,
    },
    /// An honest server, the manager of its context
    Server,
    /// An honest client that stays
    Client,
    /// An honest client that calls once and ends
    Newcomer,
    /// One process of an attack
    Attacker {
        attack: String,
        #[arg(long)]
        scale: Scale,
        #[arg(long)]
        number: usize,
    },
}

/// Runs a busy loop in place of an attacker, to show the cost of its mere running.
fn run_busy_loop(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    attacker.holding("");
    while attacker.must_continue() {
        std::hint::spin_loop();
    }
    Ok(())
}

pub fn play(args: RoleArgs) -> ExitCode {
    let prepared = baton_bench::end_with(args.starter).and_then(|()| {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = args.descriptors.or(limit.maximum);
        if args.descriptors.is_some() {
            limit.maximum = limit.current;
        }
        setrlimit(Resource::Nofile, limit).map_err(io::Error::from)
    });
    let socket = args.socket;
    let done = prepared.and_then(|()| match args.role {
        Role::Broker { packaged } => broker::serve(&socket, packaged),
        Role::Server => honest::serve(&socket),
        Role::Client => honest::call_as_told(&socket),
        Role::Newcomer => honest::come_and_go(&socket),
        Role::Attacker { attack, scale, number } => {
            let attacker = Attacker::new(socket, scale, number);
            if attack == BURN {
                return run_busy_loop(&attacker);
            }
            let row = attack::find(&attack).ok_or(io::ErrorKind::NotFound)?;
            (row.attack)(&attacker)
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed {error}"));
            ExitCode::FAILURE
        }
    }
}
