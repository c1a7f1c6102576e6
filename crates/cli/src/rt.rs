//! `baton rt`: programs in real time.

use crate::failure::{Failure, Kind};
use crate::program::NOT_ON_PATH;
use crate::stdout::show;
use baton_rt::frequency::{self, Record};
use baton_rt::schedule::parse_cpus;
use baton_rt::status::{PolicyStatus, Status};
use baton_rt::{Error, Frequency, Options, Paths, SchedPriority, guardian};
use clap::{Args, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::fmt::Write;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A command about real time.
#[derive(Subcommand)]
pub enum RtCommand {
    /// Run a program in real time
    Run(RunArgs),
    /// Show what the machine has, and who holds the frequency
    Status(StatusArgs),
    /// Undo what processes have left behind that were killed together with their guardian
    #[command(visible_alias = "release")]
    Repair(PathsArgs),
    /// Watches a process: what `run` starts
    #[command(hide = true)]
    Guard(GuardArgs),
}

/// Paths of the machine's files.
#[derive(Args)]
pub struct PathsArgs {
    /// Mount point of sysfs
    #[arg(long, value_name = "DIR", default_value_os_t = Paths::default().sysfs)]
    sysfs: PathBuf,
    /// Directory of the frequency lock's record: one for all who share the processors
    #[arg(long, value_name = "DIR", default_value_os_t = Paths::default().state)]
    state: PathBuf,
}

impl PathsArgs {
    fn paths(&self) -> Paths {
        Paths { sysfs: self.sysfs.clone(), state: self.state.clone(), ..Paths::default() }
    }
}

/// Settings for the program.
#[derive(Args)]
#[command(after_help = "\
All of it is undone when the program ends, however it ends; its own threads and children inherit \
priority, \
processors, timer slack and the protection from being killed, but neither the locked memory nor \
the lock on the frequency.

--frequency is one lock for the whole machine: those who ask for the same hold it together, \
another one is refused. It \
writes to sysfs, so it needs root's right to do so, as --latency does for /dev/cpu_dma_latency.

Exit codes: the program's own; 1 if what was asked for cannot be had, 5 if the frequency is locked \
at another value, \
126 if the program cannot be executed, 127 if it was not found.")]
pub struct RunArgs {
    /// All processors at this frequency in kHz, or each at its highest
    #[arg(long, value_name = "KHZ|max")]
    frequency: Option<Frequency>,
    /// Processors sleep only as deep as they wake up in so many microseconds; 0: not at all
    #[arg(long, value_name = "US")]
    latency: Option<u32>,
    /// Keep all of the program in memory, from its first instruction
    #[arg(long)]
    lock_memory: bool,
    /// Do not kill the program when memory runs out
    #[arg(long)]
    oom_protect: bool,
    /// Timer slack in nanoseconds; real-time threads have none anyway
    #[arg(long, value_name = "NS", value_parser = timer_slack)]
    timer_slack: Option<NonZeroU64>,
    /// Run on these processors only: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<Cpus>,
    /// Policy and priority: fifo:80, rr:10, nice:-5, other (which is nice:0)
    #[arg(long, value_name = "POLICY:N")]
    priority: Option<SchedPriority>,
    #[command(flatten)]
    paths: PathsArgs,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Clone)]
struct Cpus(Vec<usize>);

fn timer_slack(text: &str) -> Result<NonZeroU64, &'static str> {
    text.parse().map_err(|_| "a number of nanoseconds, 1 or more")
}

fn cpus(text: &str) -> Result<Cpus, &'static str> {
    parse_cpus(text).map(Cpus).ok_or("no list of processors as 0,2-3 is")
}

/// Options of `baton rt status`.
#[derive(Args)]
pub struct StatusArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    paths: PathsArgs,
}

/// Options of the guardian.
#[derive(Args)]
pub struct GuardArgs {
    /// This is the guardian, not the one that starts it
    #[arg(long)]
    apart: bool,
    watch: String,
}

/// Carries out a command.
pub fn rt(command: RtCommand) -> Result<(), Failure> {
    match command {
        RtCommand::Run(args) => run(&args),
        RtCommand::Status(args) => status(&args),
        RtCommand::Repair(args) => repair(&args.paths()),
        RtCommand::Guard(args) => guard(&args),
    }
}

