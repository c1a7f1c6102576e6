//! How each system is set up.

use crate::child::{self, ChildProcess};
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
use std::path::Path;
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
            Some(program) => {
                let program = child::beside(program, "`bench/peers/log/build` builds it")?;
                Writers::start(Command::new(program).arg(directory.path()))?
            }
            None => Writers::Threads(threads(system, &place, n_writers)?),
        };
        Ok(Setup { writers, _reader: reader, _directory: directory })
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
    let log_writer = |_| -> io::Result<Box<dyn LogWriter>> {
        Ok(match (system, &logger) {
            (Floor(source), _) => Box::new(Floor::new(source)),
            (Paper(gets), _) => Box::new(Area::map(place, gets)?),
            (Datagram, _) => Box::new(descriptors::datagrams(place)?),
            (Pipe, _) => Box::new(descriptors::file(place)?),
            (Null, _) => Box::new(descriptors::file(Path::new("/dev/null"))?),
            (_, Some(logger)) => Box::new(Ours::new(logger)),
            (_, None) => return Err(io::ErrorKind::Unsupported.into()),
        })
    };
    (0..n_writers).map(log_writer).collect()
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
