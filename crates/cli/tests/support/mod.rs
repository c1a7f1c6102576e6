//! Shared parts of the tests of `baton logcat`.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub const BATON: &str = env!("CARGO_BIN_EXE_baton");

/// A log of its own.
pub struct Log {
    pub directory: tempfile::TempDir,
}

impl Log {
    pub fn new() -> Log {
        Log { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BATON);
        command.args(words).env("BATON_LOG_DIR", self.path("log")).env("TZ", "UTC0");
        for name in ["ANDROID_LOG_TAGS", "ANDROID_PRINTF_LOG"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, line: &str) -> Output {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.command(&words).stdin(Stdio::null()).output().unwrap()
    }

    /// Standard output of a command that succeeds without messages on standard error.
    pub fn print(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Logs lines of one process.
    pub fn write(&self, lines: &[String]) {
        let mut writer = self.command(&["log", "-t", "T"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = writer.stdin.take().unwrap();
        lines.iter().for_each(|line| writeln!(input, "{line}").unwrap());
        drop(input);
        assert!(writer.wait().unwrap().success());
    }
}
