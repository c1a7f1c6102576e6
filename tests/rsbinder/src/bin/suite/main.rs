//! Binder programs that check what they get from the driver below them.
//!
//! `suite SCENARIO` runs one scenario, which starts further processes from this executable and ends
//! them. It exits with 0, or prints what went wrong on standard error and exits with 1. `suite
//! list` prints the scenarios. A service manager has to run.
//!
//! No scenario depends on the driver: results on Linux's own driver hold on every other.
#![forbid(unsafe_code)]

mod check;
mod child;
mod listener;
mod peer;

mod callback;
mod chain;
mod churn;
mod death;
mod files;
mod fmq;
mod freeze;
mod identity;
mod lazy;
mod manager;
mod mesh;
mod oneway;
mod references;
mod scheduling;
mod shared_memory;
mod sizes;
mod stream;
mod threads;
mod tokio;
mod types;

use std::process::ExitCode;

use check::Outcome;

type Scenario = fn() -> Outcome;
type Role = fn(&[String]) -> Outcome;

/// A scenario's name and function.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("types", types::scenario),
    ("callback", callback::scenario),
    ("chain", chain::scenario),
    ("identity", identity::scenario),
    ("threads", threads::scenario),
    ("real-time", scheduling::scenario),
    ("oneway-order", oneway::order),
    ("oneway-limit", oneway::limit),
    ("sizes", sizes::scenario),
    ("files", files::scenario),
    ("shared-memory", shared_memory::scenario),
    ("fmq", fmq::scenario),
    ("stream", stream::scenario),
    ("references", references::scenario),
    ("death-of-service", death::of_service),
    ("death-of-client", death::of_client),
    ("manager", manager::scenario),
    ("tokio", tokio::scenario),
    ("lazy", lazy::scenario),
    ("freeze", freeze::scenario),
    ("mesh-of-two", mesh::two),
    ("mesh", mesh::twenty),
    ("churn", churn::scenario),
];

/// The roles of a scenario's processes, and the function of each.
const ROLES: &[(&str, Role)] = &[
    ("peer", peer::serve),
    ("peer-without-pool", peer::serve_without_pool),
    ("client", death::client),
    ("types", types::serve),
    ("memory", fmq::serve),
    ("stream", stream::serve),
    ("tokio", tokio::serve),
    ("lazy", lazy::serve),
    ("mesh", mesh::serve),
    ("worker", churn::serve),
];

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}

fn run(arguments: &[String]) -> Outcome {
    match arguments {
        [command] if command == "list" => {
            SCENARIOS.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        [command, role, rest @ ..] if command == "role" => {
            let serve = find(ROLES, role).ok_or_else(|| format!("no such role: {role}"))?;
            serve(rest)
        }
        [name] => {
            let scenario = find(SCENARIOS, name)
                .ok_or_else(|| format!("no such scenario: {name} (suite list names them)"))?;
            check::watch();
            scenario()
        }
        _ => Err("usage: suite list | suite SCENARIO".into()),
    }
}

fn main() -> ExitCode {
    env_logger::init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("suite {}: {}{error}", arguments.join(" "), check::last_step());
            ExitCode::FAILURE
        }
    }
}
