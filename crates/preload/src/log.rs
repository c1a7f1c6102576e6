//! The driver's log, which is the kernel's for a program on the kernel's driver.
//!
//! `BATON_LOG=LEVEL[,FILE]`: `off`; `warn`, which is the default: what only a broken rule or the
//! broker's end causes; `debug`: also what happens in the ordinary course, as transactions that
//! fail. Lines go to standard error, or to the end of FILE; and to Baton's log,
//! for `baton logcat -b system binder`.
//!
//! A line is written wherever the driver has one to say: in the SIGSYS handler, which stands in the
//! place of a system call, or on the control thread, and always under the engine's lock. So it is
//! one write of the system's own, with no lock around it; it never waits for a reader and never
//! ends the program by SIGPIPE; and how many there are is bounded. A file is opened for each line,
//! since a program may close or reuse any descriptor but its own three.

use baton_log::{Buffer, Priority};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fmt::{Debug, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Names the level and the file.
const VARIABLE: &str = "BATON_LOG";
/// Longer ones are cut: a pipe that has any room has room for as much.
const MAX_LINE_BYTES: usize = 1024;

/// What the kernel's driver puts before its lines.
const PREFIX: &str = "binder: ";
const TAG: &[u8] = b"binder";

#[derive(Debug, PartialEq, Eq)]
struct Setting {
    most: LevelFilter,
    file: Option<PathBuf>,
}

impl Setting {
    /// `None` for a value that means nothing.
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

/// Begins the log. To be called once, before there are threads.
pub fn begin() {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    let setting = Setting::parse(&value);
    if setting.is_none() {
        let value = value.to_string_lossy();
        say(&format!(
            "baton: {VARIABLE}={value}: not off, warn or debug, then a comma and a file\n"
        ));
    }
    let setting = setting.unwrap_or(Setting { most: LevelFilter::WARN, file: None });
    if setting.most != LevelFilter::OFF {
        // It fails only if there is one already, and nobody but us is in this library.
        let _ = tracing::subscriber::set_global_default(Log { setting, pace: Pace::default() });
    }
}

/// One line to standard error, if that takes it now.
pub fn say(line: &str) {
    // SAFETY: only polled and written to; a program that has closed it gets an error here.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    write_now(stderr, line);
}

fn write_now(to: impl AsFd, line: &str) {
    let mut fds = [PollFd::new(&to, PollFlags::OUT)];
    // What is full is not writable; a pipe without reader is an error as well.
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
    pace: Pace,
}

impl Log {
    /// A line goes to the log, where there is one, as well.
    fn tell(&self, priority: Priority, line: String) {
        baton_log::write(Buffer::System, priority, TAG, line.as_bytes());
        self.write(&format!("{PREFIX}{line}\n"));
    }

    fn write(&self, line: &str) {
        let Some(path) = &self.setting.file else { return say(line) };
        let flags =
            OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if let Ok(file) = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)) {
            write_now(file, line);
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
        let Some(unsaid) = self.pace.admit(now.tv_sec as u32) else { return };
        if unsaid > 0 {
            self.tell(Priority::Warn, format!("{unsaid} lines more"));
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        let Line(mut line) = line;
        line.truncate(line.floor_char_boundary(MAX_LINE_BYTES - PREFIX.len()));
        self.tell(priority(*event.metadata().level()), line);
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An event's message.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

/// Lines a second. Without a lock: a signal's handler may call the driver while its thread is in
/// the midst of a line.
#[derive(Debug, Default)]
struct Pace {
    /// The second in the upper half, the lines that wanted to be said in it in the lower.
    second: AtomicU64,
}

impl Pace {
    const LINES: u64 = 20;

    /// Whether one more may be said, and how many of an earlier second were not.
    fn admit(&self, second: u32) -> Option<u64> {
        let second = u64::from(second) << 32;
        let next =
            |before: u64| Some(if before >> 32 << 32 == second { before + 1 } else { second + 1 });
        // Relaxed: a count, which nothing else rests on.
        let before = self.second.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let before = before.unwrap_or_else(|same| same);
        let lines = before & u64::from(u32::MAX);
        match before >> 32 << 32 == second {
            true => (lines < Self::LINES).then_some(0),
            false => Some(lines.saturating_sub(Self::LINES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
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
        let pace = Pace::default();
        let said = (0..Pace::LINES + 5).filter(|_| pace.admit(7).is_some()).count();
        assert_eq!(said as u64, Pace::LINES);
        assert_eq!((pace.admit(8), pace.admit(8), pace.admit(9)), (Some(5), Some(0), Some(0)));
    }
}
