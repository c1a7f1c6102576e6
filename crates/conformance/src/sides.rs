//! The two sides of a comparison: a guest with the kernel's driver, and this machine with Baton.

use crate::compare::Run;
use crate::step::Step;
use std::fmt::Write;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Paths of the programs.
#[derive(Clone, Debug, clap::Args)]
pub struct Parts {
    /// This program, statically linked, for the guest
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
}

/// The driver of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's own driver, of this kernel.
    Kernel(&'static str),
    /// Baton.
    Baton,
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
        }
    }

    /// Prepares the side.
    ///
    /// # Errors
    /// The side cannot run; the reason is on standard error.
    pub fn prepare(self, parts: &Parts) -> io::Result<()> {
        let Side::Kernel(kernel) = self else { return Ok(()) };
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
                let place = if self == Side::Baton { &script } else { Path::new(GUEST_SCRIPT) };
                arguments.extend(["--script".to_owned(), place.display().to_string()]);
            }
        }
        let has_script = matches!(play, Play::Scenarios(_));
        let (mut command, _broker) = match self {
            Side::Kernel(kernel) => {
                let script = has_script.then_some(script.as_path());
                (in_guest(parts, kernel, script), None)
            }
            Side::Baton => {
                let broker = Broker::start(&parts.baton, directory.path())?;
                arguments.extend(["--beside".to_owned(), broker.child.id().to_string()]);
                (on_this_machine(parts, &broker)?, Some(broker))
            }
        };
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
fn on_this_machine(parts: &Parts, broker: &Broker) -> io::Result<Command> {
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
        let broker = Broker { child, socket };
        let until = Instant::now() + Duration::from_secs(15);
        while !broker.socket.exists() {
            if Instant::now() > until {
                return Err(io::Error::other("the broker did not open its socket"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(broker)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
