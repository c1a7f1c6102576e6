//! What is measured: ours, and what it is compared with; and how each system is set up.

use crate::child::{self, ChildProcess};
use crate::log::log_writer::{LogWriter, RecordFn, Writers};
use crate::log::messages::TAG;
use crate::log::paper::Area;
use crate::log::processes::Role;
use crate::service::now_ns;
use System::*;
use baton_log::moment::Source;
use baton_log::{Buffer, Logger, Options, Priority, Settings, Writer};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Most turns of a system in a round.
pub const MOST_TURNS: usize = 8;

/// How the paper's scheme gets the time, of which it makes no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gets {
    /// By the C library, which asks the kernel's page.
    FromThePage,
    FromTheKernel,
}

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

/// All of them, in the order in which they are measured: those that are compared follow each other.
/// Beside each its name, and how many times slower it is than ours, in round figures: its rounds
/// have as many times fewer records.
pub const SYSTEMS: [(System, &str, usize); 14] = [
    (Baton(Source::Counter), "baton-counter", 1),
    (Floor(Source::Counter), "floor-counter", 1),
    (Baton(Source::Vdso), "baton-vdso", 1),
    (Floor(Source::Vdso), "floor-vdso", 1),
    (Paper(Gets::FromThePage), "paper-vdso", 4),
    (Baton(Source::SystemCall), "baton-system-call", 4),
    (Floor(Source::SystemCall), "floor-system-call", 4),
    (Paper(Gets::FromTheKernel), "paper-system-call", 4),
    (Null, "null-writev", 4),
    (Pipe, "pipe-writev", 10),
    (Datagram, "datagram", 20),
    (Lttng, "lttng-ust", 10),
    (Spdlog, "spdlog-async", 10),
    (TracingAppender, "tracing-appender", 10),
];

impl System {
    fn row(self) -> (System, &'static str, usize) {
        SYSTEMS.into_iter().find(|row| row.0 == self).expect("each system has a row")
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn slowness(self) -> usize {
        self.row().2
    }

    /// The program that has it; `None` for what is here, and stays when no peers are wanted.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Lttng => Some("baton-bench-log-lttng"),
            Spdlog => Some("baton-bench-log-spdlog"),
            TracingAppender => Some("baton-bench-log-tracing"),
            _ => None,
        }
    }

    /// In how many turns it writes a round's records. Those that are compared by tens of
    /// nanoseconds alternate: what else the machine does in a round then meets all of them.
    pub fn n_turns(self) -> usize {
        if matches!(self, Baton(_) | Floor(_) | Paper(_)) { MOST_TURNS } else { 1 }
    }
}

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
            (Floor(source), _) => Box::new(FloorRing::new(source)),
            (Paper(gets), _) => Box::new(Area::map(place, gets)?),
            (Datagram, _) => Box::new(datagrams(place)?),
            (Pipe, _) => Box::new(file(place)?),
            (Null, _) => Box::new(file(Path::new("/dev/null"))?),
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

/// As liblog tells it to logd: buffer, thread, and time.
const HEADER_BYTES: usize = 11;
const INFO: u8 = 4;

pub fn read_datagrams(place: &Path, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let socket = UnixDatagram::bind(place)?;
    ready()?;
    let mut record = [0; 5000];
    loop {
        std::hint::black_box(socket.recv(&mut record)?);
    }
}

/// The other end of a pipe.
pub fn read_pipe(place: &Path, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )?;
    // Of a reader alone, opening would wait; and it is to outlast its writers.
    let mut pipe = File::options().read(true).write(true).open(place)?;
    ready()?;
    let mut bytes = vec![0; 64 * 1024];
    loop {
        std::hint::black_box(pipe.read(&mut bytes)?);
    }
}

/// Writes records as datagrams. It waits where the reader is behind, and so loses none.
pub fn datagrams(place: &Path) -> io::Result<impl FnMut(&'static [u8]) + Send + use<>> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(place)?;
    let socket = File::from(std::os::fd::OwnedFd::from(socket));
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u16;
    Ok(move |text: &'static [u8]| {
        let now_ns = now_ns();
        let mut header = [0; HEADER_BYTES];
        header[1..3].copy_from_slice(&thread.to_le_bytes());
        header[3..7].copy_from_slice(&((now_ns / 1_000_000_000) as u32).to_le_bytes());
        header[7..].copy_from_slice(&((now_ns % 1_000_000_000) as u32).to_le_bytes());
        put(&socket, &[&header, &[INFO], TAG.to_bytes_with_nul(), text, b"\0"]);
    })
}

/// Writes records to a file, as the paper's program did to the kernel's log.
pub fn file(path: &Path) -> io::Result<impl FnMut(&'static [u8]) + Send + use<>> {
    let file = File::from(rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?);
    Ok(move |text: &'static [u8]| put(&file, &[&[INFO], TAG.to_bytes_with_nul(), text]))
}

fn put<const N: usize>(mut file: &File, parts: &[&[u8]; N]) {
    let written = file.write_vectored(&parts.map(IoSlice::new)).expect("its reader is there");
    assert_eq!(written, parts.iter().map(|part| part.len()).sum::<usize>());
}

/// The ring: as large as a log's, and with nothing that would tell where a record begins.
pub struct FloorRing {
    bytes: Vec<u8>,
    end: usize,
    source: Source,
}

impl FloorRing {
    /// An empty one, whose memory is there.
    pub fn new(source: Source) -> FloorRing {
        let n_bytes = Settings::default().ring_bytes[0];
        FloorRing { bytes: vec![1; n_bytes], end: 0, source }
    }
}

impl RecordFn for FloorRing {
    /// A stamp and a text.
    #[inline(always)]
    fn write(&mut self, text: &'static [u8]) {
        let stamp = self.source.stamp().to_ne_bytes();
        let length = stamp.len() + text.len();
        if self.end + length > self.bytes.len() {
            self.end = 0;
        }
        let room = &mut self.bytes[self.end..self.end + length];
        let (first, second) = room.split_at_mut(stamp.len());
        first.copy_from_slice(&stamp);
        second.copy_from_slice(text);
        self.end += length;
    }
}
