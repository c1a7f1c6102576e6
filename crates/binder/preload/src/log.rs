//! The driver's log, which corresponds to the kernel's log for programs on the kernel's driver.
//!
//! `BATON_LOG=LEVEL[,FILE]`. Level `off` logs nothing. Level `warn`, the default, logs broken rules
//! and the broker's end. Level `debug` also logs ordinary events, such as transactions that fail.
//! Lines go to standard error or the end of FILE, and to Baton's log for `baton logcat -b system
//! binder`.
//!
//! The driver logs in the SIGSYS handler, in place of a system call, or on the control thread, and
//! always under the engine's lock. So a line is one write without a further lock. The write never
//! waits for a reader and never ends the program by SIGPIPE, and the number of lines is limited.
//! The file is opened for each line, since a program may close or reuse any descriptor but its
//! standard three.

use baton_log::{Buffer, Priority};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fmt::{Debug, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Environment variable with the level and the file.
const VARIABLE: &str = "BATON_LOG";
/// Longest line; longer ones are cut. A pipe with any room has room for this many bytes.
const MAX_LINE_BYTES: usize = 1024;

/// Prefix of the kernel driver's lines.
const PREFIX: &str = "binder: ";
const TAG: &[u8] = b"binder";

#[derive(Debug, PartialEq, Eq)]
struct Setting {
    most: LevelFilter,
    file: Option<PathBuf>,
}

impl Setting {
    /// `None` for an invalid value.
    fn parse(value: &OsStr) -> Option<Setting> {
        let mut parts = value.as_bytes().splitn(2, |&byte| byte == b',');
        let most = match parts.next()? {
            b"off" => LevelFilter::OFF,
            b"" | b"warn" => LevelFilter::WARN,
            b"debug" => LevelFilter::DEBUG,
            _ => return None,
        };
        let file = parts.next().filter(|path| !path.is_empty());
        Some(Setting { most, file: file.map(|path| PathBuf::from(OsStr::from_bytes(path))) })
    }
}

/// Initializes the log. Called once, before there are threads.
pub fn init() {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    let setting = Setting::parse(&value);
    if setting.is_none() {
        let value = value.to_string_lossy();
        write_stderr(&format!(
            "baton: {VARIABLE}={value}: not off, warn or debug, then a comma and a file\n"
        ));
    }
    let setting = setting.unwrap_or(Setting { most: LevelFilter::WARN, file: None });
    if setting.most != LevelFilter::OFF {
        // This fails only if another subscriber exists, and no other code in this library sets one.
        let _ = tracing::subscriber::set_global_default(Log {
            setting,
            file_failed: AtomicBool::new(false),
            rate_limit: RateLimit::default(),
        });
    }
}

/// Writes a line to standard error, if that can take it now.
pub fn write_stderr(line: &str) {
    // SAFETY: the descriptor is only polled and written to. A program that has closed it gets an
    // error here.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    write_now(stderr, line);
}

fn write_now(to: impl AsFd, line: &str) {
    let mut fds = [PollFd::new(&to, PollFlags::OUT)];
    // A full pipe is not writable; a pipe without a reader reports an error as well.
    let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    if polled == Ok(1) && fds[0].revents() == PollFlags::OUT {
        let _ = rustix::io::write(to, line.as_bytes());
    }
}

fn priority(level: Level) -> Priority {
    match level {
        Level::ERROR => Priority::Error,
        Level::WARN => Priority::Warn,
        Level::INFO => Priority::Info,
        _ => Priority::Debug,
    }
}

struct Log {
    setting: Setting,
    /// Whether the file could not be opened, and this was told.
    file_failed: AtomicBool,
    rate_limit: RateLimit,
}

impl Log {
    /// Writes a line to standard error or the file, and to Baton's log if there is one.
    fn write_all(&self, priority: Priority, line: String) {
        baton_log::write(Buffer::System, priority, TAG, line.as_bytes());
        self.write(&format!("{PREFIX}{line}\n"));
    }

    fn write(&self, line: &str) {
        let Some(path) = &self.setting.file else { return write_stderr(line) };
        let flags =
            OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)) {
            Ok(file) => write_now(file, line),
            Err(errno) => {
                if !self.file_failed.swap(true, Ordering::Relaxed) {
                    let path = path.display();
                    write_stderr(&format!("baton: {VARIABLE}: {path}: {errno}: lines come here\n"));
                }
                write_stderr(line);
            }
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.setting.most
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.setting.most)
    }

    fn event(&self, event: &Event<'_>) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        let Some(n_dropped) = self.rate_limit.admit(now.tv_sec as u32) else { return };
        if n_dropped > 0 {
            self.write_all(Priority::Warn, format!("{n_dropped} lines more"));
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        let Line(mut line) = line;
        line.truncate(line.floor_char_boundary(MAX_LINE_BYTES - PREFIX.len()));
        self.write_all(priority(*event.metadata().level()), line);
    }

    // The driver uses no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message of an event.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

/// Limits the lines per second. Uses no lock: a signal handler may call the driver while its thread
/// writes a line.
#[derive(Debug, Default)]
struct RateLimit {
    /// The second in the upper half, and the number of lines that arrived in it in the lower half.
    last_second: AtomicU64,
}

impl RateLimit {
    const LINES: u64 = 20;

    /// Admits one more line, or returns `None`. The value counts the lines of an earlier second
    /// that were dropped.
    fn admit(&self, last_second: u32) -> Option<u64> {
        let last_second = u64::from(last_second) << 32;
        let next = |before: u64| {
            Some(if before >> 32 << 32 == last_second { before + 1 } else { last_second + 1 })
        };
        // Relaxed: a count on which no other memory depends.
        let before = self.last_second.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let before = before.unwrap_or_else(|same| same);
        let lines = before & u64::from(u32::MAX);
        match before >> 32 << 32 == last_second {
            true => (lines < Self::LINES).then_some(0),
            false => Some(lines.saturating_sub(Self::LINES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed() {
        let setting = |most, file: Option<&str>| Some(Setting { most, file: file.map(Into::into) });
        for (value, expected) in [
            ("", setting(LevelFilter::WARN, None)),
            ("off", setting(LevelFilter::OFF, None)),
            ("warn", setting(LevelFilter::WARN, None)),
            ("debug,/tmp/a,b", setting(LevelFilter::DEBUG, Some("/tmp/a,b"))),
            (",here", setting(LevelFilter::WARN, Some("here"))),
            ("warn,", setting(LevelFilter::WARN, None)),
            ("all", None),
        ] {
            assert_eq!(Setting::parse(OsStr::new(value)), expected, "{value}");
        }
    }

    #[test]
    fn a_flood_is_counted_and_ends_with_its_second() {
        let rate_limit = RateLimit::default();
        let admitted = (0..RateLimit::LINES + 5).filter(|_| rate_limit.admit(7).is_some()).count();
        assert_eq!(admitted as u64, RateLimit::LINES);
        assert_eq!(
            (rate_limit.admit(8), rate_limit.admit(8), rate_limit.admit(9)),
            (Some(5), Some(0), Some(0))
        );
    }
}
