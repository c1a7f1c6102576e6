//! Processes that a run starts: this program in another role, controlled by lines of text.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time in which a child has to end after it was told to leave.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The description of a process to start.
pub struct ChildOptions {
    /// The role and its options.
    pub words: Vec<String>,
    /// User of the process; `None` for this process's own.
    pub user: Option<u32>,
    /// File for the process's standard error.
    pub log: PathBuf,
}

/// The reason for which a child did not send an expected line.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The child sent no such line in time.
    #[error("hangs")]
    Hangs,
    /// The child has ended.
    #[error("has ended: {0}")]
    Ended(String),
}

/// A child process, killed when this value is dropped.
pub struct Child {
    child: std::process::Child,
    input: Option<std::process::ChildStdin>,
    lines: Receiver<String>,
    /// Lines that were read and not asked for yet.
    unread_lines: VecDeque<String>,
}

impl Child {
    /// Starts a child. Errors are the system's.
    pub fn start(options: &ChildOptions) -> io::Result<Child> {
        // This name lets users execute the program even if they cannot read its directory.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("role")
            .args(["--starter", &std::process::id().to_string()])
            .args(&options.words);
        if let Some(user) = options.user {
            command.uid(user).gid(user);
        }
        let log = File::options().create(true).append(true).open(&options.log)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        let input = child.stdin.take();
        Ok(Child { child, input, lines, unread_lines: VecDeque::new() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line. A child that has ended ignores it.
    pub fn send_line(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// Waits, at most for `patience`, for the next line with this first word. Returns the rest of
    /// the line.
    pub fn await_line(&mut self, word: &str, patience: Duration) -> Result<String, NoAnswer> {
        let rest = |line: &String| -> Option<String> {
            let rest = line.strip_prefix(word)?;
            (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim_start().to_owned())
        };
        if let Some(at) = self.unread_lines.iter().position(|line| rest(line).is_some()) {
            return Ok(self.unread_lines.remove(at).as_ref().and_then(rest).expect("just found"));
        }
        let late = Instant::now() + patience;
        loop {
            let left = late.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match rest(&line) {
                    Some(rest) => return Ok(rest),
                    None => self.unread_lines.push_back(line),
                },
                Err(RecvTimeoutError::Timeout) => return Err(NoAnswer::Hangs),
                Err(RecvTimeoutError::Disconnected) => return Err(NoAnswer::Ended(self.end())),
            }
        }
    }

    /// The rest of a line with this first word, if the child has sent one.
    pub fn has_said(&mut self, word: &str) -> Option<String> {
        self.await_line(word, Duration::ZERO).ok()
    }

    /// Whether the child has not ended.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the child has ended. Processes that it started may still have its output.
    pub fn reap(&mut self) {
        let _ = self.child.wait();
    }

    /// Describes how the child ended.
    fn end(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("by signal {signal}"),
                None => format!("with status {}", status.code().unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        }
    }

    /// Tells the child to leave, and kills it if it does not. Describes how it ended.
    pub fn leave(&mut self) -> String {
        self.send_line("leave");
        self.input = None;
        let late = Instant::now() + LEAVE_TIMEOUT;
        // The child's output is closed when it ends.
        loop {
            let left = late.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.unread_lines.push_back(line),
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    return self.end();
                }
                Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
        }
    }

    /// Kills the child by SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends the child a signal.
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
