//! Memory that one process makes, and that others find by a path as long as the first one keeps it.

use baton_shm::mapping::{self, Access, Mapping};
use rustix::fd::{AsRawFd, OwnedFd};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A map, and the file that it is of.
pub struct SharedMap<const BYTES: usize> {
    map: Mapping<BYTES>,
    file: OwnedFd,
}

impl<const BYTES: usize> Deref for SharedMap<BYTES> {
    type Target = Mapping<BYTES>;

    fn deref(&self) -> &Mapping<BYTES> {
        &self.map
    }
}

impl<const BYTES: usize> SharedMap<BYTES> {
    /// Makes a map of zeros.
    pub fn new() -> io::Result<Self> {
        Self::of(mapping::create("bench", BYTES)?)
    }

    /// Makes a map that is found in a directory.
    pub fn make_in(directory: &Path) -> io::Result<Self> {
        let made = Self::new()?;
        std::os::unix::fs::symlink(made.place(), directory.join("memory"))?;
        Ok(made)
    }

    pub fn find_in(directory: &Path) -> io::Result<Self> {
        Self::find(&directory.join("memory"))
    }

    pub fn find(place: &Path) -> io::Result<Self> {
        Self::of(File::options().read(true).write(true).open(place)?.into())
    }

    /// Where other processes find it.
    pub fn place(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    fn of(file: OwnedFd) -> io::Result<Self> {
        Ok(SharedMap { map: Mapping::new(&file, Access::ReadWrite)?, file })
    }
}
