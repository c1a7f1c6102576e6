//! A file of the log that is open for reading.

use crate::files::directory::Directory;
use crate::files::fork;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;

/// A file whose closing does not cost this process its lock, if it is the process's own.
#[derive(Debug)]
pub(crate) struct Opened {
    /// `Some` until it is dropped.
    file: Option<OwnedFd>,
    pub stat: Stat,
    pub is_ours: bool,
}

impl Opened {
    /// Opens a file. `EPERM`: other users than its owner may write it, so it could be any one's.
    pub fn open(directory: &Directory, name: &CStr) -> Result<Opened, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&directory.file, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let is_ours = fork::is_ours(&stat);
        let opened = Opened { file: Some(file), stat, is_ours };
        check(&stat)?;
        Ok(opened)
    }
}

/// The status of a file that is not opened. `EPERM` as for [`Opened::open`].
pub(crate) fn status(directory: &Directory, name: &CStr) -> Result<Stat, Errno> {
    let stat = rustix::fs::statat(&directory.file, name, AtFlags::SYMLINK_NOFOLLOW)?;
    check(&stat)?;
    Ok(stat)
}

fn check(stat: &Stat) -> Result<(), Errno> {
    let strangers = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    let regular = FileType::from_raw_mode(stat.st_mode).is_file();
    if regular && !strangers { Ok(()) } else { Err(Errno::PERM) }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("until it is dropped").as_fd()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        drop(self.file.take());
        if self.is_ours {
            fork::hold_again();
        }
    }
}
