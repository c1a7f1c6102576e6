//! A process that a run has started, and that is spoken to in lines; both ends of it.
//!
//! The child says "ready" when it is at it, then answers each order with a line, of JSON if it has
//! found something. It ends with its input, when it is killed, or with the process that started it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

/// What is measured at once takes some seconds at most: a child that is silent for longer has got
/// stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The process, as the run sees it. Dropped, it is killed.
pub(crate) struct ChildProcess {
    name: &'static str,
    process: Child,
    /// `None` once it is to end.
    orders: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    /// How long its end may take once its input has ended.
    farewell: Duration,
}

/// Why a process does not do what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    #[error("start {0}: {1}")]
    Start(String, io::Error),
    /// It has said why.
    #[error("the {0} has ended")]
    Ended(&'static str),
    #[error("the {0} has got stuck")]
    Stuck(&'static str),
    #[error("the {0} says something else: {1}")]
    Garbled(&'static str, String),
    #[error("the {0} cannot be heard: {1}")]
    System(&'static str, io::Error),
}

impl From<ChildError> for io::Error {
    fn from(error: ChildError) -> io::Error {
        io::Error::other(error)
    }
}

impl ChildProcess {
    /// Starts it, its input and output to and from here.
    pub fn start(name: &'static str, command: &mut Command) -> Result<ChildProcess, ChildError> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let program = || command.get_program().to_string_lossy().into_owned();
        let mut process = started.map_err(|error| ChildError::Start(program(), error))?;
        let orders = process.stdin.take();
        let lines = BufReader::new(process.stdout.take().expect("it is piped"));
        Ok(ChildProcess { name, process, orders, lines, farewell: Duration::ZERO })
    }

    /// Starts a program as a process of that kind and role, which ends with this one, and waits
    /// until it is at it.
    pub fn start_role(
        name: &'static str,
        program: &mut Command,
        kind: &str,
        role: &impl Serialize,
    ) -> Result<ChildProcess, ChildError> {
        let role = serde_json::to_string(role).expect("strings and numbers");
        program.args([kind, &role, &std::process::id().to_string()]);
        let mut child = ChildProcess::start(name, program)?;
        child.is_ready()?;
        Ok(child)
    }

    /// Lets it end in good order when it is dropped.
    pub fn with_farewell(mut self, farewell: Duration) -> ChildProcess {
        self.farewell = farewell;
        self
    }

    pub fn tell(&mut self, line: &str) -> Result<(), ChildError> {
        let orders = self.orders.as_mut().expect("it is not to end");
        writeln!(orders, "{line}").map_err(|_| ChildError::Ended(self.name))
    }

    /// The next line. What comes in one piece is written in one piece, or nearly: patience is for
    /// its beginning.
    pub fn hear(&mut self, patience: Duration) -> Result<String, ChildError> {
        let mut line = String::new();
        if self.lines.buffer().is_empty() {
            let mut fds = [PollFd::new(self.lines.get_ref(), PollFlags::IN)];
            match poll(&mut fds, Timespec::try_from(patience).ok().as_ref()) {
                Ok(0) => return Err(ChildError::Stuck(self.name)),
                Ok(_) => {}
                Err(errno) => return Err(ChildError::System(self.name, errno.into())),
            }
        }
        match self.lines.read_line(&mut line) {
            Ok(1..) => Ok(line.trim_end().to_owned()),
            _ => Err(ChildError::Ended(self.name)),
        }
    }

    pub fn is_ready(&mut self) -> Result<(), ChildError> {
        match self.hear(PATIENCE)? {
            line if line == "ready" => Ok(()),
            line => Err(ChildError::Garbled(self.name, line)),
        }
    }

    /// What it has found, in so much time more than usual.
    pub fn found<T: DeserializeOwned>(&mut self, takes: Duration) -> Result<T, ChildError> {
        let line = self.hear(PATIENCE + takes)?;
        serde_json::from_str(&line).map_err(|_| ChildError::Garbled(self.name, line))
    }

    /// Sends a line, and returns the child's answer. The child has the usual time and `takes` more.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        line: &str,
        takes: Duration,
    ) -> Result<T, ChildError> {
        self.tell(line)?;
        self.found(takes)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// An error if it has ended by itself.
    pub fn is_there(&mut self) -> Result<(), ChildError> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(ChildError::Ended(self.name)),
            Err(error) => Err(ChildError::System(self.name, error)),
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if !self.farewell.is_zero() {
            drop(self.orders.take());
            let output = PollFd::new(self.lines.get_ref(), PollFlags::empty());
            let _ = poll(&mut [output], Timespec::try_from(self.farewell).ok().as_ref());
        }
        // One that has ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program that stands beside this one.
pub(crate) fn beside(name: &str, advice: &str) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    match path.exists() {
        true => Ok(path),
        false => Err(io::Error::other(format!("{name} is not there: {advice}"))),
    }
}

/// The arguments of a child process, which the run has written.
#[derive(Clone, Debug, clap::Args)]
pub struct RoleArgs {
    /// The role, in JSON
    pub role: String,
    /// Process id of who started it: it ends with that one
    pub starter: u32,
}

impl RoleArgs {
    /// In the child: does its part, and ends with the process that started it.
    pub fn run<R: DeserializeOwned>(&self, part: impl FnOnce(R) -> io::Result<()>) -> ExitCode {
        let role = || Ok(serde_json::from_str(&self.role)?);
        match end_with(self.starter).and_then(|()| role()).and_then(part) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error}", self.role);
                ExitCode::FAILURE
            }
        }
    }
}

/// Has this process killed when the one that started it ends; a child may spin, and would not see
/// the end of its input.
pub fn end_with(starter: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // It may have ended before.
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
    if parent == starter { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

/// Tells a line to the process that started this one.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

pub(crate) fn tell(found: &impl Serialize) -> io::Result<()> {
    say(&serde_json::to_string(found)?)
}

/// The next line of what this process is told.
pub(crate) fn order() -> io::Result<String> {
    orders().next().unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()))
}

/// Says that this process is at it, and waits until it is told to begin.
pub(crate) fn await_begin() -> io::Result<()> {
    say("ready")?;
    order().map(drop)
}

/// Waits until this process is killed.
pub(crate) fn forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// What this process is told, line by line.
pub(crate) fn orders() -> impl Iterator<Item = io::Result<String>> {
    io::stdin().lock().lines()
}
