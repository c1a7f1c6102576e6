//! Functions that the tests of the log share.
#![allow(dead_code, reason = "not every test needs all of it")]

use baton_log::{Buffer, Content, Item, Logger, Loss, Options, Priority, Reader};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub fn open(directory: &Path) -> Logger {
    Options::new().directory(directory).open()
}

pub fn say(logger: &Logger, message: &str) {
    logger.writer().write(Buffer::Main, Priority::Info, b"test", message.as_bytes());
}

/// The messages that are there now, and losses as messages.
pub fn messages(reader: &mut Reader) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(item) = reader.next_item() {
        found.push(match item {
            Item::Record(record) => match record.content {
                Content::Text { message, .. } => String::from_utf8_lossy(message).into_owned(),
                Content::Event { tag, .. } => format!("event {tag}"),
            },
            Item::Lost(lost) => match lost.loss {
                Loss::Overwritten { n_records, .. } => format!("{n_records} overwritten"),
                Loss::Unlogged { n_records } => format!("{n_records} unlogged"),
                Loss::Damaged { .. } => "damaged".to_owned(),
                Loss::Unread => "unread".to_owned(),
            },
        });
    }
    found
}

/// A log whose directory has these permissions. Dropping it removes everything of it.
pub struct Log(tempfile::TempDir);

impl Log {
    pub fn with_mode(mode: u32) -> Log {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        Log(directory)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let watch = std::fs::read_to_string(self.path().join("watch")).unwrap_or_default();
        if let Some(segment) = watch.split(' ').next().and_then(|segment| segment.parse().ok()) {
            // SAFETY: removes the segment of this log, which no other process uses.
            unsafe { libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()) };
        }
    }
}

/// Runs `work` in a child of fork, which ends by `_exit` without running code of the test harness.
pub fn in_a_child(work: impl FnOnce()) {
    // SAFETY: the child only calls functions that the log allows there, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
}

/// The names of the processes' files in a directory.
pub fn files(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.starts_with(|first: char| first.is_ascii_digit()));
    names.sort();
    names
}

/// Another process. It is killed when this is dropped.
pub struct Process(Child);

impl Process {
    /// Starts one test of this program with these environment variables.
    pub fn start(test: &str, variables: &[(&str, &str)]) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).envs(variables.iter().copied());
        Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    pub fn number(&self) -> u32 {
        self.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Waits for a line that has this word.
    pub fn wait_for(&mut self, word: &str) {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(word)), "ended without {word}");
    }

    /// Writes a line to its standard input.
    pub fn say(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Kills it by SIGKILL. Its children live on.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Lets it go on from [`wait_to_be_ended`], and waits for its end.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits, in such a process, until it is told to end. It takes no lock, which a child of fork could
/// find taken.
pub fn wait_to_be_ended() {
    // SAFETY: standard input is open as long as this program runs.
    let input = unsafe { rustix::fd::BorrowedFd::borrow_raw(0) };
    while rustix::io::read(input, &mut [0; 16]).is_ok_and(|n_bytes| n_bytes > 0) {}
}

/// Writes a line for [`Process::wait_for`], in such a process, without a lock.
pub fn tell(line: &[u8]) {
    // SAFETY: standard output is open as long as this program runs.
    let output = unsafe { rustix::fd::BorrowedFd::borrow_raw(1) };
    assert_eq!(rustix::io::write(output, line), Ok(line.len()));
}

/// The task of such a process; `None` in any other.
pub fn task(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}
