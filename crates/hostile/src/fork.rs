//! `fork`, which the standard library does not provide.

use rustix::io::Errno;
use rustix::process::Pid;

/// The role of a process after a fork.
pub enum Forked {
    /// The calling process; the child's pid.
    Parent(Pid),
    /// The new process, which ends by [`end`] and uses no lock of threads that it does not have.
    Child,
}

/// Copies this process with its calling thread. `EAGAIN` if there are too many processes.
pub fn fork() -> Result<Forked, Errno> {
    // SAFETY: the child runs on copied memory and uses nothing that another thread may have left
    // half-changed: it makes system calls, uses the driver, which supports that, and takes no lock
    // of the standard library.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid => Pid::from_raw(pid).filter(|_| pid > 0).map(Forked::Parent).ok_or(Errno::AGAIN),
    }
}

/// Ends this process at once, without cleaning up for its parent.
pub fn end(status: i32) -> ! {
    // SAFETY: the call does not return.
    unsafe { libc::_exit(status) }
}
