//! Starts a broker in the background, for `baton run` and for `baton broker --background`.
//!
//! ```text
//!   baton run --> baton broker --background --> baton broker --serving
//!                   waits for a line of the      setsid, writes "ready", then closes its
//!                   other's output, ends         standard streams
//! ```
//!
//! The process in the middle ends at once, so that the broker is not a child of the program that
//! `baton run` becomes: a program may wait for all of its children.

use crate::failure::{Failure, Kind};
use crate::observer::{self, Observer};
use rustix::process::Signal;
use signal_hook::consts::SIGTERM;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time for another broker to start or end at the same socket.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the broker, and starts one if there is none.
pub fn connect_or_start(socket: &Path, tried: &str) -> Result<Observer, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match observer::connect(socket, tried) {
            Err(failure) if failure.is(Kind::NoBroker) => {}
            done => return done,
        }
        let started = start_until_idle(socket);
        match (observer::connect(socket, tried), started) {
            (Err(failure), started) if failure.is(Kind::NoBroker) => {
                // Another `baton run` may be starting a broker, or an old broker may be ending. The
                // new one may have ended, too, when its other clients had left.
                let may_come = started.as_ref().map_or_else(|it| it.is(Kind::Held), |()| true);
                if !may_come || Instant::now() > deadline {
                    return Err(started.err().unwrap_or(failure).kind(Kind::NoBroker));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            (done, _) => return done,
        }
    }
}

fn start_until_idle(socket: &Path) -> Result<(), Failure> {
    let tried = "start a broker";
    let words = ["broker", "--background", "--until-idle", "--socket"].map(OsString::from);
    let output = output(tried, &[&words, &[socket.into()][..]].concat())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = reason(&said);
    let is_held = Kind::of(output.status) == Kind::Held;
    Err(Failure::new(tried, why).kind(if is_held { Kind::Held } else { Kind::NoBroker }))
}

fn output(tried: &str, arguments: &[OsString]) -> Result<Output, Failure> {
    itself(tried)?
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(tried, error))
}

/// Runs `baton` with these arguments, which start a server in the background.
pub fn run_itself(tried: &str, arguments: &[OsString]) -> Result<(), Failure> {
    let output = output(tried, arguments)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(tried, reason(&said)).kind(Kind::NotExecutable))
}

/// The reason in a message of `baton`, which begins with what that has tried.
fn reason(said: &str) -> &str {
    let said = said.trim();
    let told = said.strip_prefix("baton: cannot ").and_then(|told| told.split_once(": "));
    told.map_or(said, |(_, reason)| reason)
}

/// Starts `baton` with these arguments as a server. Returns once it serves.
pub fn start(arguments: &[OsString]) -> Result<(), Failure> {
    let tried = "start a server in the background";
    let mut child = itself(tried)?
        .args(arguments)
        .arg("--serving")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::new(tried, error))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim_end() == READY {
        return Ok(());
    }
    let status = child.wait().map_err(|error| Failure::new(tried, error))?;
    Err(match status.code() {
        // The server has reported the reason on the standard error that both share.
        Some(_) => Failure::silent().kind(Kind::of(status)),
        None => Failure::new(tried, format!("it ended early: {status}")),
    })
}

const READY: &str = "ready";

/// Makes this process, which [`start`] has started, one of its own. Until it is [`ready`] it ends
/// with its starter: nobody would know of it.
pub fn begin() {
    // This cannot fail: a process that was just started leads no process group.
    let _ = rustix::process::setsid();
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Reports that the server serves, and closes the terminal. Called by the server. If the process
/// that waits for the report has ended, nobody may know of the server, and it ends, too.
pub fn ready() {
    let _ = rustix::process::set_parent_process_death_signal(None);
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{READY}").and_then(|()| out.flush()).is_err() {
        // Servers end in order at this signal.
        let _ = signal_hook::low_level::raise(SIGTERM);
    }
    drop(out);
    leave_terminal();
}

/// Closes this process's standard streams, for which somebody may wait.
pub fn leave_terminal() {
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

fn itself(tried: &str) -> Result<Command, Failure> {
    let path = std::env::current_exe().map_err(|error| Failure::new(tried, error))?;
    let mut command = Command::new(path);
    // A server under the interposer would send requests to itself.
    command.env_remove("LD_PRELOAD");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_stands_behind_what_was_tried() {
        for (said, expected) in [
            (
                "baton: cannot run the broker: open /a: denied\n  try b\n",
                "open /a: denied\n  try b",
            ),
            (" WARN words\nbaton: cannot run: x\n", "WARN words\nbaton: cannot run: x"),
            ("killed", "killed"),
        ] {
            assert_eq!(reason(said), expected);
        }
    }
}
