//! The demo's child processes: each is this program with other arguments.

use crate::failure::Failure;
use crate::stdout::show;
use crate::wait::wait_for;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time for a process to start, or for an event to come, on a machine that is very busy.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The context of the demo's services.
pub const CONTEXT: &str = "binder";

/// Waits until a service is there.
pub fn await_service(name: &str, socket: &Path) -> Result<(), Failure> {
    wait_for(&[name.to_owned()], CONTEXT, socket, Some(PATIENCE))
}

/// The processes that run, and the directory of their socket. Both end with this.
pub struct Processes {
    directory: TempDir,
    program: PathBuf,
    running: Vec<(String, Child)>,
}

impl Processes {
    /// No process yet.
    pub fn new(tried: &str) -> Result<Processes, Failure> {
        let failed = |error| Failure::new(tried, error);
        let directory = tempfile::Builder::new().prefix("baton-demo-").tempdir().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        Ok(Processes { directory, program, running: Vec::new() })
    }

    /// The demo's own directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The socket of the demo's broker.
    pub fn socket(&self) -> PathBuf {
        self.directory().join("broker.sock")
    }

    /// This program as a child with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--socket").arg(self.socket()).args(arguments);
        // A process under the interposer would send requests to itself.
        command.env_remove("LD_PRELOAD").stdin(Stdio::null());
        command
    }

    /// Starts a process, and says so.
    pub fn start(&mut self, name: &str, arguments: &[&str], what: &str) -> Result<(), Failure> {
        let child = self.command(arguments).stdout(Stdio::null()).spawn();
        let child = child.map_err(|error| Failure::new(format!("start {name}"), error))?;
        show(&format!("  {name:<9}  pid {}: {what}\n", child.id()))?;
        self.running.push((name.to_owned(), child));
        Ok(())
    }

    /// Runs a command to its end, as a user would.
    pub fn run(&self, arguments: &[&str]) -> Result<(), Failure> {
        let line = arguments.join(" ");
        show(&format!("\n$ baton {line}\n"))?;
        let tried = format!("run `baton {line}`");
        match self.command(arguments).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::new(tried, format!("it ended with {status}"))),
            Err(error) => Err(Failure::new(tried, error)),
        }
    }

    /// Kills a process. Returns its id, and the time just before.
    pub fn kill(&mut self, name: &str) -> Result<(u32, Instant), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("kill {name}"), error);
        let at = self.running.iter().position(|(other, _)| other == name);
        let (_, mut child) = self.running.remove(at.ok_or_else(|| failed(&"it does not run"))?);
        let killed = Instant::now();
        child.kill().map_err(|error| failed(&error))?;
        let _ = child.wait();
        Ok((child.id(), killed))
    }

    /// Keeps a process that was started otherwise.
    pub fn keep(&mut self, name: &str, child: Child) {
        self.running.push((name.to_owned(), child));
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // The broker, which is the first, ends last.
        for (_, mut child) in self.running.drain(..).rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
