//! `baton contexts`, `baton context add` and `baton context remove`.

use crate::devices;
use crate::failure::{Failure, Kind};
use crate::observer;
use crate::stdout::{show, show_json};
use baton_abi::control::is_context_name;
use clap::{Args, Subcommand};
use rustix::io::Errno;
use serde::Serialize;
use std::path::Path;

/// Options of `baton contexts`.
#[derive(Args)]
pub struct ListArgs {
    /// Print {"contexts": [{"name"}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    contexts: Vec<Context>,
}

#[derive(Serialize)]
struct Context {
    name: String,
}

/// A command about contexts.
#[derive(Subcommand)]
pub enum ContextCommand {
    /// Add a context: programs open it as /dev/binderfs/NAME
    Add {
        /// 1 to 255 bytes without a slash; not ., .., binder-control or features
        #[arg(value_parser = parse_name)]
        name: String,
    },
    /// Remove a context: no program opens it any more, and it ends with the last that has it open
    Remove {
        /// One that `baton contexts` lists, but not binder, hwbinder or vndbinder
        #[arg(value_parser = parse_name)]
        name: String,
    },
}

/// The rule for a context's name.
const NAME_RULE: &str = "a context's name has 1 to 255 bytes and no slash, and is none of ., .., \
                         binder-control and features";

/// A context's name.
pub fn parse_name(text: &str) -> Result<String, &'static str> {
    if is_context_name(text) { Ok(text.to_owned()) } else { Err(NAME_RULE) }
}

/// Prints the contexts' names.
pub fn list(args: &ListArgs, socket: &Path) -> Result<(), Failure> {
    let tried = "list the contexts";
    let names = observer::connect(socket, tried)?
        .contexts()
        .map_err(|errno| Failure::refused(tried, errno))?;
    if args.json {
        let contexts = names.into_iter().map(|name| Context { name }).collect();
        return show_json(&Listed { contexts });
    }
    show(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
}

/// Carries out a command.
pub fn change(command: &ContextCommand, socket: &Path) -> Result<(), Failure> {
    match command {
        ContextCommand::Add { name } => add(name, socket),
        ContextCommand::Remove { name } => remove(name, socket),
    }
}

fn add(name: &str, socket: &Path) -> Result<(), Failure> {
    let tried = format!("add the context {name:?}");
    let observer = observer::connect(socket, &tried)?;
    observer.add_context(name).map_err(|errno| match errno {
        Errno::EXIST => Failure::new(&tried, "there is one of this name"),
        errno => Failure::refused(&tried, errno),
    })?;
    // Running programs find the context in /dev too.
    devices::add(socket, name);
    Ok(())
}

fn remove(name: &str, socket: &Path) -> Result<(), Failure> {
    let tried = format!("remove the context {name:?}");
    let observer = observer::connect(socket, &tried)?;
    observer.remove_context(name).map_err(|errno| match errno {
        Errno::NOENT => Failure::new(&tried, "there is none of this name"),
        Errno::INVAL => Failure::new(&tried, "every broker has it").kind(Kind::Usage),
        errno => Failure::refused(&tried, errno),
    })?;
    devices::remove(socket, name);
    Ok(())
}
