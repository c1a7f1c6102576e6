//! The kernel's knowledge of a file's process, by locks on two unused bytes of the file.
//!
//! - *Alive*: a lock of the open file description. It needs write access to the file, so only the
//!   owner's processes can hold it. It ends with the last descriptor. A child of fork that executes
//!   no other program may keep one: see `fork`.
//! - *Process*: a lock of the process, whose holder the kernel names to readers. The process loses
//!   it when it closes any descriptor of the file. A process that reads its own log takes it again
//!   ([`hold_process`]).

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;

const ALIVE_AT: i64 = 0;
const PROCESS_AT: i64 = 1;

fn lock_of(kind: i32, at: i64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    }
}

fn control(file: impl AsFd, command: i32, lock: &mut libc::flock) -> Result<(), Errno> {
    let file = file.as_fd();
    // SAFETY: an open descriptor, and a pointer to a structure that the command reads, and writes
    // if it is a query.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// Marks the file's process as alive, as long as this descriptor or a copy of it is open. It does
/// not wait.
pub(crate) fn hold_alive(file: impl AsFd) -> Result<(), Errno> {
    control(file, libc::F_OFD_SETLK, &mut lock_of(libc::F_WRLCK, ALIVE_AT))
}

/// Marks this process as the file's, until it closes any descriptor of the file.
pub(crate) fn hold_process(file: impl AsFd) -> Result<(), Errno> {
    control(file, libc::F_SETLK, &mut lock_of(libc::F_WRLCK, PROCESS_AT))
}

/// Whether a process with write access marks the file as alive. True also if the system does not
/// say.
pub(crate) fn is_alive(file: impl AsFd) -> bool {
    // A query for a read lock finds only write locks, which need write access.
    let mut lock = lock_of(libc::F_RDLCK, ALIVE_AT);
    let asked = control(file, libc::F_OFD_GETLK, &mut lock);
    asked.is_err() || i32::from(lock.l_type) != libc::F_UNLCK
}

/// The number of the process, other than this one, that is marked as the file's. `None`: there is
/// none, or it has no number in this namespace.
pub(crate) fn process(file: impl AsFd) -> Option<u32> {
    let mut lock = lock_of(libc::F_RDLCK, PROCESS_AT);
    control(file, libc::F_GETLK, &mut lock).ok()?;
    let held = i32::from(lock.l_type) != libc::F_UNLCK;
    u32::try_from(lock.l_pid).ok().filter(|&pid| held && pid > 0)
}
