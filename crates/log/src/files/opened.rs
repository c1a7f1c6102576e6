//! A file of the log, opened to look at.

use crate::files::fork;
use crate::files::place::Directory;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;

/// Closing it does not cost this process its lock, if it is its own file.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Always there, until it is dropped.
    file: Option<OwnedFd>,
    pub stat: Stat,
    pub is_ours: bool,
}

impl Opened {
    /// `EPERM` if others than its owner can write it: it could be of any of them.
    pub fn open(directory: &Directory, name: &CStr) -> Result<Opened, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&directory.file, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let is_ours = fork::is_ours(&stat);
        let opened = Opened { file: Some(file), stat, is_ours };
        let strangers = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
        let regular = FileType::from_raw_mode(stat.st_mode).is_file();
        if regular && !strangers { Ok(opened) } else { Err(Errno::PERM) }
    }
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
