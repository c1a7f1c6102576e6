//! What the writers of one process share: the file of the process, and the rings that its threads
//! have left.

use crate::bell::{Asked, Words};
use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::file::File;
use crate::files::place::Directory;
use crate::files::reclaim::reclaim;
use crate::files::settings::Settings;
use crate::files::watch::{Role, Watch};
use crate::moment::Source;
use crate::ring::Ring;
use baton_shm::clock;
use baton_shm::held::Held;
use baton_shm::wiped::PerProcess;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// After a failure to make something, the time until the next attempt.
const RETRY_NS: u64 = 1_000_000_000;

/// What writers have in common.
pub(crate) struct Shared {
    pub directory: PathBuf,
    pub source: Source,
    ring_bytes: Option<[usize; N_BUFFERS]>,
    process: PerProcess<Process>,
}

/// What belongs to a process, and not to its child.
#[derive(Default)]
struct Process {
    home: OnceLock<Arc<Home>>,
    /// Held while something is made, which only a thread's first record needs.
    making: Mutex<()>,
    /// What could not be made is not tried before this.
    retry_at_ns: AtomicU64,
    /// Rings whose threads have ended.
    free: Mutex<[Vec<Ring>; N_BUFFERS]>,
    /// Records that found no ring.
    unlogged: [AtomicU64; N_BUFFERS],
}

/// Where a process's rings are.
pub(crate) struct Home {
    ring_bytes: [usize; N_BUFFERS],
    pub watch: Watch,
    pub file: File,
}

/// A ring, and where it is. What each record needs comes first.
#[repr(C)]
pub(crate) struct Lane {
    pub ring: Ring,
    /// Until when to ring for each record.
    pub asleep: Held<Home, AtomicU64>,
    /// Until when to ring for each part.
    pub following: Held<Home, AtomicU64>,
    pub home: Arc<Home>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Lane")
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

    /// Records of this process that found no ring, in a buffer.
    pub fn unlogged(&self, buffer: Buffer) -> u64 {
        self.process().unlogged[buffer as usize].load(Ordering::Relaxed)
    }

    /// A record of this buffer found no ring.
    #[cold]
    pub fn count_unlogged(&self, buffer: Buffer) {
        let process = self.process();
        let n_records = process.unlogged[buffer as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(home) = process.home.get() {
            home.file.tell_unlogged(buffer, n_records);
        }
    }

    /// A ring for a thread: one whose thread has ended, or a new one. `None` if there is none to be
    /// had now.
    pub fn take_lane(&self, buffer: Buffer) -> Option<Lane> {
        let process = self.process();
        if clock::now_ns() < process.retry_at_ns.load(Ordering::Relaxed) {
            return None;
        }
        let _making = lock(&process.making);
        self.make_lane(process, buffer)
            .inspect_err(|_| {
                process.retry_at_ns.store(clock::now_ns() + RETRY_NS, Ordering::Relaxed)
            })
            .ok()
    }

    fn make_lane(&self, process: &Process, buffer: Buffer) -> Result<Lane, Errno> {
        let home = match process.home.get() {
            Some(home) => home,
            None => {
                let home = self.make_home()?;
                for buffer in Buffer::ALL {
                    let n_records = process.unlogged[buffer as usize].load(Ordering::Relaxed);
                    home.file.tell_unlogged(buffer, n_records);
                }
                process.home.get_or_init(|| Arc::new(home))
            }
        };
        let free = lock(&process.free)[buffer as usize].pop();
        let ring = match free {
            Some(ring) => ring,
            None => Ring::new(home.file.add_ring(buffer, home.ring_bytes[buffer as usize])?),
        };
        let asked = |which: fn(&Words) -> &Asked| {
            Held::new(Arc::clone(home), |home| which(home.watch.words()).by(self.source))
        };
        let (asleep, following) = (asked(|words| &words.asleep), asked(|words| &words.following));
        Ok(Lane { ring, asleep, following, home: Arc::clone(home) })
    }

    fn make_home(&self) -> Result<Home, Errno> {
        let directory = Directory::open_to_write(&self.directory)?;
        let settings = Settings::of(&directory);
        // Room for us first. Who may not list the directory leaves that to those who may.
        let _ = reclaim(&self.directory);
        Ok(Home {
            ring_bytes: self.ring_bytes.unwrap_or(settings.ring_bytes),
            watch: Watch::attach(&directory, Role::Writer),
            file: File::make(&directory, self.source)?,
        })
    }

    /// The thread has ended; another one may go on in its ring.
    pub fn give_back(&self, buffer: Buffer, lane: Lane) {
        if let Some(process) = self.process.get() {
            lock(&process.free)[buffer as usize].push(lane.ring);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
