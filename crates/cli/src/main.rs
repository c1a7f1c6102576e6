//! The `baton` command.
//!
//! - [`demo`]: shows the main things.
//! - [`run`]: runs a program on Baton. [`program`]: checks whether it can. [`interposer`]: what is
//!   loaded into it. [`devices`]: its `/dev`. [`background`]: starts a broker for it.
//! - [`broker`]: runs the broker.
//! - [`mount`]: a binderfs for programs that nothing can be loaded into.
//! - [`ps`], [`contexts`]: show the broker's state, through [`observer`].
//! - [`rt`]: runs programs in real time.
//! - [`service_manager`]: runs Android's service manager. [`wait`]: waits for services.
//! - [`services`]: finds services; Android's `service` tool. [`call`]: calls them, by [`aidl`].
//!   [`ping`], [`introspect`], [`dump`]: what they say of themselves. [`manager`]: how they are
//!   found.
//! - [`host`]: runs many services in one process.
//! - [`logcat`], [`log`]: Android's tools of these names, over the log in shared memory.
//! - [`am`]: intents on the command line. [`dalvikvm`]: Java programs. [`zygote`]: a machine that
//!   waits for them. [`java_vm`]: what both ask of a machine.
//! - [`bench`]: the benchmarks, a program of their own.
//! - [`generate`]: man pages and completions, for packages.
//! - [`failure`]: exit codes and messages. [`stdout`], [`stderr`]: output. [`stop`]: the end of
//!   commands that run until a signal. [`hang_up`]: the end of their terminal. [`threads`]: how
//!   commands start threads.
#![deny(unsafe_code)]

mod aidl;
mod am;
mod background;
mod bench;
mod broker;
mod call;
mod contexts;
mod dalvikvm;
mod demo;
mod devices;
mod dump;
mod failure;
mod generate;
mod hang_up;
mod host;
mod inherited;
mod interposer;
mod introspect;
mod java_vm;
mod log;
mod logcat;
mod manager;
mod mount;
mod mount_keeper;
mod observer;
mod ping;
mod policy;
mod private_mount;
mod program;
mod ps;
mod rt;
mod run;
mod service_manager;
mod services;
mod stderr;
mod stdout;
mod stop;
mod threads;
mod timeout;
mod wait;
mod zygote;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::{EXIT_CODES, Failure};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// Android's Binder in user space: run Binder programs on a Linux without a Binder driver
#[derive(Parser)]
#[command(name = "baton", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(subcommand)]
    command: Command,
}

