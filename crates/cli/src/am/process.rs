//! The commands of the process manager.

use super::intent_args;
use crate::dump;
use crate::failure::{Failure, Kind};
use crate::manager::{ContextArgs, Manager};
use crate::ps::table;
use crate::stdout::{show, show_json};
use baton::Handle;
use baton_services::process::class::{Adjustment, NotAClass};
use baton_services::process::client::{Client, ClientError};
use baton_services::process::protocol::{NAME, ProcessInfo};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Time for the process manager to name classes: processes are shown without them otherwise.
const PATIENCE: Duration = Duration::from_millis(500);

/// Time for the process manager to describe itself.
const DUMP_PATIENCE: Duration = Duration::from_secs(10);

/// Options of commands without arguments.
#[derive(Args)]
pub struct ManagerArgs {
    #[command(flatten)]
    place: ContextArgs,
}

/// Options of commands for a component.
#[derive(Args)]
pub struct ComponentArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// Print {"component", "pid"}; stop has a null pid
    #[arg(long)]
    json: bool,
    /// The component, as in Android's `am`
    #[arg(short = 'n', value_name = "PACKAGE/CLASS", conflicts_with = "component",
          value_parser = parse_component)]
    name: Option<String>,
    /// The component: a class that begins with a dot has the package before it
    #[arg(value_name = "PACKAGE/CLASS", required_unless_present = "name",
          value_parser = parse_component)]
    component: Option<String>,
}

/// A component's name, as it is written.
fn parse_component(text: &str) -> Result<String, &'static str> {
    intent_args::parse_component(text).map(|_| text.to_owned())
}

/// Options of commands for a package.
#[derive(Args)]
pub struct PackageArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// Print {"package", "killed"}: the number of processes
    #[arg(long)]
    json: bool,
    /// The package
    package: String,
}

/// Options of `baton am stack`.
#[derive(Args)]
#[command(after_help = "\
Processes stand in the order in which they are kept when memory is short. ADJ is Android's \
OOM_ADJ: below 0 a process is protected, 0 is the foreground, 15 an empty process. * marks the \
activity that the user works with.")]
pub struct StackArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// Print {"processes": [{"pid", "uid", "package", "name", "adjustment", "class", "rss_bytes",
    /// "components"}], "activities"}
    #[arg(long)]
    json: bool,
}

/// Options of `baton am trim`.
#[derive(Args)]
#[command(after_help = "\
The level is one of Android's: hidden, running-moderate, background, running-low, moderate, \
running-critical, complete, or their numbers. A process hears it if it has attached an \
IApplication.")]
pub struct TrimArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// The process
    pid: u32,
    /// How much to give back
    #[arg(value_parser = parse_level, allow_negative_numbers = true)]
    level: i32,
}

/// Options of `baton am set-adj`.
#[derive(Args)]
#[command(after_help = "\
A class is persistent, real-time, foreground, visible, secondary-server, backup, home, hidden, \
content-provider or empty. Root may give any. A user's own processes take one from foreground on \
as a bound. A package with baton:realtime may be real-time, -1 to -11.

Example: baton am set-adj 4711 real-time")]
pub struct SetAdjArgs {
    #[command(flatten)]
    place: ContextArgs,
    /// The process
    pid: u32,
    /// A class, a number from -12 to 15, or `default`
    #[arg(value_parser = parse_adjustment, allow_hyphen_values = true, value_name = "CLASS")]
    adjustment: Wanted,
}

/// An adjustment, or that by what a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted(Option<Adjustment>);

fn parse_adjustment(text: &str) -> Result<Wanted, NotAClass> {
    match text {
        "default" => Ok(Wanted(None)),
        text => text.parse().map(|adjustment| Wanted(Some(adjustment))),
    }
}

/// Android's levels of `am send-trim-memory`.
const LEVELS: [(&str, i32); 7] = [
    ("running-moderate", 5),
    ("running-low", 10),
    ("running-critical", 15),
    ("hidden", 20),
    ("background", 40),
    ("moderate", 60),
    ("complete", 80),
];

