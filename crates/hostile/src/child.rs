//! Processes that a run starts: this program in another role, by lines to and fro.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long the end of a child may take that has been told to leave.
const FAREWELL: Duration = Duration::from_secs(5);

/// What is to be started.
pub struct Order {
    /// The role and its options.
    pub words: Vec<String>,
    /// Whose it is; `None` for this process's own user.
    pub user: Option<u32>,
    /// Where its standard error goes.
    pub log: PathBuf,
}

/// Why a child has not said what it was to say.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoAnswer {
    /// It has said nothing in time.
    #[error("hangs")]
    Hangs,
    /// It has ended.
    #[error("has ended: {0}")]
    Ended(String),
}

/// A process. Dropped, it is killed.
pub struct Child {
    child: std::process::Child,
    input: Option<std::process::ChildStdin>,
    lines: Receiver<String>,
    /// Lines that have been read and not asked for.
    heard: VecDeque<String>,
}

impl Child {
    /// Starts one. The errors are the system's.
    pub fn start(order: &Order) -> io::Result<Child> {
        // By this name a user may execute it to whom its directory is closed.
        let mut command = Command::new("/proc/self/exe");
        command.arg("role").args(["--starter", &std::process::id().to_string()]).args(&order.words);
        if let Some(user) = order.user {
            command.uid(user).gid(user);
        }
        let log = File::options().create(true).append(true).open(&order.log)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        let input = child.stdin.take();
        Ok(Child { child, input, lines, heard: VecDeque::new() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells a line. One that has ended does not hear it.
    pub fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// The next line whose first word this is, in this time; what follows the word.
    pub fn hear(&mut self, word: &str, patience: Duration) -> Result<String, NoAnswer> {
        let rest = |line: &String| -> Option<String> {
            let rest = line.strip_prefix(word)?;
            (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim_start().to_owned())
        };
        if let Some(at) = self.heard.iter().position(|line| rest(line).is_some()) {
            return Ok(self.heard.remove(at).as_ref().and_then(rest).expect("just found"));
        }
        let late = Instant::now() + patience;
        loop {
            let left = late.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match rest(&line) {
                    Some(rest) => return Ok(rest),
                    None => self.heard.push_back(line),
                },
                Err(RecvTimeoutError::Timeout) => return Err(NoAnswer::Hangs),
                Err(RecvTimeoutError::Disconnected) => return Err(NoAnswer::Ended(self.end())),
            }
        }
    }

    /// Whether it has said a line with this first word.
    pub fn has_said(&mut self, word: &str) -> Option<String> {
        self.hear(word, Duration::ZERO).ok()
    }

    /// Whether it has not ended.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end of this process. What it has started may still have its output.
    pub fn reap(&mut self) {
        let _ = self.child.wait();
    }

    /// How it has ended.
    fn end(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("by signal {signal}"),
                None => format!("with status {}", status.code().unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        }
    }

    /// Has it leave; a child that does not is killed. How it has ended.
    pub fn leave(&mut self) -> String {
        self.tell("leave");
        self.input = None;
        let late = Instant::now() + FAREWELL;
        // Its output ends with it.
        loop {
            let left = late.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.heard.push_back(line),
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    return self.end();
                }
                Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
        }
    }

    /// SIGKILL, and its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP or SIGCONT or whatever.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid().cast_signed()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