/// The broker to use.
#[derive(Args, Clone, Debug)]
struct PlaceArgs {
    /// The broker's socket [default: $BATON_SOCKET, else the system-wide or the user's one]
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl PlaceArgs {
    fn socket(&self) -> PathBuf {
        let uid = rustix::process::geteuid().as_raw();
        self.socket.clone().unwrap_or_else(|| baton_abi::place::socket_path(uid))
    }
}

/// Commands that use no broker, or one of their own. They accept `--socket`, and do not show it.
const WITHOUT_SOCKET: [&str; 6] = ["demo", "logcat", "log", "rt", "latency", "bench"];

#[derive(Subcommand)]
enum Command {
    /// Show Baton at work: services, a call, a callback, a death, and what a call costs
    Demo(demo::DemoArgs),
    /// Run an unmodified Binder program, with a broker if none is running
    Run(run::RunArgs),
    /// Run the broker, which every program that uses Baton needs
    Broker(broker::BrokerArgs),
    /// Mount a binderfs: for static programs, Go, other C libraries, containers
    Mount(mount::MountArgs),
    /// Run a service manager, Android's: services are registered and found there by their names
    Manager(service_manager::ManagerArgs),
    /// Show contexts, processes, nodes, references, threads and buffers
    Ps(ps::PsArgs),
    /// List the contexts: the devices under /dev/binderfs
    Contexts(contexts::ListArgs),
    /// Manage contexts
    #[command(subcommand)]
    Context(contexts::ContextCommand),
    /// List the services that the service manager knows
    #[command(visible_alias = "services")]
    List(services::ListArgs),
    /// Say whether a service is there
    Check(services::CheckArgs),
    /// Wait until services are there
    Wait(wait::WaitArgs),
    /// Make round trips to a service
    Ping(ping::PingArgs),
    /// Call a service with arguments, and show the reply
    Call(call::CallArgs),
    /// Show a service's interface, process and methods
    Introspect(introspect::IntrospectArgs),
    /// Show what a service tells about itself, as Android's dumpsys does
    #[command(visible_alias = "dumpsys")]
    Dump(dump::DumpArgs),
    /// Android's service tool: list, check and call
    #[command(subcommand)]
    Service(services::ServiceCommand),
    /// Run many small services in one process, as threads of one nucleus
    Host(host::HostArgs),
    /// Manage applications, their processes and classes, as Android's am does
    #[command(subcommand)]
    Am(am::AmCommand),
    /// Show the log, as Android's logcat does
    Logcat(Box<logcat::LogcatArgs>),
    /// Run a Java program from dex files
    Dalvikvm(dalvikvm::DalvikvmArgs),
    /// Keep a virtual machine ready, from which programs start at once
    Zygote(zygote::ZygoteArgs),
    /// Write to the log
    Log(log::LogArgs),
    /// Run programs in real time: frequency, idle states, memory, priority
    #[command(subcommand)]
    Rt(rt::RtCommand),
    /// Measure how late a real-time thread wakes up, and a call's way there and back
    Latency(bench::BenchArgs),
    /// Measure Baton beside its peers
    Bench(bench::BenchArgs),
    /// Write man pages or completions, for packages
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(told) => return tell(&told),
    };
    let socket = cli.place.socket();
    let result = match cli.command {
        Command::Demo(args) => demo::demo(&args, &socket),
        Command::Run(args) => run::run(&args, &socket),
        Command::Broker(args) => broker::broker(args, &socket),
        Command::Mount(args) => mount::mount(args, &socket),
        Command::Manager(args) => service_manager::manager(&args, &socket),
        Command::Ps(args) => ps::ps(&args, &socket),
        Command::Contexts(args) => contexts::list(&args, &socket),
        Command::Context(command) => contexts::change(&command, &socket),
        Command::List(args) => services::list(&args, &socket),
        Command::Check(args) => services::check(&args, &socket),
        Command::Wait(args) => wait::wait(&args, &socket),
        Command::Ping(args) => ping::ping(&args, &socket),
        Command::Call(args) => call::call(&args, &socket),
        Command::Introspect(args) => introspect::introspect(&args, &socket),
        Command::Dump(args) => dump::dump(&args, &socket),
        Command::Service(command) => services::service(&command, &socket),
        Command::Host(args) => host::host(&args, &socket),
        Command::Am(command) => am::am(&command, &socket),
        Command::Logcat(args) => logcat::logcat(&args),
        Command::Dalvikvm(args) => dalvikvm::dalvikvm(&args, &socket),
        Command::Zygote(args) => zygote::zygote(&args, &socket),
        Command::Log(args) => log::log(&args),
        Command::Rt(command) => rt::rt(command),
        Command::Latency(args) => Err(bench::bench(Some("latency"), args)),
        Command::Bench(args) => Err(bench::bench(None, args)),
        Command::Generate(args) => generate::generate(&args, command_line()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The command line, as it is parsed, and as man pages and completions have it.
fn command_line() -> clap::Command {
    let hide_socket = |command: clap::Command, name| {
        // It takes the place of the global option in this command and those below it.
        let socket = clap::Arg::new("socket").long("socket").global(true).hide(true);
        let socket = socket.value_parser(clap::value_parser!(PathBuf));
        command.mut_subcommand(name, |subcommand| subcommand.arg(socket))
    };
    with_negative_numbers(WITHOUT_SOCKET.into_iter().fold(Cli::command(), hide_socket))
}

fn parse() -> Result<Cli, clap::Error> {
    let mut command = command_line();
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Lets every option take a negative number, so that a wrong one is refused as the option's value,
/// and not as an argument that nobody expects.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_value = |arg: &clap::Arg| !arg.is_positional() && arg.get_action().takes_values();
    command
        .mut_args(|arg| match takes_value(&arg) {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
        .mut_subcommands(with_negative_numbers)
}

/// Prints help, the version, or what is wrong with the command line. Returns the exit code.
fn tell(told: &clap::Error) -> ExitCode {
    match told.print() {
        Err(error) if !told.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            Failure::new("write to standard output", error).report()
        }
        // The reader has closed standard output, or there is nowhere to say what is wrong.
        _ => ExitCode::from(told.exit_code() as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_show_the_socket_if_they_use_it() {
        let mut line = command_line();
        line.build();
        let shows = |command: &clap::Command| {
            let mut arguments = command.get_arguments();
            arguments.any(|arg| arg.get_id() == "socket" && !arg.is_hide_set())
        };
        for command in line.get_subcommands().filter(|it| it.get_name() != "help") {
            let uses = !WITHOUT_SOCKET.contains(&command.get_name());
            let below = command.get_subcommands().filter(|it| it.get_name() != "help");
            for command in std::iter::once(command).chain(below) {
                assert_eq!(shows(command), uses, "{}", command.get_name());
            }
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        command_line().debug_assert();
    }
}
