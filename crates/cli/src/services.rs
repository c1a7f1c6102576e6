//! `baton list` and `baton check`, and Android's `service` tool as `baton service`.
//!
//! The commands use the protocol of the service manager at handle 0 ([`manager`](crate::manager)).

use crate::call::{self, CallArgs};
use crate::failure::Failure;
use crate::manager::{ContextArgs, Manager, interface};
use crate::stdout::{show, show_json};
use baton::service_manager::Found;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::Path;

/// Options of `baton list`.
#[derive(Args)]
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
        let (interface, accessor) = match manager.check(tried, &name)? {
            Found::Service(handle) => (interface(&handle), false),
            Found::Elsewhere => (None, true),
            // The service has disappeared since it was listed.
            Found::Own(_) | Found::Nothing => continue,
        };
        services.push(Service { name, interface, accessor });
    }
    if args.json {
        return show_json(&Listed { services });
    }
    let mut text = format!("Found {} services:\n", services.len());
    for (number, Service { name, interface, accessor }) in services.iter().enumerate() {
        let interface = match accessor {
            true => "through an accessor",
            false => interface.as_deref().unwrap_or_default(),
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
