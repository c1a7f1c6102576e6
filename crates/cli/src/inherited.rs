//! Descriptors that the process was started with, by the numbers that its starter has told.

use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

/// Takes over a descriptor, which programs that this process starts do not get. `EBADF` if it is
/// not open: the starter's fault. To be called once for each number, before anything else can have
/// got it.
pub fn take(number: RawFd) -> Result<OwnedFd, Errno> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: used in this statement alone; a number that is not open is an error.
    #[allow(unsafe_code)]
    fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open, and by this function's contract nobody else has it.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
