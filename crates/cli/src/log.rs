//! `baton log`: writes to the log from the command line, as Android's `log` does.

mod syslog;

use crate::failure::{Failure, Kind};
use baton_log::{Buffer, Options, Priority, Writer};
use clap::Args;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Options of `baton log`.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// V, D, I, W, E or F
    #[arg(short, long, default_value = "I", value_parser = priority)]
    priority: Priority,
    /// The entries' tag
    #[arg(short, long, default_value = "log")]
    tag: OsString,
    /// main, system, radio or crash
    #[arg(short, long, default_value = "main", value_parser = buffer)]
    buffer: Buffer,
    /// The log's directory [default: $BATON_LOG_DIR, else the system's or the user's one]
    #[arg(long, value_name = "DIR")]
    log_directory: Option<PathBuf>,
    /// Log what programs say to this socket of syslog [default: /dev/log]
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, default_missing_value = "/dev/log",
          conflicts_with_all = ["priority", "tag", "buffer", "words"])]
    syslog: Option<PathBuf>,
    /// The text; without it, each line of standard input
    #[arg(value_name = "TEXT")]
    words: Vec<OsString>,
}

fn priority(letter: &str) -> Result<Priority, String> {
    let mut letters = letter.chars();
    let found = letters.next().and_then(Priority::lettered).filter(|_| letters.next().is_none());
    found.ok_or_else(|| "one of V, D, I, W, E and F".to_owned())
}

fn buffer(name: &str) -> Result<Buffer, String> {
    let found = Buffer::named(name).filter(|buffer| *buffer != Buffer::Events);
    found.ok_or_else(|| "one of main, system, radio and crash".to_owned())
}

/// Logs the given text, or standard input.
pub fn log(args: &LogArgs) -> Result<(), Failure> {
    let directory = args.log_directory.clone().unwrap_or_else(baton_log::directory);
    let logger = Options::new().directory(&directory).open();
    let writer = logger.writer();
    if !writer.prepare(args.buffer) {
        return Err(without_ring(&directory));
    }
    if let Some(path) = &args.syslog {
        return syslog::run(path, &logger, || {
            let _ = sd_notify::notify(true, &[sd_notify::NotifyState::Ready]);
        });
    }
    if !args.words.is_empty() {
        put(&writer, args, args.words.join(OsStr::new(" ")).as_bytes());
        return Ok(());
    }
    let tried = "read standard input";
    let mut input = BufReader::new(std::io::stdin());
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::new(tried, error).kind(Kind::Failed))? == 0 {
            return Ok(());
        }
        put(&writer, args, line.strip_suffix(b"\n").unwrap_or(&line));
    }
}

/// Why a log gives this process no ring.
fn without_ring(directory: &Path) -> Failure {
    let may_write = || {
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(CWD, directory, rights, AtFlags::EACCESS)
    };
    let (wrong, advice) = match baton_log::make_directory(directory).and_then(|()| may_write()) {
        Err(Errno::PERM) => (
            "other users could replace files there".to_owned(),
            "the directory must be yours or root's, and sticky if several users write there",
        ),
        Err(errno) => (
            errno.to_string(),
            "give a directory that you may write to with --log-directory or BATON_LOG_DIR",
        ),
        Ok(()) => (
            "there is no room for a ring".to_owned(),
            "make room there, raise the limit of file sizes (`ulimit -f`), or let rings be \
             smaller: `baton logcat -b all -G 64K`",
        ),
    };
    Failure::new("log", format!("{}: {wrong}", directory.display())).advice(advice)
}

fn put(writer: &Writer, args: &LogArgs, message: &[u8]) {
    writer.write(args.buffer, args.priority, args.tag.as_bytes(), message);
}
