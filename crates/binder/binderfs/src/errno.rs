//! The error of a system call that was made by the C library.

use rustix::io::Errno;

/// The error of the calling thread's last system call, which has failed.
pub fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
