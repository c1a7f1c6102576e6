//! `baton zygote`: a virtual machine that waits, and the programs that `baton dalvikvm` has it
//! fork.
//!
//! ```text
//!   baton zygote --> baton zygote --parent       one thread; has the class library
//!    (Binder) ^          | fork
//!             |          +--> programs
//!   baton dalvikvm --from-zygote NAME
//! ```

use crate::contexts::parse_name;
use crate::failure::Failure;
use crate::java_vm::{
    CommandLine, complete, complete_program, on_main_thread, parse, parse_program, usage,
};
use crate::manager::{Manager, publish};
use crate::stdout::show;
use crate::threads;
use crate::wait::wait_for_manager;
use crate::{background, stop};
use baton::Process;
use baton_services::process::client::ClientError;
use baton_services::process::helper::{self, Ended, Main, Start};
use baton_services::zygote::{self, Server};
use baton_vm::runtime;
use baton_vm::zygote::Zygote;
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Threads that serve: a start waits for the one before it.
const N_LOOPERS: usize = 2;
/// How long a service manager may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
const TRIED: &str = "run the zygote";

/// Options of `baton zygote`.
#[derive(Args)]
#[command(after_help = "\
A program starts from it by `baton dalvikvm --from-zygote NAME -cp app.dex Main`. It finds the \
class library loaded, and shares its memory. The heap and the collector are the zygote's. Only \
the zygote's user and root may ask.

Programs end with the zygote. Runs until SIGTERM or SIGINT, and tells systemd when it is ready \
(Type=notify).")]
pub struct ZygoteArgs {
    /// The name under which it is registered
    #[arg(long, default_value = "zygote", value_name = "NAME")]
    name: String,
    /// The context in which it is registered
    #[arg(long, default_value = "binder", value_name = "NAME", value_parser = parse_name)]
    context: String,
    /// Initialize this class of the class library, too; may be given again
    #[arg(long, value_name = "CLASS")]
    preload: Vec<String>,
    /// Fork programs: standard input is the socket to the zygote
    #[arg(long, hide = true)]
    parent: bool,
    /// Options of the VM: see `baton dalvikvm --help`
    #[arg(allow_hyphen_values = true, trailing_var_arg = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// Serves until a signal ends it.
pub fn zygote(args: &ZygoteArgs, socket: &Path) -> Result<(), Failure> {
    let line = parse(&args.options)?;
    if line.vm_arguments.len() != args.options.len() {
        return Err(usage("a class path, properties and a class belong to a program"));
    }
    if args.parent {
        return parent(args, line, socket);
    }
    let failed = |error: std::io::Error| Failure::new(TRIED, error);
    let _broker = background::connect_or_start(socket, TRIED)?;
    wait_for_manager(&args.context, socket, Some(PATIENCE))
        .map_err(|failure| failure.during(TRIED))?;
    // Done before threads are started.
    let signals = stop::signals().map_err(failed)?;
    let process =
        Process::open(&args.context, socket).map_err(|it| Failure::open(TRIED, socket, &it))?;
    let program = std::env::current_exe().map_err(failed)?;
    // A program has the working directory of whoever asks for it.
    let at = std::path::absolute(socket).map_err(failed)?;
    let (preload, options) = (args.preload.clone(), args.options.clone());
    let command = move || {
        let mut command = Command::new(&program);
        command.arg("--socket").arg(&at).args(["zygote", "--parent"]);
        preload.iter().for_each(|class| _ = command.arg("--preload").arg(class));
        command.args(&options);
        command
    };
    let object = Server::add(&process, command).map_err(|it| Failure::new(TRIED, it))?;
    publish(TRIED, &process, &args.context, &args.name, object)?;
    let loopers = threads::serve(TRIED, &process, N_LOOPERS)?;
    show(&format!("Starting programs as {:?} in {:?}\n", args.name, args.context))?;
    let _ = sd_notify::notify(true, &[sd_notify::NotifyState::Ready]);
    while poll(&mut [PollFd::new(&signals, PollFlags::IN)], None) == Err(Errno::INTR) {}
    process.close();
    loopers.into_iter().for_each(|looper| _ = looper.join());
    Ok(())
}

/// Forks programs until the zygote ends.
fn parent(args: &ZygoteArgs, line: CommandLine, socket: &Path) -> Result<(), Failure> {
    let (socket, classes) = (socket.to_owned(), args.preload.clone());
    let load = move || -> Result<Option<Main>, String> {
        let vm = complete(line.vm, &socket).map_err(|failure| failure.reason())?;
        let zygote = Zygote::start(vm, &classes).map_err(|error| error.to_string())?;
        Ok(Some(Box::new(move |arguments| match run(zygote, &arguments) {
            Ok(code) => code.into(),
            Err(failure) => {
                failure.report();
                1
            }
        })))
    };
    on_main_thread(move || helper::run(load))?.map_err(|error| Failure::new(TRIED, error))
}

/// Reads the command line of a program from a zygote, which has the VM's options.
fn parse_forked(arguments: &[String]) -> Result<(CommandLine, String), Failure> {
    let parsed = parse_program(arguments)?;
    match parsed.0.vm_arguments.first() {
        Some(option) => Err(usage(format!("{option} is for the zygote to say"))),
        None => Ok(parsed),
    }
}

/// Runs a program in a process that the zygote has forked.
fn run(zygote: Zygote, arguments: &[String]) -> Result<u8, Failure> {
    let (line, class) = parse_forked(&arguments[1..])?;
    let t = zygote
        .into_vm(complete_program(line.program))
        .map_err(|error| Failure::new("start the virtual machine", error))?;
    Ok(runtime::run_main(&t, &class, &line.arguments))
}

/// Has a zygote run a program, and ends as that does.
pub fn run_from(
    name: &str,
    context: &str,
    uid: Option<u32>,
    arguments: &[String],
    socket: &Path,
) -> Result<(), Failure> {
    let tried = format!("run a program from the zygote {name:?}");
    parse_forked(arguments)?;
    let manager = Manager::find(context, socket, &tried)?;
    let service = manager.service(&tried, name)?;
    let failed = |error: std::io::Error| Failure::new(&tried, error);
    let directory =
        rustix::fs::open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
    let text = |it: std::ffi::OsString| it.to_string_lossy().into_owned();
    let environment = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let arguments = std::iter::once("dalvikvm".to_owned()).chain(arguments.iter().cloned());
    let wanted = Start { arguments: arguments.collect(), uid, environment: Some(environment) };
    // Signals that come from here on are the program's.
    let signals = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let mut signals = Signals::new(signals).map_err(failed)?;
    let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let streams = [input.as_fd(), output.as_fd(), errors.as_fd(), directory.as_fd()];
    let child = zygote::start(&service, &wanted, streams).map_err(|error| match error {
        ClientError::Refused(exception) => Failure::new(&tried, exception.message),
        error => Failure::new(&tried, error),
    })?;
    let child = Arc::new(child);
    let signalled = Arc::clone(&child);
    threads::start(&tried, move || {
        signals.forever().for_each(|signal| signalled.signal(signal as u8));
    })?;
    match child.wait() {
        Ended::Code(code) => std::process::exit(code.into()),
        Ended::Signal(signal) => std::process::exit(128 + i32::from(signal)),
        Ended::Unknown => {
            Err(Failure::new(tried, "it has ended together with the zygote's machine"))
        }
    }
}
