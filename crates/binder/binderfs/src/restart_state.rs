//! A server that is killed leaves two things to the next one: the kernel's end of the mount, and a
//! record of the mount in memory that outlives the process. A process that outlives the server
//! keeps both ([`Kept`]).
//!
//! ```text
//!   memfd:   0  place and length of the record      16  the last poll        4096  records
//! ```
//!
//! **Invariant**: a record is whole before the head leads to it. A server may be killed between any
//! two instructions.
//!
//! Programs that had files open cannot go on with them: the next server tells them so, and their
//! next open comes to it.

use crate::connection::Connection;
use crate::mount_error::MountError;
use crate::mounted::Identity;
use crate::pages::PageSource;
use crate::tree::Files;
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// Where the number of the last poll stands.
const LAST_POLL: u64 = 16;
/// Where the records begin.
const RECORDS: u64 = 4096;

/// The kernel's end of a mount, and the record of it. Nothing is mounted yet if the record is
/// empty.
#[derive(Debug)]
pub struct Kept {
    /// /dev/fuse.
    pub fuse: OwnedFd,
    /// A memfd.
    pub record: OwnedFd,
}

impl Kept {
    /// For a mount that there is not yet. Errors are the system's.
    pub fn new() -> Result<Kept, MountError> {
        let record = Kept::memory().map_err(MountError::system("memfd_create"))?;
        Ok(Kept { fuse: Connection::open()?, record })
    }

    fn memory() -> Result<OwnedFd, Errno> {
        rustix::fs::memfd_create("baton-mount", MemfdFlags::CLOEXEC)
    }

    /// Other descriptors of the same two.
    pub fn try_clone(&self) -> Result<Kept, Errno> {
        let clone = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3);
        Ok(Kept { fuse: clone(&self.fuse)?, record: clone(&self.record)? })
    }

    /// Whether a server has mounted it, so that another one can take its place.
    pub fn is_mounted(&self) -> bool {
        head(&self.record).is_some_and(|(_, bytes)| bytes > 0)
    }
}

/// The place and the length of the record; (0, 0) before the first.
fn head(memory: &OwnedFd) -> Option<(u64, u64)> {
    let mut head = [[0; 8]; 2];
    let bytes = rustix::io::pread(memory, head.as_flattened_mut(), 0).ok()?;
    (bytes == 16).then(|| head.map(u64::from_ne_bytes).into())
}

/// A mount, as the next server has to know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// How many servers the mount had before.
    pub servers: u64,
    /// The directory, which may have another name by now.
    pub directory: OsString,
    pub mount: Identity,
    pub pages: PageSource,
    pub files: Files,
}

/// The memory of the record.
#[derive(Debug)]
pub struct RestartState {
    memory: OwnedFd,
}

impl RestartState {
    pub fn new(memory: OwnedFd) -> RestartState {
        RestartState { memory }
    }

    /// The record that the last server has left. `None` if there was none.
    pub fn read(&self) -> Option<Record> {
        let (place, bytes) = head(&self.memory)?;
        let mut record = vec![0; usize::try_from(bytes).ok()?];
        let read = rustix::io::pread(&self.memory, &mut record, place).ok()?;
        serde_json::from_slice(record.get(..read)?).ok()
    }

    /// Writes a record in place of the last one.
    pub fn write(&self, record: &Record) -> Result<(), Errno> {
        let record = serde_json::to_vec(record).expect("numbers and names");
        let bytes = record.len() as u64;
        // Before the last one if it fits there, else behind it.
        let (last, last_bytes) = head(&self.memory).unwrap_or_default();
        let place = match RECORDS + bytes <= last {
            true => RECORDS,
            false => RECORDS.max(last + last_bytes),
        };
        self.write_at(&record, place)?;
        self.write_at([place, bytes].map(u64::to_ne_bytes).as_flattened(), 0)
    }

    /// Notes that a program polls by this number of the kernel's. Numbers grow with each open.
    pub fn note_poll(&self, kernel_handle: u64) {
        if self.last_poll() < kernel_handle {
            // Without it a program may sleep on, should this server be killed.
            let _ = self.write_at(&kernel_handle.to_ne_bytes(), LAST_POLL);
        }
    }

    /// The greatest number that was noted.
    pub fn last_poll(&self) -> u64 {
        let mut number = [0; 8];
        let _ = rustix::io::pread(&self.memory, &mut number, LAST_POLL);
        u64::from_ne_bytes(number)
    }

    fn write_at(&self, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let written = rustix::io::pwrite(&self.memory, bytes, at)?;
            (bytes, at) = (&bytes[written..], at + written as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Options, Tree};

    fn record(servers: u64, devices: usize) -> Record {
        let mut tree = Tree::new((1, 2), Options::default());
        (0..devices).for_each(|number| tree.add(&format!("device{number}")).unwrap());
        Record {
            servers,
            directory: OsString::from("/dev/binderfs"),
            mount: Identity { number: 3, file_system: (0, 7) },
            pages: PageSource::Stored,
            files: tree.files().clone(),
        }
    }

    #[test]
    fn the_last_record_is_read_however_long_those_before_were() {
        let kept = Kept {
            fuse: std::fs::File::open("/dev/null").unwrap().into(),
            record: Kept::memory().unwrap(),
        };
        let state = RestartState::new(kept.try_clone().unwrap().record);
        assert!(state.read().is_none() && !kept.is_mounted());
        for (servers, devices) in [(1, 1), (2, 500), (3, 2), (4, 3), (5, 600), (6, 1), (7, 900)] {
            state.write(&record(servers, devices)).unwrap();
            let read = state.read().unwrap();
            assert_eq!((read.servers, read.files.devices().count()), (servers, devices));
        }
        assert!(kept.is_mounted());
        let bytes = rustix::fs::fstat(&kept.record).unwrap().st_size;
        let longest = serde_json::to_vec(&record(7, 900)).unwrap().len() as i64;
        assert!(bytes < 4 * longest, "room is used again: {bytes} bytes");
    }

    #[test]
    fn the_greatest_poll_is_noted() {
        let state = RestartState::new(Kept::memory().unwrap());
        assert_eq!(state.last_poll(), 0);
        [3, 9, 4].into_iter().for_each(|number| state.note_poll(number));
        assert_eq!((state.last_poll(), state.read().is_none()), (9, true));
    }
}
