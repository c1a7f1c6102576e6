//! `baton am serve`: runs the services.

use crate::broker::begin_log;
use crate::contexts::parse_name;
use crate::failure::{Failure, Kind};
use crate::manager::publish;
use crate::stdout::show;
use crate::threads;
use crate::timeout::parse_seconds;
use crate::wait::wait_for_manager;
use crate::{background, stop};
use baton::Process;
use baton_services::broadcast;
use baton_services::broadcast::components::{Components, Held};
use baton_services::intent::permission::PolicyError;
use baton_services::intent::{ComponentName, Manifest, Policy};
use baton_services::process::class::{Adjustment, MinFree};
use baton_services::process::package::Package;
use baton_services::process::protocol::NAME;
use baton_services::process::run::{Config, ProcessManager};
use baton_services::process::server::Server;
use baton_services::process::start::Commands;
use baton_services::process::table::ProcessId;
use clap::Args;
use rustix::fd::AsFd;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Threads that serve: one that starts a process waits until it runs.
const N_LOOPERS: usize = 4;

/// Options of `baton am serve`.
#[derive(Args)]
#[command(after_help = "\
A manifest is a file NAME.xml in the words of AndroidManifest.xml; baton:exec names the program of \
a component, baton:load a shared object with a baton_main that a warm parent has loaded, \
baton:java a class path, a class and its arguments, which run in a child of a zygote.

When memory is short, the least important processes are killed first, and real-time ones never. \
Free memory is that of --cgroup, or of the machine. What takes root is left out without it, and \
the log says so: users of packages, protection from the kernel's own killer, better nice values.

Processes end with the manager, however it ends. Broadcasts that it has accepted are in a file of \
16 MiB beside the broker's socket, SOCKET.CONTEXT.broadcasts, and the next one delivers them.

Runs until SIGTERM or SIGINT, and tells systemd when it is ready (Type=notify). See \
docs/processes.md and docs/broadcasts.md.")]
pub struct ServeArgs {
    /// The context in which the service is registered
    #[arg(long, default_value = "binder", value_name = "NAME", value_parser = parse_name)]
    context: String,
    /// The directory of manifests
    #[arg(long, value_name = "DIRECTORY")]
    manifests: Option<PathBuf>,
    /// The control group for the processes, whose limit is the memory that they have
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Pages of free memory below which processes of adjustment 0, 1, 2, 7, 14 and 15 are killed;
    /// if all are 0, none ever is
    #[arg(long, default_value = "1536,2048,4096,5120,5632,6144", value_name = "SIX NUMBERS")]
    minfree: MinFree,
    /// The holders of permissions, beside root and user 1000: a permission and its users on each
    /// line, such as `org.example.LISTEN 10001 10010-10019`
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Option of the zygote for Java programs, as `baton zygote` takes it; may be given again
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    zygote_option: Vec<String>,
    /// Wait so many seconds for a service manager
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Duration,
}

const TRIED: &str = "run the process manager";

/// Serves until a signal ends it.
pub fn serve(args: &ServeArgs, socket: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(TRIED, error);
    let packages = args.manifests.as_deref().map(read_manifests).transpose()?.unwrap_or_default();
    let policy = args.policy.as_deref().map(read_policy).transpose()?.unwrap_or_default();
    begin_log("ActivityManager");
    let _broker = background::connect_or_start(socket, TRIED)?;
    wait_for_manager(&args.context, socket, Some(args.timeout))
        .map_err(|failure| failure.during(TRIED))?;
    // Done before threads are started, which inherit the signal mask.
    let signals = stop::signals().map_err(failed)?;
    let process =
        Process::open(&args.context, socket).map_err(|it| Failure::open(TRIED, socket, &it))?;
    // The helper is told in the log if this takes a right that is missing.
    let _ =
        std::fs::write("/proc/self/oom_score_adj", Adjustment::BEST.oom_score_adj().to_string());
    let manager = ProcessManager::new(config(args, socket)?).map_err(failed)?;
    let (_server, object) = Server::new(&process, Arc::clone(&manager));
    // What is wrong with manifests is said first, also beside a manager that runs.
    let wrong = |error: &dyn std::fmt::Display| Failure::new(TRIED, error).kind(Kind::Usage);
    let mut manifests = Vec::new();
    for (manifest, package) in packages {
        let uid = package.uid.unwrap_or(rustix::process::geteuid().as_raw());
        manager.add(package).map_err(|error| wrong(&error))?;
        manifests.push((manifest, uid));
    }
    let broadcasts = broadcasts(&process, &manager, policy, journal(socket, &args.context))
        .map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => {
                failed(error).advice("use that one, or give another context with --context")
            }
            _ => failed(error),
        })?;
    for (manifest, uid) in manifests {
        broadcasts.install(&manifest, uid).map_err(|error| wrong(&error))?;
    }
    broadcasts.go_on().map_err(failed)?;
    publish(TRIED, &process, &args.context, NAME, object)?;
    publish(TRIED, &process, &args.context, broadcast::NAME, broadcasts.object())?;
    let loopers = threads::serve(TRIED, &process, N_LOOPERS)?;
    show(&format!("Managing processes as {NAME:?} in {:?}\n", args.context))?;
    let _ = sd_notify::notify(true, &[sd_notify::NotifyState::Ready]);
    let ended = loop {
        match manager.round(signals.as_fd()) {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(failed(error)),
        }
    };
    // The journal is closed before the receivers seem to die.
    drop(broadcasts);
    process.close();
    loopers.into_iter().for_each(|looper| _ = looper.join());
    manager.close();
    ended
}

