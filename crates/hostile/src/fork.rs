//! fork, which the standard library does not have.

use rustix::io::Errno;
use rustix::process::Pid;

/// Which of the two a process is.
pub enum Forked {
    /// The one that called.
    Parent(Pid),
    /// The new one. It ends by [`end`], and shares no lock with threads that it does not have.
    Child,
}

/// Makes a copy of this process, of which only the calling thread runs. `EAGAIN` if there may be no
/// more processes.
pub fn fork() -> Result<Forked, Errno> {
    // SAFETY: the child runs on copied memory. It touches nothing that another thread may have been
    // in the middle of: the callers' children make system calls, use the driver, which is made for
    // that, and take no lock of the standard library's.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid => Pid::from_raw(pid).filter(|_| pid > 0).map(Forked::Parent).ok_or(Errno::AGAIN),
    }
}

/// Ends this process at once, without what is to be done at its end: that is its parent's.
pub fn end(status: i32) -> ! {
    // SAFETY: it does not return.
    unsafe { libc::_exit(status) }
}
