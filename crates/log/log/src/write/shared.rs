//! The state that the writers of one process share: the file of the process, and the rings that its
//! threads have left.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::directory::Directory;
use crate::files::file::File;
use crate::files::reclaim::reclaim;
use crate::files::settings::Settings;
use crate::files::watch::{Role, Watch};
use crate::moment::Source;
use crate::ring::Ring;
use crate::wakeup::{RequestedUntil, WakeRequests};
use baton_shm::clock;
use baton_shm::held::Held;
use baton_shm::wiped::PerProcess;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// After a failure to make something, the time until the next attempt.
const RETRY_NS: u64 = 1_000_000_000;

/// The state that all writers of a logger share.
pub(crate) struct Shared {
    pub directory: PathBuf,
    pub source: Source,
    ring_bytes: Option<[usize; N_BUFFERS]>,
    process: PerProcess<Process>,
}

/// The state of one process, which its children do not get.
#[derive(Default)]
struct Process {
    process_file: OnceLock<Arc<ProcessFile>>,
    /// Held while a file or a ring is made, which only a thread's first record needs.
    making: Mutex<()>,
    /// The time before which nothing is made again after a failure.
    retry_at_ns: AtomicU64,
    /// Rings of threads that have ended, by buffer.
    free: Mutex<[Vec<Ring>; N_BUFFERS]>,
    /// Records that found no ring, by buffer.
    unlogged: [AtomicU64; N_BUFFERS],
}

/// The file of the process, with its rings.
pub(crate) struct ProcessFile {
    ring_bytes: [usize; N_BUFFERS],
    pub watch: Watch,
    pub file: File,
}

/// A ring and the words that its writer reads. The fields that each record needs come first.
#[repr(C)]
pub(crate) struct WriterRing {
    pub ring: Ring,
    /// The time until which each record wakes followers.
    pub asleep: Held<ProcessFile, AtomicU64>,
    /// The time until which each part of the ring wakes followers.
    pub following: Held<ProcessFile, AtomicU64>,
    pub process_file: Arc<ProcessFile>,
}

impl std::fmt::Debug for WriterRing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("WriterRing")
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Shared {
    pub fn new(
        directory: PathBuf,
        source: Source,
        ring_bytes: Option<[usize; N_BUFFERS]>,
    ) -> Shared {
        Shared {
            directory,
            source,
            ring_bytes,
            process: PerProcess::new().expect("a page of memory"),
        }
    }

    fn process(&self) -> &Process {
        self.process.get_or_make(Process::default)
    }

    /// The number of records of this process in a buffer that found no ring.
    pub fn unlogged(&self, buffer: Buffer) -> u64 {
        self.process().unlogged[buffer as usize].load(Ordering::Relaxed)
    }

    /// Counts a record that found no ring.
    #[cold]
    pub fn count_unlogged(&self, buffer: Buffer) {
        let process = self.process();
        let n_records = process.unlogged[buffer as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(process_file) = process.process_file.get() {
            process_file.file.tell_unlogged(buffer, n_records);
        }
    }

    /// Takes a free ring, or makes one. `None`: none can be made now.
    pub fn take_ring(&self, buffer: Buffer) -> Option<WriterRing> {
        let process = self.process();
        if clock::now_ns() < process.retry_at_ns.load(Ordering::Relaxed) {
            return None;
        }
        let _making = lock(&process.making);
        self.make_ring(process, buffer)
            .inspect_err(|_| {
                process.retry_at_ns.store(clock::now_ns() + RETRY_NS, Ordering::Relaxed)
            })
            .ok()
    }

    fn make_ring(&self, process: &Process, buffer: Buffer) -> Result<WriterRing, Errno> {
        let process_file = match process.process_file.get() {
            Some(process_file) => process_file,
            None => {
                let process_file = self.make_process_file()?;
                for buffer in Buffer::ALL {
                    let n_records = process.unlogged[buffer as usize].load(Ordering::Relaxed);
                    process_file.file.tell_unlogged(buffer, n_records);
                }
                process.process_file.get_or_init(|| Arc::new(process_file))
            }
        };
        let free = lock(&process.free)[buffer as usize].pop();
        let ring = match free {
            Some(ring) => ring,
            None => Ring::new(
                process_file.file.add_ring(buffer, process_file.ring_bytes[buffer as usize])?,
            ),
        };
        let asked = |which: fn(&WakeRequests) -> &RequestedUntil| {
            Held::new(Arc::clone(process_file), |process_file| {
                which(process_file.watch.words()).by(self.source)
            })
        };
        let (asleep, following) = (asked(|words| &words.asleep), asked(|words| &words.following));
        Ok(WriterRing { ring, asleep, following, process_file: Arc::clone(process_file) })
    }

    fn make_process_file(&self) -> Result<ProcessFile, Errno> {
        let directory = Directory::open_to_write(&self.directory)?;
        let settings = Settings::of(&directory);
        // Frees memory first. A process that may not list the directory leaves that to others.
        let _ = reclaim(&self.directory);
        Ok(ProcessFile {
            ring_bytes: self.ring_bytes.unwrap_or(settings.ring_bytes),
            watch: Watch::attach(&directory, Role::Writer),
            file: File::make(&directory, self.source)?,
        })
    }

    /// Puts a ring back, for another thread to go on in it.
    pub fn give_back(&self, buffer: Buffer, lane: WriterRing) {
        if let Some(process) = self.process.get() {
            lock(&process.free)[buffer as usize].push(lane.ring);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
