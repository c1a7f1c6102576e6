//! The demo's child processes: most are this program with other arguments.
//!
//! **Invariant**: none of them outlives the demo, which a signal may end at any time.

use crate::failure::Failure;
use crate::stdout::show;
use crate::threads;
use crate::wait::wait_for;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// The processes that run, by name; the broker is the first.
type Running = Vec<(String, Child)>;

/// The processes that run, and the directory of their socket. Both end with this, or with a signal
/// that ends the demo.
pub struct Processes {
    directory: TempDir,
    program: PathBuf,
    running: Arc<Mutex<Running>>,
}

fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all processes. The broker ends last.
fn end(running: &mut Running) {
    for (_, mut child) in running.drain(..).rev() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A command whose process ends with the demo's main thread, and gets no signal of the terminal:
/// that is for the demo.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.process_group(0);
    // SAFETY: the closure makes one system call.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    command
}

impl Processes {
    /// No process yet.
    pub fn new(tried: &str) -> Result<Processes, Failure> {
        let failed = |error| Failure::new(tried, error);
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
        let directory = tempfile::Builder::new().prefix("baton-demo-").tempdir().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let running = Arc::<Mutex<Running>>::default();
        let (path, all) = (directory.path().to_owned(), Arc::clone(&running));
        threads::start(tried, move || {
            let Some(signal) = signals.forever().next() else { return };
            // Locked until the process ends: the main thread starts nothing more, and says nothing
            // of the processes that have ended.
            let mut running = lock(&all);
            end(&mut running);
            let _ = std::fs::remove_dir_all(path);
            let _ = emulate_default_handler(signal);
        })?;
        Ok(Processes { directory, program, running })
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
        let mut command = command(&self.program);
        command.arg("--socket").arg(self.socket()).args(arguments);
        // A process under the interposer would send requests to itself.
        command.env_remove("LD_PRELOAD").stdin(Stdio::null());
        command
    }

    /// Starts a process, and says so.
    pub fn start(&mut self, name: &str, arguments: &[&str], what: &str) -> Result<(), Failure> {
        let mut command = self.command(arguments);
        let started = self.keep(name, command.stdout(Stdio::null()));
        let (pid, _) = started.map_err(|error| Failure::new(format!("start {name}"), error))?;
        show(&format!("  {name:<9}  pid {pid}: {what}\n"))
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
        let mut running = lock(&self.running);
        let at = running.iter().position(|(other, _)| other == name);
        let (_, mut child) = running.remove(at.ok_or_else(|| failed(&"it does not run"))?);
        let killed = Instant::now();
        child.kill().map_err(|error| failed(&error))?;
        let _ = child.wait();
        Ok((child.id(), killed))
    }

    /// Starts a process. Returns its id, and its standard output if that is a pipe.
    pub fn keep(
        &mut self,
        name: &str,
        command: &mut Command,
    ) -> io::Result<(u32, Option<ChildStdout>)> {
        let mut running = lock(&self.running);
        let mut child = command.spawn()?;
        let started = (child.id(), child.stdout.take());
        running.push((name.to_owned(), child));
        Ok(started)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        end(&mut lock(&self.running));
    }
}
