//! The processes of a scenario: this executable again, in a role.
//!
//! A child prints `ready` when it can be called. It lives as long as its standard input is open, so
//! no child outlives the scenario, however that ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rsbinder::{
    DEFAULT_BINDER_PATH, DEFAULT_MAX_BINDER_THREADS, LEGACY_BINDER_PATH, ProcessState, SIBinder,
    hub,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::check::{Outcome, equal};

/// A running child. Dropping it kills it.
pub struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts a child in `role` and waits until it is ready.
    pub fn start(role: &str, arguments: &[&str]) -> Outcome<Self> {
        let mut child = Self::spawn(role, arguments)?;
        equal(&format!("first word of the {role}"), child.line()?.as_str(), "ready")?;
        Ok(child)
    }

    /// Starts a child in `role`.
    pub fn spawn(role: &str, arguments: &[&str]) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["role", role])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("standard output is piped"));
        Ok(Self { process, input, output })
    }

    /// The child's process.
    pub fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    /// The next line that the child prints; an error if it ends instead.
    pub fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(format!("process {} ended: {}", self.pid(), self.process.wait()?).into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Kills the child with SIGKILL; it is gone when this returns.
    pub fn kill(&mut self) -> Outcome {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Waits until the child ends by itself, its standard input still open.
    pub fn wait(&mut self, limit: Duration) -> Outcome<ExitStatus> {
        let process = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty())?;
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
        // A pidfd is readable once its process has ended.
        if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit))? == 0 {
            let pid = self.pid();
            return Err(format!("process {pid} still runs after {} s", limit.tv_sec).into());
        }
        Ok(self.process.wait()?)
    }

    /// Lets the child end, and checks that it ends without an error.
    pub fn end(mut self) -> Outcome {
        drop(self.input.take());
        let status = self.wait(crate::check::PATIENCE)?;
        if status.success() {
            return Ok(());
        }
        Err(format!("process {} ended with {status}", self.pid()).into())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Either fails only when the child is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Opens the driver in this process. `loopers` serve calls; with none, only a thread that waits
/// for a reply of its own can be called.
pub fn open(loopers: Loopers) -> Outcome {
    let path = [DEFAULT_BINDER_PATH, LEGACY_BINDER_PATH]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
        .unwrap_or(LEGACY_BINDER_PATH);
    let most = match loopers {
        Loopers::Pool => DEFAULT_MAX_BINDER_THREADS,
        Loopers::None => 0,
    };
    ProcessState::init(path, most).map_err(|error| error.to_string())?;
    if loopers == Loopers::Pool {
        ProcessState::start_thread_pool();
    }
    Ok(())
}

/// The threads that serve the calls into a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Loopers {
    /// The usual pool: up to sixteen threads.
    Pool,
    /// No thread.
    None,
}

/// Registers a child's service, prints `ready`, and serves until standard input closes.
pub fn serve(name: &str, service: SIBinder) -> Outcome {
    hub::add_service(name, service)?;
    say("ready")?;
    until_end()
}

/// Prints a line for the parent.
pub fn say(line: &str) -> Outcome {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

/// Returns when standard input closes.
pub fn until_end() -> Outcome {
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}
