//! What is measured: ours, what it is compared with, and how each is set up.

use crate::child::ChildProcess;
use crate::log::descriptors;
use crate::log::floor::Floor;
use crate::log::log_writer::{LogWriter, RecordFn, Writers};
use crate::log::messages::TAG;
use crate::log::paper::{Area, Gets};
use crate::log::role::Role;
use baton_log::moment::Source;
use baton_log::{Buffer, Logger, Options, Priority, Writer};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Most turns of a system in a round.
pub const MOST_TURNS: usize = 8;

/// A way to write a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Ours, with stamps of this source.
    Baton(Source),
    /// What no log can go below.
    Floor(Source),
    Paper(Gets),
    Datagram,
    Pipe,
    Null,
    /// LTTng-UST, whose buffers overwrite the oldest.
    Lttng,
    /// spdlog, whose queue overwrites the oldest.
    Spdlog,
    /// tracing-appender, which drops what its queue has no room for.
    TracingAppender,
}

use System::*;

impl System {
    /// All of them, in the order in which they are measured: those that are compared follow each
    /// other.
    pub const ALL: [System; 14] = [
        Baton(Source::Counter),
        Floor(Source::Counter),
        Baton(Source::Vdso),
        Floor(Source::Vdso),
        Paper(Gets::FromThePage),
        Baton(Source::SystemCall),
        Floor(Source::SystemCall),
        Paper(Gets::FromTheKernel),
        Null,
        Pipe,
        Datagram,
        Lttng,
        Spdlog,
        TracingAppender,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Baton(Source::Counter) => "baton-counter",
            Baton(Source::Vdso) => "baton-vdso",
            Baton(Source::SystemCall) => "baton-system-call",
            Floor(Source::Counter) => "floor-counter",
            Floor(Source::Vdso) => "floor-vdso",
            Floor(Source::SystemCall) => "floor-system-call",
            Paper(Gets::FromThePage) => "paper-vdso",
            Paper(Gets::FromTheKernel) => "paper-system-call",
            Datagram => "datagram",
            Pipe => "pipe-writev",
            Null => "null-writev",
            Lttng => "lttng-ust",
            Spdlog => "spdlog-async",
            TracingAppender => "tracing-appender",
        }
    }

    /// The program that has it, and what that needs; `None` for what is here.
    fn program(self) -> Option<(&'static str, &'static str)> {
        const ADVICE: &str = "`bench/peers/log/build` builds it";
        match self {
            Lttng => Some(("baton-bench-log-lttng", ADVICE)),
            Spdlog => Some(("baton-bench-log-spdlog", ADVICE)),
            TracingAppender => Some(("baton-bench-log-tracing", ADVICE)),
            _ => None,
        }
    }

    /// Whether it is left out when no peers are wanted.
    pub fn is_peer(self) -> bool {
        self.program().is_some()
    }

    /// How many times slower it is than ours, in round figures: its rounds have as many times fewer
    /// records.
    pub fn slowness(self) -> usize {
        match self {
            Baton(Source::SystemCall) | Floor(Source::SystemCall) | Paper(_) | Null => 4,
            Lttng | Spdlog | TracingAppender | Pipe => 10,
            Datagram => 20,
            Baton(_) | Floor(_) => 1,
        }
    }

    /// In how many turns it writes a round's records. Those that are compared by tens of
    /// nanoseconds alternate: what else the machine does in a round then meets all of them.
    pub fn n_turns(self) -> usize {
        match self {
            Baton(_) | Floor(_) | Paper(_) => MOST_TURNS,
            Null | Pipe | Datagram | Lttng | Spdlog | TracingAppender => 1,
        }
    }
}

/// A system that is set up.
pub struct Setup {
    pub writers: Writers,
    _reader: Option<ChildProcess>,
    _directory: TempDir,
}

impl Setup {
    /// Sets it up for so many writers. The reason if that cannot be done.
    pub fn new(system: System, n_writers: usize) -> io::Result<Setup> {
        let directory = super::directory()?;
        let place = directory.path().join("place");
        let reader = match system {
            Datagram => Some(Role::Datagrams.start(&place, 1)?),
            Pipe => Some(Role::Pipe.start(&place, 1)?),
            _ => None,
        };
        let writers = match system.program() {
            Some(program) => Writers::start(Command::new(beside(program)?).arg(directory.path()))?,
            None => Writers::Threads(threads(system, &place, n_writers)?),
        };
        Ok(Setup { writers, _reader: reader, _directory: directory })
    }
}

fn beside((name, advice): (&str, &str)) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    match path.exists() {
        true => Ok(path),
        false => Err(io::Error::other(format!("{name} is not built: {advice}"))),
    }
}

fn threads(system: System, place: &Path, n_writers: usize) -> io::Result<Vec<Box<dyn LogWriter>>> {
    let logger = match system {
        Baton(Source::Counter) if Source::best() != Source::Counter => {
            return Err(io::Error::other(
                "the kernel's time is not made of the processor's counter",
            ));
        }
        Baton(source) => Some(Options::new().directory(place).source(source).open()),
        Paper(_) => {
            Area::make(place)?;
            None
        }
        _ => None,
    };
    let log_writer = |_| log_writer(system, place, logger.as_ref());
    (0..n_writers).map(log_writer).collect()
}

fn log_writer(
    system: System,
    place: &Path,
    logger: Option<&Logger>,
) -> io::Result<Box<dyn LogWriter>> {
    Ok(match system {
        Floor(source) => Box::new(Floor::new(source)),
        Paper(gets) => Box::new(Area::map(place, gets)?),
        Datagram => Box::new(descriptors::datagrams(place)?),
        Pipe => Box::new(descriptors::file(place)?),
        Null => Box::new(descriptors::file(Path::new("/dev/null"))?),
        Baton(_) | Lttng | Spdlog | TracingAppender => {
            let logger = logger.ok_or(io::ErrorKind::Unsupported)?;
            Box::new(Ours::new(logger))
        }
    })
}

/// One writer of ours, which has its ring.
pub struct Ours(Writer);

impl Ours {
    pub fn new(logger: &Logger) -> Ours {
        let writer = logger.writer();
        writer.prepare(Buffer::Main);
        Ours(writer)
    }
}

impl RecordFn for Ours {
    #[inline(always)]
    fn write(&mut self, text: &'static [u8]) {
        self.0.write(Buffer::Main, Priority::Info, TAG.to_bytes(), text);
    }
}
