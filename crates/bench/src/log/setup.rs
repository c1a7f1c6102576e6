//! How each system is set up.

use crate::child::ChildProcess;
use crate::log::descriptors;
use crate::log::floor::Floor;
use crate::log::log_writer::{LogWriter, RecordFn, Writers};
use crate::log::messages::TAG;
use crate::log::paper::Area;
use crate::log::role::Role;
use crate::log::system::System::{self, *};
use baton_log::moment::Source;
use baton_log::{Buffer, Logger, Options, Priority, Writer};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Where a system's files are: in memory, as a log's are.
pub fn directory() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
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
        let directory = directory()?;
        let place = directory.path().join("place");
        let reader = match system {
            Datagram => Some(Role::Datagrams.start(&place)?),
            Pipe => Some(Role::Pipe.start(&place)?),
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
