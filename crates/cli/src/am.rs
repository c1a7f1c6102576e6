//! `baton am`: applications, their processes and classes, in the image of Android's `am`.
//!
//! - [`serve`]: runs the services. [`process`]: the commands of the process manager.
//! - [`broadcast`]: the commands of the broadcast service. [`intent_args`]: intents on the command
//!   line.

mod broadcast;
mod intent_args;
pub mod process;
mod serve;

use crate::failure::Failure;
use baton_services::process::helper;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// The commands of `baton am`.
#[derive(Subcommand)]
pub enum AmCommand {
    /// Run the process manager and the broadcast service: `activity` and `broadcast`
    Serve(serve::ServeArgs),
    /// Start an activity, and its process if it does not run
    Start(process::ComponentArgs),
    /// Start a service, and its process if it does not run
    StartService(process::ComponentArgs),
    /// Stop an activity or a service; its process stays
    Stop(process::ComponentArgs),
    /// Show the processes with their classes and components, and the activities
    Stack(process::StackArgs),
    /// Kill a package's background processes
    Kill(process::PackageArgs),
    /// Kill all processes of a package, and start none again before somebody asks for one
    ForceStop(process::PackageArgs),
    /// Send a broadcast
    Broadcast(Box<broadcast::BroadcastArgs>),
    /// Show who receives broadcasts, and what was delivered by priority
    Receivers(broadcast::ReceiversArgs),
    /// Ask a process to give memory back
    Trim(process::TrimArgs),
    /// Set the importance of a process
    SetAdj(process::SetAdjArgs),
    /// Show all that the process manager tells about itself
    Dumpsys(process::ManagerArgs),
    /// Fork processes for `am serve`
    #[command(hide = true)]
    Helper(HelperArgs),
}

/// Options of `baton am helper`.
#[derive(Args)]
pub struct HelperArgs {
    /// A shared object to load before anything is forked
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
}

/// Carries out a command.
pub fn am(command: &AmCommand, socket: &Path) -> Result<(), Failure> {
    match command {
        AmCommand::Serve(args) => serve::serve(args, socket),
        AmCommand::Start(args) | AmCommand::StartService(args) => process::start(args, socket),
        AmCommand::Stop(args) => process::stop(args, socket),
        AmCommand::Stack(args) => process::stack(args, socket),
        AmCommand::Kill(args) => process::kill(args, socket),
        AmCommand::ForceStop(args) => process::force_stop(args, socket),
        AmCommand::Broadcast(args) => broadcast::broadcast(args, socket),
        AmCommand::Receivers(args) => broadcast::receivers(args, socket),
        AmCommand::Trim(args) => process::trim(args, socket),
        AmCommand::SetAdj(args) => process::set_adj(args, socket),
        AmCommand::Dumpsys(args) => process::dumpsys(args, socket),
        AmCommand::Helper(args) => {
            helper::run(|| args.load.as_deref().map(helper::load).transpose())
                .map_err(|error| Failure::new("fork processes", error))
        }
    }
}
