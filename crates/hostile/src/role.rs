//! What a process of this program's can be.

use crate::attack;
use crate::attacker::Attacker;
use crate::measure::BURN;
use crate::scale::Scale;
use crate::{broker, honest};
use clap::{Args, Subcommand};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// A process that a run has started.
#[derive(Debug, Args)]
pub struct RoleArgs {
    /// Who started it: it ends with that process
    #[arg(long)]
    starter: u32,
    /// Where the broker listens
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
        /// With the capabilities that the packaged unit leaves it
        #[arg(long)]
        packaged: bool,
    },
    /// An honest server, the manager of its context
    Server,
    /// An honest client that stays
    Client,
    /// An honest client that comes, calls and goes
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

/// Tells a line to who started this process.
pub fn say(line: &str) {
    let mut out = io::stdout().lock();
    // Who does not hear it has ended, and ends this process, too.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// In an attacker's place: what it costs others that it runs at all.
fn burn(attacker: &Attacker) -> io::Result<()> {
    attacker.ready();
    attacker.holding("");
    while attacker.goes_on() {
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
                return burn(&attacker);
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
