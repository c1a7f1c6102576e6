//! The numbers of descriptors in a process that is somebody else's program.
//!
//! The kernel gives each new descriptor the lowest free number, and programs count on it: they
//! close 0 and open what is to be their standard input, or close a number twice. So this library's
//! own descriptors get numbers that a program hardly reaches.

use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::fcntl_dupfd_cloexec;
use std::sync::atomic::{AtomicBool, Ordering};

/// The least number of a descriptor that is set apart: half of Linux's usual limit.
const FIRST_APART: RawFd = 512;

static IS_ANOTHERS: AtomicBool = AtomicBool::new(false);

/// Low numbers are the program's from now on.
pub fn leave_low_numbers() {
    IS_ANOTHERS.store(true, Ordering::Relaxed);
}

/// Gives one of this library's own descriptors, which nobody else knows by its number, a number
/// that the program does not expect, if the limit of numbers leaves one.
pub fn set_apart(fd: OwnedFd) -> OwnedFd {
    if !IS_ANOTHERS.load(Ordering::Relaxed) || fd.as_raw_fd() >= FIRST_APART {
        return fd;
    }
    fcntl_dupfd_cloexec(&fd, FIRST_APART).unwrap_or(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::fcntl_getfd;
    use rustix::process::{Resource, getrlimit};

    /// The only test here that changes what the process's others get: those count no numbers.
    #[test]
    fn own_descriptors_have_high_numbers_in_anothers_program() {
        let make = || eventfd(7, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        assert!(set_apart(make()).as_raw_fd() < FIRST_APART);
        leave_low_numbers();
        let has_room = getrlimit(Resource::Nofile).current.is_none_or(|most| most > 600);
        let apart = set_apart(make());
        assert_eq!(apart.as_raw_fd() >= FIRST_APART, has_room);
        assert!(fcntl_getfd(&apart).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(rustix::io::read(&apart, &mut [0; 8]), Ok(8), "the same file");
        let number = apart.as_raw_fd();
        assert_eq!(set_apart(apart).as_raw_fd(), number, "it is there already");
    }
}
