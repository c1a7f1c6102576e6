//! A descriptor of the driver that polls readable while one thread of a client would find work.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// The descriptor, and its number among those that the server watches.
#[derive(Debug)]
pub struct PollWatch {
    readable: OwnedFd,
    number: u64,
}

impl PollWatch {
    /// A descriptor with its number.
    pub fn new(readable: OwnedFd, number: u64) -> PollWatch {
        PollWatch { readable, number }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is readable now.
    pub fn is_readable(&self) -> Result<bool, Errno> {
        let mut waits = [PollFd::new(&self.readable, PollFlags::IN)];
        Ok(poll(&mut waits, Some(&Timespec::default()))? > 0)
    }
}

impl AsFd for PollWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}
