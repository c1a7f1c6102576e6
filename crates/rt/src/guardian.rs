//! The guardian: a process that undoes the settings of a process that is killed.
//!
//! ```text
//!   owner --> baton rt guard --> baton rt guard --apart
//!               ends at once       sends "ready PID", waits for the owner's end, repairs, ends
//! ```
//!
//! The guardian is a separate program, because the child of a process with threads can do hardly
//! anything before it executes one. It is not the owner's child, since a program may wait for all
//! of its children. If the guardian itself is killed, the record remains. The next process that
//! requests the lock, or `baton rt repair`, then does its work.

use crate::error::Error;
use crate::frequency;
use crate::holder::Holder;
use crate::idle::Bound;
use crate::inject::Seized;
use crate::paths::Paths;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

/// The task of a guardian.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// The process to watch.
    pub owner: Holder,
    /// The event at which the guardian acts.
    pub until: Until,
    /// Bound on wake-up times to keep for the owner, in microseconds.
    pub latency_us: Option<u32>,
    /// Whether to lock the memory of the program that the owner is going to execute.
    pub lock_memory: bool,
    /// Paths of the machine's files.
    pub paths: Paths,
}

/// The event at which the guardian acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Until {
    /// The end of the owner.
    Death,
    /// The end of the owner, or the end of its [`Guardian`] value.
    Release,
}

/// A running guardian. Dropping this value ends it, with [`Until::Release`].
#[derive(Debug)]
pub struct Guardian {
    /// Pid of the guardian.
    pub pid: u32,
    _held: Option<ChildStdin>,
}

impl Guardian {
    /// Starts `program`, the `baton` command, as this process's guardian. Returns once it watches.
    pub fn start(program: &Path, watch: &Watch) -> Result<Guardian, Error> {
        let text = serde_json::to_string(watch).expect("numbers and paths");
        let mut command = Command::new(program);
        // Under the interposer the guardian would be a client of a broker that it may have to
        // outlive.
        command.args(["rt", "guard", &text]).env_remove("LD_PRELOAD").stdout(Stdio::piped());
        command.stdin(match watch.until {
            Until::Death => Stdio::null(),
            Until::Release => Stdio::piped(),
        });
        let failed =
            |error: io::Error| Error::NoGuardian(format!("{}: {error}", program.display()));
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let held = child.stdin.take();
        child.wait().map_err(failed)?;
        let ready = line.trim_end().strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        let pid = ready.ok_or_else(|| Error::NoGuardian(line.trim_end().to_owned()))?;
        Ok(Guardian { pid, _held: held })
    }
}

/// Starts the guardian itself, which reports to the owner. Runs in the process that the owner
/// started.
pub fn detach(watch: &str) -> io::Result<()> {
    let own = std::env::current_exe()?;
    Command::new(own)
        .args(["rt", "guard", "--apart", watch])
        .stdin(Stdio::inherit())
        .spawn()
        .map(drop)
}

/// Watches and repairs. Runs in the guardian. `ready` reports to the owner, including errors, and
/// closes standard output.
pub fn watch(text: &str, ready: impl FnOnce()) -> Result<(), Error> {
    let begun = begin(text);
    let line = match &begun {
        Ok(_) => format!("ready {}\n", std::process::id()),
        Err(error) => format!("{error}\n"),
    };
    let _ = io::stdout().lock().write_all(line.as_bytes());
    ready();
    let Ok((watch, pidfd, seized, _bound)) = begun else { return Ok(()) };
    let locked = seized.map_or(Ok(()), Seized::lock_memory);
    if let Err(error) = &locked {
        // The owner has become the program, which has just been ended: only the guardian can report
        // that.
        let advice = error.advice().map_or_else(String::new, |advice| format!("\n  {advice}"));
        let mut to = io::stderr().lock();
        let _ = writeln!(to, "baton: cannot lock the program's memory: {error}{advice}");
    }
    wait(&watch, &pidfd);
    frequency::repair(&watch.paths).map(drop)
}

type Begun = (Watch, rustix::fd::OwnedFd, Option<Seized>, Option<Bound>);

fn begin(text: &str) -> Result<Begun, Error> {
    let failed = |what| move |error: io::Error| Error::system(what, error);
    let watch: Watch =
        serde_json::from_str(text).map_err(|error| Error::Record("--apart".into(), error))?;
    // This cannot fail: a process that was just started leads no process group.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(failed("go to /"))?;
    let pidfd = watch.owner.pidfd().ok_or(Error::NoOwner(watch.owner.pid))?;
    let bound =
        watch.latency_us.map(|latency_us| Bound::new(&watch.paths, latency_us)).transpose()?;
    let seized = watch.lock_memory.then(|| Seized::new(watch.owner.pid)).transpose()?;
    Ok((watch, pidfd, seized, bound))
}

fn wait(watch: &Watch, pidfd: &rustix::fd::OwnedFd) {
    let input = io::stdin();
    let ended = PollFd::new(pidfd, PollFlags::IN);
    let released = PollFd::new(&input, PollFlags::IN);
    let mut fds = [ended, released];
    let n_fds = if watch.until == Until::Death { 1 } else { 2 };
    let done = retry_on_intr(|| poll(&mut fds[..n_fds], None));
    // Without a poll the guardian cannot wait, and the lock must not stay.
    debug_assert_ne!(done, Err(Errno::INVAL));
}

/// Finds the `baton` command: beside this program, or in PATH.
pub fn find() -> Result<PathBuf, Error> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("baton"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("baton"));
    beside
        .into_iter()
        .chain(on_path)
        .find(|program| program.is_file())
        .ok_or_else(|| Error::NoGuardian("there is no program `baton`".to_owned()))
}
