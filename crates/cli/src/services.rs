//! `baton list` and `baton check`, and Android's `service` tool as `baton service`.
//!
//! The commands use the protocol of the service manager at handle 0 ([`manager`](crate::manager)).

use crate::call::{self, CallArgs};
use crate::failure::Failure;
use crate::manager::{ContextArgs, Manager, ask_interface};
use crate::stdout::{show, show_json};
use baton::service_manager::Found;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Time for a service to tell its interface: one that hangs does not.
const SERVICE_PATIENCE: Duration = Duration::from_secs(1);

/// Options of `baton list`.
#[derive(Args)]
#[command(after_help = "\
A service that does not tell its interface within a second has a question mark for it.")]
pub struct ListArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// Print {"services": [{"name", "interface", "accessor"}]}; the interface is null if the
    /// service does not tell it, accessor is true for a service that is reached through one
    #[arg(long)]
    json: bool,
}

/// Options of `baton check`.
#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// Print {"name", "found"}
    #[arg(long)]
    json: bool,
    /// The service's name
    name: String,
}

/// Android's `service` tool.
#[derive(Subcommand)]
pub enum ServiceCommand {
    /// List the services, as `baton list` does
    List(ListArgs),
    /// Say whether a service is there, as `baton check` does
    Check(CheckArgs),
    /// Call a service, as `baton call` does
    Call(CallArgs),
}

/// Carries out a command of Android's tool.
pub fn service(command: &ServiceCommand, socket: &Path) -> Result<(), Failure> {
    match command {
        ServiceCommand::List(args) => list(args, socket),
        ServiceCommand::Check(args) => check(args, socket),
        ServiceCommand::Call(args) => call::call(args, socket),
    }
}

#[derive(Serialize)]
struct Listed {
    services: Vec<Service>,
}

#[derive(Serialize)]
struct Service {
    name: String,
    interface: Option<String>,
    accessor: bool,
    /// Whether it answers the question for its interface in time.
    #[serde(skip)]
    answers: bool,
}

#[derive(Serialize)]
struct Checked<'a> {
    name: &'a str,
    found: bool,
}

/// Prints the services, with the interface of each.
pub fn list(args: &ListArgs, socket: &Path) -> Result<(), Failure> {
    let tried = "list the services";
    let manager = Manager::find(&args.place.context, socket, tried)?;
    let mut services = Vec::new();
    for name in manager.names(tried)? {
        let (told, accessor) = match manager.check(tried, &name)? {
            Found::Service(handle) => (ask_interface(&handle, SERVICE_PATIENCE), false),
            Found::Elsewhere => (Ok(None), true),
            // The service has disappeared since it was listed.
            Found::Own(_) | Found::Nothing => continue,
        };
        let (answers, interface) = (told.is_ok(), told.ok().flatten());
        services.push(Service { name, interface, accessor, answers });
    }
    if args.json {
        return show_json(&Listed { services });
    }
    let mut text = format!("Found {} services:\n", services.len());
    for (number, Service { name, interface, accessor, answers }) in services.iter().enumerate() {
        let interface = match (accessor, answers) {
            (true, _) => "through an accessor",
            (false, true) => interface.as_deref().unwrap_or_default(),
            (false, false) => "?",
        };
        text.push_str(&format!("{number}\t{name}: [{interface}]\n"));
    }
    show(&text)
}

/// Reports whether the service exists.
pub fn check(args: &CheckArgs, socket: &Path) -> Result<(), Failure> {
    let name = &args.name;
    let tried = format!("check the service {name:?}");
    let manager = Manager::find(&args.place.context, socket, &tried)?;
    let found = manager.check(&tried, name)? != Found::Nothing;
    match (args.json, found) {
        (true, _) => show_json(&Checked { name, found })?,
        (false, true) => show(&format!("Service {name}: found\n"))?,
        (false, false) => show(&format!("Service {name}: not found\n"))?,
    }
    if found { Ok(()) } else { Err(Failure::silent()) }
}
