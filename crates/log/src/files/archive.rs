//! One file for many dead processes of a user that have logged little.
//!
//! A file takes 72 KiB for its first record, and goes on taking them when its process has ended.
//! What such files hold is copied to an
//! *archive*, of the form that `layout` tells, and they are removed: a process that has written one
//! line costs some 300 bytes there.
//!
//! ```text
//!   take     each file's lock, as if its process lived: nobody else archives or removes it
//!   meanwhile
//!   copy     to an archive aside
//!   rename   it to where readers look: they know each process's records by the name of its file,
//!   and take them from one of the two
//!   remove   the files
//! ```
//!
//! Killed between any two of these, the archiver leaves each record in a file, in an archive, or in
//! both.
//!
//! **Invariant**: an archive has records of one user, its owner, and only of processes of that
//! user.

use crate::buffer::N_BUFFERS;
use crate::cursor::Bounds;
use crate::files::layout::{self, BOUNDS_AT, Former, HEADER_BYTES, Header, Place, STATUS_BYTES};
use crate::files::lock;
use crate::files::place::Directory;
use crate::files::{file, fork};
use crate::memory::read_exactly;
use baton_shm::clock;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Most bytes of records that a file's process has written for them to be archived: what has more
/// is worth a file.
const MOST_BYTES: u64 = 16 * 1024;
/// Most files that come to one archive.
const MOST_FILES: usize = 128;
/// Fewer are not worth one.
const FEWEST_FILES: usize = 16;
/// Most rings of one file.
const MOST_RINGS: usize = layout::MAX_RINGS / MOST_FILES;

/// A dead process's file that is to be archived.
struct Taken {
    /// Held as the archiver's.
    _file: OwnedFd,
    name: CString,
    header: Header,
    rings: Vec<Ring>,
    stat: Stat,
}

struct Ring {
    place: Place,
    former: Former,
    bounds: Bounds,
    bytes: Vec<u8>,
}

/// Archives what this user's files of these names hold, as far as their processes are dead and have
/// written little: so many files.
pub(crate) fn archive<'a>(
    directory: &Directory,
    names: impl Iterator<Item = &'a CStr>,
) -> Result<usize, Errno> {
    let mut taken: Vec<Taken> = Vec::new();
    for name in names {
        let Some(file) = take(directory, name) else { continue };
        // Stamps of one start of the machine and of one kind go together.
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
    if taken.len() < FEWEST_FILES {
        return Ok(0);
    }
    write(directory, &taken)?;
    for file in &taken {
        let _ = rustix::fs::unlinkat(&directory.file, &file.name, AtFlags::empty());
    }
    Ok(taken.len())
}

/// `None` if it is none to be archived, or somebody else is at it.
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
    // Whoever has archived it since has removed it before the lock was free.
    let stat = rustix::fs::fstat(&file).ok().filter(|stat| stat.st_nlink == 1)?;
    let mut bytes = [0; HEADER_BYTES];
    read_exactly(&file, 0, &mut bytes).ok()?;
    let header = Header::decode(&bytes)?;
    // Losses are told of a process, which an archive has no place for.
    if process == 0 || header.unlogged != [0; N_BUFFERS] || header.n_rings > MOST_RINGS {
        return None;
    }
    let former = |ring| Former { process: header.process, number, ring, name: header.name };
    let rings: Option<Vec<Ring>> =
        (0..header.n_rings).map(|ring| read_ring(&file, former(ring as u32))).collect();
    let rings = rings.filter(|_| header.process == process)?;
    let written: u64 = rings.iter().map(|ring| ring.bounds.head).sum();
    let taken = Taken { _file: file, name: name.to_owned(), header, rings, stat };
    (written <= MOST_BYTES).then_some(taken)
}

/// `None` if it is none that our writers make, or has gone round.
fn read_ring(file: &OwnedFd, former: Former) -> Option<Ring> {
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
    // What was prepared and never written to has no bytes, and needs none.
    place.capacity = bounds.head;
    Some(Ring { place, former, bounds, bytes })
}

/// An archive, of which others know when it is whole.
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
        let place = Place { offset: (STATUS_BYTES + bytes.len()) as u64, ..ring.place };
        let entry = &mut front[layout::entry_at(number)..];
        let encoded = place.encode_archived(&ring.former);
        entry[..encoded.len()].copy_from_slice(&encoded);
        entry[BOUNDS_AT..][..8].copy_from_slice(&ring.bounds.tail.to_ne_bytes());
        entry[BOUNDS_AT + 8..][..8].copy_from_slice(&ring.bounds.head.to_ne_bytes());
        bytes.extend_from_slice(&ring.bytes);
    }
    write_all(file, STATUS_BYTES as u64, &bytes)?;
    write_all(file, 0, &front)?;
    file::share(directory, file)?;
    // Among the dead's files it is as old as the youngest that it is of.
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