fn parse_level(text: &str) -> Result<i32, String> {
    let named = LEVELS.iter().find(|(name, _)| *name == text).map(|(_, level)| *level);
    named.or_else(|| text.parse().ok().filter(|level| (1..=80).contains(level))).ok_or_else(|| {
        let names: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
        format!("a number from 1 to 80, or one of {}", names.join(", "))
    })
}

#[derive(Serialize)]
struct Started<'a> {
    component: &'a str,
    pid: Option<u32>,
}

#[derive(Serialize)]
struct Killed<'a> {
    package: &'a str,
    killed: u32,
}

#[derive(Serialize)]
struct Stack {
    processes: Vec<Shown>,
    activities: Vec<String>,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    process: ProcessInfo,
    class: &'static str,
}

fn client(place: &ContextArgs, socket: &Path, tried: &str) -> Result<Client, Failure> {
    let manager = Manager::find(&place.context, socket, tried)?;
    match manager.service(tried, NAME) {
        Ok(handle) => Ok(Client::new(handle)),
        Err(failure) if failure.is(Kind::NoBroker) || failure.is(Kind::NoManager) => Err(failure),
        Err(_) => Err(Failure::new(tried, "there is no process manager")
            .advice("start one: `baton am serve --manifests DIRECTORY`")),
    }
}

fn refused(tried: &str, error: &ClientError) -> Failure {
    let failure = Failure::new(tried, error);
    match error {
        ClientError::Refused(exception) if exception.code == SECURITY => {
            failure.advice("try as root, or as the user of the package")
        }
        ClientError::Refused(exception) if exception.code == ILLEGAL_ARGUMENT => {
            failure.advice("`baton am serve --manifests DIRECTORY` says which packages there are")
        }
        ClientError::Refused(_) => failure.advice("see `baton am stack`"),
        _ => failure,
    }
}

/// `EX_*` of AIDL.
const SECURITY: i32 = -1;
const ILLEGAL_ARGUMENT: i32 = -3;

impl ComponentArgs {
    fn component(&self) -> &str {
        self.name.as_deref().or(self.component.as_deref()).expect("clap demands one of them")
    }
}

/// Starts a component.
pub fn start(args: &ComponentArgs, socket: &Path) -> Result<(), Failure> {
    let component = args.component();
    let tried = format!("start {component}");
    let client = client(&args.place, socket, &tried)?;
    let pid = client.start(component).map_err(|error| refused(&tried, &error))?;
    match args.json {
        true => show_json(&Started { component, pid: Some(pid) }),
        false => show(&format!("Started {component} in process {pid}\n")),
    }
}

/// Stops a component.
pub fn stop(args: &ComponentArgs, socket: &Path) -> Result<(), Failure> {
    let component = args.component();
    let tried = format!("stop {component}");
    let client = client(&args.place, socket, &tried)?;
    client.stop(component).map_err(|error| refused(&tried, &error))?;
    match args.json {
        true => show_json(&Started { component, pid: None }),
        false => show(&format!("Stopped {component}\n")),
    }
}

/// Kills background processes.
pub fn kill(args: &PackageArgs, socket: &Path) -> Result<(), Failure> {
    let tried = format!("kill background processes of {}", args.package);
    let client = client(&args.place, socket, &tried)?;
    let killed = client.kill(&args.package).map_err(|error| refused(&tried, &error))?;
    show_killed(args, killed)
}

/// Kills all processes.
pub fn force_stop(args: &PackageArgs, socket: &Path) -> Result<(), Failure> {
    let tried = format!("stop {}", args.package);
    let client = client(&args.place, socket, &tried)?;
    let killed = client.force_stop(&args.package).map_err(|error| refused(&tried, &error))?;
    show_killed(args, killed)
}

fn show_killed(args: &PackageArgs, killed: u32) -> Result<(), Failure> {
    let package = &args.package;
    let processes = if killed == 1 { "process" } else { "processes" };
    match args.json {
        true => show_json(&Killed { package, killed }),
        false => show(&format!("Killed {killed} {processes} of {package}\n")),
    }
}

/// Asks for memory.
pub fn trim(args: &TrimArgs, socket: &Path) -> Result<(), Failure> {
    let tried = format!("ask process {} for memory", args.pid);
    let client = client(&args.place, socket, &tried)?;
    client.trim(args.pid, args.level).map_err(|error| refused(&tried, &error))
}