fn config(args: &ServeArgs, socket: &Path) -> Result<Config, Failure> {
    let failed = |error: std::io::Error| Failure::new(TRIED, error);
    let program = std::env::current_exe().map_err(failed)?;
    // A process may go to another directory.
    let socket = std::path::absolute(socket).map_err(failed)?;
    let command = |words: &[&str]| {
        let words = words.iter().map(OsString::from);
        std::iter::once(program.clone().into_os_string()).chain(words).collect::<Vec<_>>()
    };
    let mut zygote = command(&["zygote", "--parent"]);
    zygote.extend(args.zygote_option.iter().map(OsString::from));
    Ok(Config {
        group: args.cgroup.clone(),
        minfree: args.minfree,
        commands: Commands { helper: command(&["am", "helper"]), zygote },
        environment: vec![("BATON_SOCKET".into(), socket.into())],
    })
}

/// The broadcast service, whose receivers in manifests the process manager starts.
fn broadcasts(
    process: &Process,
    manager: &Arc<ProcessManager>,
    policy: Policy,
    journal: PathBuf,
) -> Result<broadcast::Server, std::io::Error> {
    let [starts, holds] = [(); 2].map(|()| Arc::downgrade(manager));
    let components = Components {
        start: Box::new(move |name| {
            let manager = starts.upgrade().ok_or("the process manager is gone")?;
            let (id, _) = manager.receive(name).map_err(|error| error.to_string())?;
            Ok(Receiving::hold(&starts, id, name))
        }),
        hold: Box::new(move |name| {
            let id = holds.upgrade()?.receive_if_running(name)?;
            Some(Receiving::hold(&holds, id, name))
        }),
    };
    let journal = Some(journal);
    let settings = broadcast::Settings { policy, components, journal, ..Default::default() };
    broadcast::Server::start(process, settings)
}

/// A process whose receiver works on broadcasts: it is in the foreground until this is dropped.
struct Receiving {
    manager: Weak<ProcessManager>,
    id: ProcessId,
    class: String,
}

impl Receiving {
    fn hold(manager: &Weak<ProcessManager>, id: ProcessId, name: &ComponentName) -> Held {
        Box::new(Receiving { manager: Weak::clone(manager), id, class: name.class.clone() })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.upgrade() {
            manager.received(self.id, &self.class);
        }
    }
}

/// The file by which the next broadcast service of a context goes on: beside the broker's socket.
fn journal(socket: &Path, context: &str) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(format!(".{context}.broadcasts"));
    PathBuf::from(name)
}

/// The policy of a file.
fn read_policy(path: &Path) -> Result<Policy, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::new(format!("read {}", path.display()), error).kind(Kind::Usage)
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    text.parse().map_err(|error: PolicyError| wrong(&error))
}

/// The manifests in a directory, and their packages.
fn read_manifests(directory: &Path) -> Result<Vec<(Manifest, Package)>, Failure> {
    let tried = format!("read the manifests in {}", directory.display());
    let failed = |error: std::io::Error| Failure::new(&tried, error).kind(Kind::Usage);
    let entries: Result<Vec<_>, _> = std::fs::read_dir(directory).map_err(failed)?.collect();
    let mut paths: Vec<PathBuf> = entries.map_err(failed)?.iter().map(|it| it.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "xml"));
    paths.sort();
    let mut packages = Vec::new();
    for path in paths {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::new(format!("read {}", path.display()), error).kind(Kind::Usage)
        };
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error))?;
        let manifest = Manifest::parse(&text).map_err(|error| wrong(&error))?;
        let package = Package::new(&manifest).map_err(|error| wrong(&error))?;
        packages.push((manifest, package));
    }
    Ok(packages)
}
