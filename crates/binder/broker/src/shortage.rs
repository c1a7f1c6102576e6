//! Errors of system calls that mean a temporary shortage of descriptors, memory or epoll watches.

use rustix::io::Errno;

/// Whether a system call that failed with `errno` may succeed later without any change by its
/// caller.
pub(crate) fn is_shortage(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::NOBUFS
            | Errno::NOSPC
            | Errno::TOOMANYREFS
    )
}