/// Sets an adjustment.
pub fn set_adj(args: &SetAdjArgs, socket: &Path) -> Result<(), Failure> {
    let tried = format!("set the importance of process {}", args.pid);
    let client = client(&args.place, socket, &tried)?;
    let Wanted(wanted) = args.adjustment;
    client.set_adjustment(args.pid, wanted).map_err(|error| refused(&tried, &error))
}

/// Shows processes and activities.
pub fn stack(args: &StackArgs, socket: &Path) -> Result<(), Failure> {
    let tried = "show the processes of applications";
    let client = client(&args.place, socket, tried)?;
    let failed = |error| refused(tried, &error);
    let (processes, activities) =
        (client.processes().map_err(failed)?, client.stack().map_err(failed)?);
    let shown = |process: ProcessInfo| {
        let class = process.adjustment.class().name();
        Shown { process, class }
    };
    let processes: Vec<Shown> = processes.into_iter().map(shown).collect();
    match args.json {
        true => show_json(&Stack { processes, activities }),
        false => show(&stack_table(&processes, activities.first())),
    }
}

fn stack_table(processes: &[Shown], top: Option<&String>) -> String {
    let mut rows =
        vec![["PID", "UID", "ADJ", "CLASS", "KIB", "PROCESS", "COMPONENTS"].map(str::to_owned)];
    for Shown { process, class } in processes {
        let component = |(name, state): &(String, String)| {
            let is_top = top.is_some_and(|top| *top == format!("{}/{name}", process.package));
            format!("{}{name} {state}", if is_top { "*" } else { "" })
        };
        let components: Vec<String> = process.components.iter().map(component).collect();
        rows.push([
            process.pid.to_string(),
            process.uid.to_string(),
            process.adjustment.to_string(),
            (*class).to_owned(),
            (process.rss_bytes >> 10).to_string(),
            process.name.clone(),
            if components.is_empty() { "-".to_owned() } else { components.join(", ") },
        ]);
    }
    table::table(&rows, &[3, 5, 6])
}

/// Prints the service's dump.
pub fn dumpsys(args: &ManagerArgs, socket: &Path) -> Result<(), Failure> {
    client(&args.place, socket, "show the process manager")?;
    dump::dump_service(&args.place.context, NAME, &[], DUMP_PATIENCE, socket)
}

/// The adjustments of processes by pid, as a process manager tells them in time.
pub fn adjustments(service: &Handle) -> BTreeMap<u32, Adjustment> {
    let processes = Client::within(service.clone(), PATIENCE).processes().unwrap_or_default();
    processes.iter().map(|process| (process.pid, process.adjustment)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_androids() {
        assert_eq!(parse_level("complete"), Ok(80));
        assert_eq!(parse_level("40"), Ok(40));
        for bad in ["", "0", "81", "COMPLETE", "-5"] {
            assert!(parse_level(bad).unwrap_err().contains("running-low"), "{bad:?}");
        }
        assert_eq!(parse_adjustment("default"), Ok(Wanted(None)));
        assert_eq!(parse_adjustment("-1"), Ok(Wanted(Adjustment::new(-1))));
        assert!(parse_adjustment("16").is_err());
    }

    #[test]
    fn the_table_marks_the_activity_of_the_user() {
        let process = |pid, name: &str, adjustment, components: &[(&str, &str)]| {
            let adjustment = Adjustment::new(adjustment).unwrap();
            let process = ProcessInfo {
                pid,
                uid: 10_001,
                package: "org.app".to_owned(),
                name: name.to_owned(),
                adjustment,
                rss_bytes: 2 << 20,
                components: components.iter().map(|&(a, b)| (a.into(), b.into())).collect(),
            };
            Shown { process, class: adjustment.class().name() }
        };
        let processes = [
            process(7, "org.app", 0, &[("A", "resumed"), ("S", "started")]),
            process(12, "org.app:w", 15, &[]),
        ];
        assert_eq!(
            stack_table(&processes, Some(&"org.app/A".to_owned())),
            "PID    UID  ADJ  CLASS        KIB  PROCESS    COMPONENTS\n\
             \x20 7  10001    0  foreground  2048  org.app    *A resumed, S started\n\
             \x2012  10001   15  empty       2048  org.app:w  -\n"
        );
    }
}