/// Executes the program in place of this process.
fn run(args: &RunArgs) -> Result<(), Failure> {
    let tried = format!("run {} in real time", args.command[0].to_string_lossy());
    let own = std::env::current_exe().map_err(|error| Failure::new(&tried, error))?;
    let mut options = Options::new().paths(args.paths.paths()).guardian(own);
    if let Some(frequency) = args.frequency {
        options = options.frequency(frequency);
    }
    if let Some(latency_us) = args.latency {
        options = options.latency_us(latency_us);
    }
    if args.lock_memory {
        // The stack is the program's own, and grows while memory is locked.
        options = options.lock_memory(0);
    }
    if args.oom_protect {
        options = options.oom_protect();
    }
    if let Some(slack_ns) = args.timer_slack {
        options = options.timer_slack_ns(slack_ns);
    }
    if let Some(Cpus(cpus)) = &args.cpus {
        options = options.cpus(cpus.clone());
    }
    if let Some(priority) = args.priority {
        options = options.priority(priority);
    }
    options.before_exec().map_err(|error| explain(&tried, &error))?;
    let error = Command::new(&args.command[0]).args(&args.command[1..]).exec();
    Err(match error.kind() {
        std::io::ErrorKind::NotFound if !args.command[0].as_bytes().contains(&b'/') => {
            Failure::new(tried, NOT_ON_PATH).kind(Kind::NotFound)
        }
        std::io::ErrorKind::NotFound => Failure::new(tried, error).kind(Kind::NotFound),
        _ => Failure::new(tried, error).kind(Kind::NotExecutable),
    })
}

fn explain(tried: &str, error: &Error) -> Failure {
    let failure = Failure::new(tried, error);
    let failure = match error.advice() {
        Some(advice) => failure.advice(advice),
        None => failure,
    };
    match error {
        Error::Held { .. } => failure.kind(Kind::Held),
        _ => failure,
    }
}

fn repair(paths: &Paths) -> Result<(), Failure> {
    let held = frequency::repair(paths).map_err(|error| explain("repair", &error))?;
    show(&match held {
        Some(Record { frequency, holders, .. }) => {
            let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
            format!("the frequency is locked at {frequency} by {}\n", names.join(", "))
        }
        None => "the frequency is not locked\n".to_owned(),
    })
}

fn guard(args: &GuardArgs) -> Result<(), Failure> {
    let tried = "guard a process";
    if !args.apart {
        return guardian::detach(&args.watch).map_err(|error| Failure::new(tried, error));
    }
    // A signal to a group of processes ends the owner too, and then the guardian has work to do.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|error| Failure::new(tried, error))?;
    }
    let let_go = || {
        if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    };
    guardian::watch(&args.watch, let_go).map_err(|error| explain(tried, &error))
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let tried = "show what the machine has";
    let status = Status::look(&args.paths.paths()).map_err(|error| explain(tried, &error))?;
    match args.json {
        true => {
            let text = serde_json::to_string_pretty(&status);
            show(&(text.map_err(|error| Failure::new(tried, error))? + "\n"))
        }
        false => show(&text(&status)),
    }
}

fn text(status: &Status) -> String {
    let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
    let mut text =
        format!("kernel           {}, preemption: {}\n", status.kernel, status.preemption);
    if status.policies.is_empty() {
        text += "frequency        this kernel does not set it\n";
    }
    for policy in &status.policies {
        text += &policy_line(policy);
    }
    text += &lock_lines(status);
    // Writing to a string does not fail.
    let us = |us| format!("at most {us} us");
    let _ = writeln!(
        text,
        "wake-up          {}",
        or(status.latency_us.map(us), "not for this user to see")
    );
    let _ = writeln!(text, "idle governor    {}", or(status.idle_governor.clone(), "none"));
    let priority = or(status.priority_limit.map(|limit| limit.to_string()), "any");
    let memory = or(status.memory_limit_bytes.map(|limit| format!("{} KiB", limit >> 10)), "any");
    let _ = writeln!(text, "priority limit   {priority} without CAP_SYS_NICE");
    let _ = writeln!(text, "memory limit     {memory} locked without CAP_IPC_LOCK");
    match status.realtime_us {
        Some([-1, _]) => text += "real-time share  all\n",
        Some([part, period]) => {
            let _ = writeln!(text, "real-time share  {part} of {period} us");
        }
        None => {}
    }
    text
}

fn policy_line(policy: &PolicyStatus) -> String {
    let [least, greatest] = policy.able_khz;
    let now = policy.current_khz.map_or(String::new(), |khz| format!(", now {khz}"));
    format!(
        "{:<17}{}, {} to {} kHz{now} (able: {least} to {greatest})\n",
        policy.name, policy.setting.governor, policy.setting.min_khz, policy.setting.max_khz,
    )
}

fn lock_lines(status: &Status) -> String {
    let Some(lock) = &status.lock else { return "frequency lock   nobody's\n".to_owned() };
    let mut text = format!("frequency lock   {}\n", lock.frequency);
    for held in &lock.holders {
        let state = match held.alive {
            true => "",
            false => ", which has ended: `baton rt repair` undoes it",
        };
        let _ = writeln!(text, "  held by        {}{state}", held.holder);
    }
    text
}
