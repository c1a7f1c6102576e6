//! The sides of a comparison: a guest with the kernel's driver, and this machine with Baton,
//! interposed or mounted.

use crate::compare::Run;
use crate::rules::{MOUNT_RULES, Rule};
use crate::step::Step;
use std::fmt::Write;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Paths of the programs.
#[derive(Clone, Debug, clap::Args)]
pub struct Parts {
    /// This program, statically linked, for the guest and for a mounted binderfs
    #[arg(long, value_name = "FILE")]
    pub in_guest: PathBuf,
    /// The `baton` to judge
    #[arg(long, value_name = "FILE")]
    pub baton: PathBuf,
    /// tools/binder-vm
    #[arg(long, value_name = "FILE")]
    pub binder_vm: PathBuf,
    /// Seconds that one portion of a run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub timeout: u64,
    /// Pages of the mounted binderfs, if not those that `baton mount` chooses
    #[arg(long, value_parser = ["passthrough", "stored"])]
    pub pages: Option<String>,
}

/// The driver of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's own driver, of this kernel.
    Kernel(&'static str),
    /// Baton, interposed.
    Baton,
    /// A binderfs that Baton has mounted.
    Mount,
}

/// The scenarios to play.
#[derive(Clone, Debug)]
pub enum Play {
    /// Arguments of `play`.
    Arguments(Vec<String>),
    /// These scenarios, by name.
    Scenarios(Vec<(String, Vec<Step>)>),
}

impl Side {
    /// Name of the side in messages.
    pub fn name(self) -> String {
        match self {
            Side::Kernel("rt") => "linux-image-rt-amd64".to_owned(),
            Side::Kernel(_) => "linux-image-amd64".to_owned(),
            Side::Baton => "baton".to_owned(),
            Side::Mount => "baton mount".to_owned(),
        }
    }

    /// Rules about this side alone.
    pub fn rules(self) -> &'static [Rule] {
        match self {
            Side::Mount => MOUNT_RULES,
            Side::Kernel(_) | Side::Baton => &[],
        }
    }

    /// Prepares the side.
    ///
    /// # Errors
    /// The side cannot run; the reason is on standard error.
    pub fn prepare(self, parts: &Parts) -> io::Result<()> {
        let kernel = match self {
            Side::Kernel(kernel) => kernel,
            Side::Baton => return Ok(()),
            Side::Mount => {
                let directory = tempfile::tempdir()?;
                let broker = Broker::start(&parts.baton, directory.path())?;
                return Mount::start(parts, &broker, directory.path()).map(drop);
            }
        };
        let mut command = Command::new(&parts.binder_vm);
        let status = command.args(["--kernel", kernel, "--fetch"]).status();
        let status = status.map_err(|error| failed(&parts.binder_vm.display(), error))?;
        if !status.success() {
            return Err(io::Error::other(format!("no {} to compare with", self.name())));
        }
        Ok(())
    }

    /// Plays scenarios on this side. `played` is called after each.
    ///
    /// # Errors
    /// The run failed; its own messages are on standard error.
    pub fn run(self, parts: &Parts, play: &Play, played: &dyn Fn()) -> io::Result<Run> {
        let directory = tempfile::tempdir()?;
        let script = directory.path().join("script");
        let mut arguments = vec!["play".to_owned()];
        match play {
            Play::Arguments(more) => arguments.extend(more.iter().cloned()),
            Play::Scenarios(scenarios) => {
                std::fs::write(&script, written(scenarios)?)?;
                let in_guest = matches!(self, Side::Kernel(_));
                let place = if in_guest { Path::new(GUEST_SCRIPT) } else { &script };
                arguments.extend(["--script".to_owned(), place.display().to_string()]);
            }
        }
        let has_script = matches!(play, Play::Scenarios(_));
        // Dropped in this order: the mount needs its broker.
        let (mut mount, mut broker) = (None, None);
        let mut command = match self {
            Side::Kernel(kernel) => {
                let script = has_script.then_some(script.as_path());
                in_guest(parts, kernel, script)
            }
            Side::Baton => {
                let broker = broker.insert(Broker::start(&parts.baton, directory.path())?);
                interposed(parts, broker)?
            }
            Side::Mount => {
                let broker = broker.insert(Broker::start(&parts.baton, directory.path())?);
                let mount = mount.insert(Mount::start(parts, broker, directory.path())?);
                let device = mount.directory.join("binder").display().to_string();
                arguments.extend(["--device".to_owned(), device]);
                arguments.extend(["--beside".to_owned(), mount.child.id().to_string()]);
                let mut command = Command::new("timeout");
                command.arg(parts.timeout.to_string()).arg(&parts.in_guest);
                command
            }
        };
        if let Some(broker) = &broker {
            arguments.extend(["--beside".to_owned(), broker.child.id().to_string()]);
        }
        command.args(arguments);
        self.follow(command, played)
    }

    /// Runs the command and reads its output.
    fn follow(self, mut command: Command, played: &dyn Fn()) -> io::Result<Run> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed(&self.name(), error))?;
        let mut run = Run::default();
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            if run.take(&line?) {
                played();
            }
        }
        let status = child.wait()?;
        if !status.success() {
            let played = run.played.len();
            let why = if status.code() == Some(124) { "took too long" } else { "failed" };
            let error = format!("{} {why} ({status}) after {played} scenarios", self.name());
            return Err(io::Error::other(error));
        }
        Ok(run)
    }
}

