//! The file of one process. It is complete before others see it, and grows by one ring at a time.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::boot::Boot;
use crate::files::directory::Directory;
use crate::files::fork;
use crate::files::layout::{
    self, BOUNDS_AT, FRONT_BYTES, Header, MAX_RINGS, N_RINGS_AT, N_SILENT_AT, NOTIFY_AT,
    PAGE_BYTES, Place, UNLOGGED_AT,
};
use crate::files::lock;
use crate::memory::Memory;
use crate::moment::Source;
use baton_shm::clock;
use baton_shm::file_size;
use baton_shm::own::{MirroredRing, Own};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::{Gid, getpid};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Names that are tried, as they may be in use.
const ATTEMPTS: u64 = 16;

pub(crate) struct File {
    file: OwnedFd,
    front: Arc<Own>,
    rings: Mutex<Rings>,
}

struct Rings {
    n: usize,
    /// The offset of the next ring.
    end: u64,
}

impl File {
    /// Makes a file of this process, without rings.
    pub fn make(directory: &Directory, source: Source) -> Result<File, Errno> {
        let process = getpid().as_raw_nonzero().get() as u32;
        let mut number = clock::now_ns();
        for _ in 0..ATTEMPTS {
            let name = layout::name_of_file(process, number);
            match File::make_as(directory, source, process, &name) {
                // The name is in use. Or another process took the file for a dead one's and removed
                // it before it was locked.
                Err(Errno::EXIST | Errno::NOENT) => number += 1,
                done => return done,
            }
        }
        Err(Errno::EXIST)
    }

    /// Makes the file under a hidden name. It is locked before it gets its name, since a file
    /// without a lock belongs to a dead process.
    fn make_as(
        directory: &Directory,
        source: Source,
        process: u32,
        name: &str,
    ) -> Result<File, Errno> {
        let aside = format!(".{name}");
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&directory.file, &aside, flags, Mode::RUSR | Mode::WUSR)?;
        let made = File::furnish(directory, file, source, process).and_then(|file| {
            let (to, no_replace) = (&directory.file, RenameFlags::NOREPLACE);
            rustix::fs::renameat_with(to, &aside, to, name, no_replace)?;
            Ok(file)
        });
        if made.is_err() {
            let _ = rustix::fs::unlinkat(&directory.file, &aside, AtFlags::empty());
        }
        made
    }

    fn furnish(
        directory: &Directory,
        file: OwnedFd,
        source: Source,
        process: u32,
    ) -> Result<File, Errno> {
        lock::hold_alive(&file)?;
        // On a system without these locks the kernel does not vouch for the process; the log works.
        let _ = lock::hold_process(&file);
        file_size::check(FRONT_BYTES as u64)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, PAGE_BYTES as u64)?;
        rustix::fs::ftruncate(&file, FRONT_BYTES as u64)?;
        let front = Own::once(&file, 0, FRONT_BYTES)?;
        let header = Header {
            source,
            process,
            boot: Boot::current(),
            name: program_name(),
            n_rings: 0,
            n_silent: 0,
            unlogged: [0; N_BUFFERS],
        };
        front.write(0, &header.encode());
        share(directory, &file)?;
        fork::remember(file.as_raw_fd());
        let rings = Mutex::new(Rings { n: 0, end: FRONT_BYTES as u64 });
        Ok(File { file, front: Arc::new(front), rings })
    }

    /// Adds a ring. On an error, such as `ENOSPC`, the file stays as it was.
    pub fn add_ring(&self, buffer: Buffer, capacity: usize) -> Result<Memory, Errno> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if rings.n == MAX_RINGS {
            return Err(Errno::NFILE);
        }
        let entry_at = layout::entry_at(rings.n);
        file_size::check(rings.end + capacity as u64)?;
        let allocate = |at, bytes| {
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, bytes as u64)
        };
        // Allocates the room first: a write to a map without room is SIGBUS.
        allocate((entry_at - entry_at % PAGE_BYTES) as u64, PAGE_BYTES)?;
        allocate(rings.end, capacity)?;
        let bytes = MirroredRing::map(&self.file, rings.end, capacity)?;
        let place = Place { buffer, offset: rings.end, capacity: capacity as u64 };
        self.front.write(entry_at, &place.encode());
        rings.n += 1;
        rings.end += capacity as u64;
        // Pairs with the acquire fence of readers of the number: the ring's entry is complete.
        self.front.word(N_RINGS_AT).store(rings.n as u32, Ordering::Release);
        Ok(Memory::new(&self.front, entry_at + BOUNDS_AT, bytes))
    }

    /// Publishes that at least this many records of a buffer found no ring.
    pub fn tell_unlogged(&self, buffer: Buffer, n_records: u64) {
        let word = self.front.double_word(UNLOGGED_AT + 8 * buffer as usize);
        word.fetch_max(n_records, Ordering::Relaxed);
    }

    /// Counts a thread that writes and wakes no follower: followers have to look for its records.
    pub fn add_silent(&self) {
        self.front.word(N_SILENT_AT).fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back one `add_silent`.
    pub fn remove_silent(&self) {
        self.front.word(N_SILENT_AT).fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes all followers: inotify reports the write to them.
    pub fn notify_followers(&self) {
        let _ = rustix::io::pwrite(&self.file, &[0; 4], NOTIFY_AT as u64);
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        fork::forget(self.file.as_raw_fd());
    }
}

/// Gives the file the permissions of the directory. Its group has to be the directory's for the
/// group's permission bit to mean the same group.
pub(crate) fn share(directory: &Directory, file: &OwnedFd) -> Result<(), Errno> {
    let mut mode = directory.mode_of_files();
    if mode.contains(Mode::RGRP) && rustix::fs::fstat(file)?.st_gid != directory.group() {
        let group = Some(Gid::from_raw(directory.group()));
        if rustix::fs::fchown(file, None, group).is_err() {
            mode -= Mode::RGRP;
        }
    }
    rustix::fs::fchmod(file, mode)
}

fn program_name() -> [u8; 16] {
    let mut name = [0; 16];
    let known = std::fs::read("/proc/self/comm").unwrap_or_default();
    let known = known.strip_suffix(b"\n").unwrap_or(&known);
    let n_bytes = known.len().min(name.len());
    name[..n_bytes].copy_from_slice(&known[..n_bytes]);
    name
}
