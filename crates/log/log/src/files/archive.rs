//! One file for many dead processes of a user that have logged little.
//!
//! A process's file takes 72 KiB from its first record on, even after the process has ended. The
//! archiver copies the records of such files to an *archive*, a file with the layout of `layout`,
//! and removes the files. A process that has written one line takes some 300 bytes there.
//!
//! ```text
//!   take     each file's lock, as if its process lived: no other archiver takes or removes it
//!   copy     to an archive aside
//!   rename   it to its final name: readers know the records of a process by the name of its file,
//!            and take them from either of the two
//!   remove   the files
//! ```
//!
//! An archiver that is killed between any two of these steps leaves each record in a file, in an
//! archive, or in both.
//!
//! **Invariant**: an archive has only records of its owner's processes.

use crate::bounds::Bounds;
use crate::buffer::N_BUFFERS;
use crate::files::directory::Directory;
use crate::files::layout::{
    self, ArchivedRing, BOUNDS_AT, FRONT_BYTES, HEADER_BYTES, Header, Place,
};
use crate::files::lock;
use crate::files::{file, fork};
use crate::memory::read_exactly;
use baton_shm::clock;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// The most bytes of records of a file that is archived. A file with more is worth its room.
const MOST_BYTES: u64 = 16 * 1024;
/// The most files of one archive.
const MOST_FILES: usize = 128;
/// The fewest files of one archive, unless they take as many bytes.
const FEWEST_FILES: usize = 16;
/// The fewest bytes that the files of one archive take, unless there are as many: those of 16 files
/// with the smallest rings.
const FEWEST_BYTES: u64 = FEWEST_FILES as u64 * 72 * 1024;
/// The most rings of one file.
const MOST_RINGS: usize = layout::MAX_RINGS / MOST_FILES;

/// The file of a dead process that is to be archived.
struct Taken {
    /// Holds the lock for the archiver.
    _file: OwnedFd,
    name: CString,
    header: Header,
    rings: Vec<Ring>,
    stat: Stat,
}

struct Ring {
    place: Place,
    former: ArchivedRing,
    bounds: Bounds,
    bytes: Vec<u8>,
}

/// Archives those files of this user that belong to dead processes with few records. Returns the
/// number of archived files.
pub(crate) fn archive<'a>(
    directory: &Directory,
    names: impl Iterator<Item = &'a CStr>,
) -> Result<usize, Errno> {
    let mut taken: Vec<Taken> = Vec::new();
    for name in names {
        let Some(file) = take(directory, name) else { continue };
        // An archive has stamps of one start of the machine and of one source.
        let alike = |first: &Taken| {
            (first.header.boot, first.header.source) == (file.header.boot, file.header.source)
        };
        if taken.first().is_none_or(alike) {
            taken.push(file);
        }
        if taken.len() == MOST_FILES {
            break;
        }
    }
    let bytes: u64 = taken.iter().map(|file| file.stat.st_blocks as u64 * 512).sum();
    if taken.len() < FEWEST_FILES && bytes < FEWEST_BYTES {
        return Ok(0);
    }
    write(directory, &taken)?;
    for file in &taken {
        let _ = rustix::fs::unlinkat(&directory.file, &file.name, AtFlags::empty());
    }
    Ok(taken.len())
}

/// Takes a file's lock and reads it. `None`: it is not to be archived, or another process has it.
fn take(directory: &Directory, name: &CStr) -> Option<Taken> {
    let (process, number) = layout::parse_name_of_file(name.to_str().ok()?)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::openat(&directory.file, name, flags, Mode::empty()).ok()?;
    let named = rustix::fs::fstat(&file).ok()?;
    if fork::is_ours(&named) {
        drop(file);
        fork::hold_again();
        return None;
    }
    let regular = FileType::from_raw_mode(named.st_mode).is_file();
    if !regular || named.st_uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    lock::hold_alive(&file).ok()?;
    // An archiver that had the lock before has removed the file before it released the lock.
    let stat = rustix::fs::fstat(&file).ok().filter(|stat| stat.st_nlink == 1)?;
    let mut bytes = [0; HEADER_BYTES];
    read_exactly(&file, 0, &mut bytes).ok()?;
    let header = Header::decode(&bytes)?;
    // An archive has no room for a process's count of lost records.
    if process == 0 || header.unlogged != [0; N_BUFFERS] || header.n_rings > MOST_RINGS {
        return None;
    }
    let former = |ring| ArchivedRing { process: header.process, number, ring, name: header.name };
    let rings: Option<Vec<Ring>> =
        (0..header.n_rings).map(|ring| read_ring(&file, former(ring as u32))).collect();
    let rings = rings.filter(|_| header.process == process)?;
    let written: u64 = rings.iter().map(|ring| ring.bounds.head).sum();
    let taken = Taken { _file: file, name: name.to_owned(), header, rings, stat };
    (written <= MOST_BYTES).then_some(taken)
}