fn failed(what: &dyn std::fmt::Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The command that runs this program in a guest.
fn in_guest(parts: &Parts, kernel: &str, script: Option<&Path>) -> Command {
    let mut command = Command::new(&parts.binder_vm);
    // Actors act one at a time, so a second processor would be a waste.
    command.args(["--kernel", kernel, "--cpus", "1", "--memory", "768", "--timeout"]);
    command.arg(parts.timeout.to_string());
    if let Some(script) = script {
        command.arg("--file").arg(format!("{}:{GUEST_SCRIPT}", script.display()));
    }
    command.arg("--").arg(&parts.in_guest);
    command
}

/// The command that runs this program on this machine, with the broker.
fn interposed(parts: &Parts, broker: &Broker) -> io::Result<Command> {
    let mut command = Command::new("timeout");
    command.arg(parts.timeout.to_string()).arg(&parts.baton).args(["run", "--"]);
    command.arg(std::env::current_exe()?);
    command.env("BATON_SOCKET", &broker.socket).env("BATON_LOG", "off");
    Ok(command)
}

const GUEST_SCRIPT: &str = "/script";

fn written(scenarios: &[(String, Vec<Step>)]) -> io::Result<String> {
    let mut text = String::new();
    for (name, steps) in scenarios {
        let _ = writeln!(text, "scenario {name}");
        for step in steps {
            let _ = writeln!(text, "> {}", serde_json::to_string(step)?);
        }
    }
    Ok(text)
}

/// A broker for the comparison, stopped when this value is dropped.
struct Broker {
    child: Child,
    socket: PathBuf,
}

impl Broker {
    fn start(baton: &Path, directory: &Path) -> io::Result<Broker> {
        let socket = directory.join("broker");
        let mut command = Command::new(baton);
        command.arg("broker").env("BATON_SOCKET", &socket).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| failed(&baton.display(), error))?;
        let mut broker = Broker { child, socket };
        if !makes(&mut broker.child, &broker.socket)? {
            return Err(io::Error::other("the broker did not open its socket"));
        }
        Ok(broker)
    }
}

/// Waits until a child has made a file. `false`: the child has ended, or 15 seconds are over.
fn makes(child: &mut Child, file: &Path) -> io::Result<bool> {
    let until = Instant::now() + Duration::from_secs(15);
    while !file.exists() {
        if child.try_wait()?.is_some() || Instant::now() > until {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

/// A mounted binderfs, unmounted when this value is dropped.
struct Mount {
    child: Child,
    directory: PathBuf,
}

impl Mount {
    fn start(parts: &Parts, broker: &Broker, directory: &Path) -> io::Result<Mount> {
        let directory = directory.join("binderfs");
        std::fs::create_dir(&directory)?;
        let mut command = Command::new(&parts.baton);
        command.arg("mount").arg(&directory).env("BATON_SOCKET", &broker.socket);
        command.args(parts.pages.iter().map(|pages| format!("--options=pages={pages}")));
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| failed(&parts.baton.display(), error))?;
        let mut mount = Mount { child, directory };
        let device = mount.directory.join("binder");
        if !makes(&mut mount.child, &device)? {
            let why = format!("cannot mount a binderfs: see `{} mount`", parts.baton.display());
            return Err(io::Error::other(why));
        }
        Ok(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: a system call without addresses, on a child that has not been waited for. The
        // server unmounts the directory.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        let _ = self.child.wait();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