/// Reads a ring. `None`: it was overwritten in part, or is not sound.
fn read_ring(file: &OwnedFd, former: ArchivedRing) -> Option<Ring> {
    let entry_at = layout::entry_at(former.ring as usize);
    let mut entry = [0; 24];
    read_exactly(file, entry_at as u64, &mut entry).ok()?;
    let mut place = Place::decode(&entry)?;
    let mut words = [0; 16];
    read_exactly(file, (entry_at + BOUNDS_AT) as u64, &mut words).ok()?;
    let word = |at: usize| u64::from_ne_bytes(words[at..at + 8].try_into().expect("8 bytes"));
    let bounds = Bounds { tail: word(0), head: word(8) };
    if bounds.tail > bounds.head || bounds.head > MOST_BYTES || !bounds.head.is_multiple_of(8) {
        return None;
    }
    let mut bytes = vec![0; bounds.head as usize];
    read_exactly(file, place.offset, &mut bytes).ok()?;
    // A ring that was prepared and never written to needs no bytes.
    place.capacity = bounds.head;
    Some(Ring { place, former, bounds, bytes })
}

/// Writes an archive under a hidden name, and renames it when it is complete.
fn write(directory: &Directory, taken: &[Taken]) -> Result<(), Errno> {
    let name = layout::name_of_file(0, clock::now_ns());
    let aside = format!(".{name}");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&directory.file, &aside, flags, Mode::RUSR | Mode::WUSR)?;
    let written = fill(directory, &file, taken).and_then(|()| {
        let to = &directory.file;
        rustix::fs::renameat_with(to, &aside, to, &name, RenameFlags::NOREPLACE)
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&directory.file, &aside, AtFlags::empty());
    }
    written
}

fn fill(directory: &Directory, file: &OwnedFd, taken: &[Taken]) -> Result<(), Errno> {
    lock::hold_alive(file)?;
    let rings = || taken.iter().flat_map(|file| &file.rings).filter(|ring| !ring.bytes.is_empty());
    let n_rings = rings().count();
    let (first, name) = (&taken[0].header, [0; 16]);
    let header = Header { process: 0, name, n_rings, n_silent: 0, ..*first };
    let mut front = vec![0; layout::entry_at(n_rings)];
    front[..HEADER_BYTES].copy_from_slice(&header.encode());
    let mut bytes = Vec::new();
    for (number, ring) in rings().enumerate() {
        let place = Place { offset: (FRONT_BYTES + bytes.len()) as u64, ..ring.place };
        let entry = &mut front[layout::entry_at(number)..];
        let encoded = place.encode_archived(&ring.former);
        entry[..encoded.len()].copy_from_slice(&encoded);
        entry[BOUNDS_AT..][..8].copy_from_slice(&ring.bounds.tail.to_ne_bytes());
        entry[BOUNDS_AT + 8..][..8].copy_from_slice(&ring.bounds.head.to_ne_bytes());
        bytes.extend_from_slice(&ring.bytes);
    }
    write_all(file, FRONT_BYTES as u64, &bytes)?;
    write_all(file, 0, &front)?;
    file::share(directory, file)?;
    // Among the files of dead processes, the archive is as old as the youngest file in it.
    let changed = taken.iter().map(|file| (file.stat.st_mtime, file.stat.st_mtime_nsec)).max();
    let (seconds, nanoseconds) = changed.unwrap_or_default();
    let changed = Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    let times = Timestamps { last_access: changed, last_modification: changed };
    rustix::fs::futimens(file, &times)
}

fn write_all(file: &OwnedFd, at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    let mut at = at;
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n_bytes) => {
                bytes = &bytes[n_bytes..];
                at += n_bytes as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
