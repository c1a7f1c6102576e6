//! What the kernel says of a file's process, by locks on two bytes of the file that mean nothing
//! else.
//!
//! - *Alive*: a lock of the open file description. Only who may write the file can hold it, so only
//!   its owner's user. It ends with the last descriptor, which a child of fork that never executes
//!   another program may keep: see `fork`.
//! - *Process*: a lock of the process. The kernel names its holder, in the asker's numbers. The
//!   process loses it when it closes any descriptor of the file; who reads their own log takes it
//!   again ([`hold_process`]).

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
    // SAFETY: an open descriptor, and a structure of ours that the command reads, and writes if it
    // asks.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// Says that the file's process is alive, as long as this descriptor or a copy of it is open. Waits
/// for nobody.
pub(crate) fn hold_alive(file: impl AsFd) -> Result<(), Errno> {
    control(file, libc::F_OFD_SETLK, &mut lock_of(libc::F_WRLCK, ALIVE_AT))
}

/// Says that this is the file's process, until it closes any descriptor of the file.
pub(crate) fn hold_process(file: impl AsFd) -> Result<(), Errno> {
    control(file, libc::F_SETLK, &mut lock_of(libc::F_WRLCK, PROCESS_AT))
}

/// Whether somebody who may write the file holds it alive. If the system does not say, it is.
pub(crate) fn is_alive(file: impl AsFd) -> bool {
    // In the way of a lock for reading are only those for writing, which not every reader can take.
    let mut lock = lock_of(libc::F_RDLCK, ALIVE_AT);
    let asked = control(file, libc::F_OFD_GETLK, &mut lock);
    asked.is_err() || i32::from(lock.l_type) != libc::F_UNLCK
}

/// The process, other than this one, that says to be the file's: its number here, if it has one.
pub(crate) fn process(file: impl AsFd) -> Option<u32> {
    let mut lock = lock_of(libc::F_RDLCK, PROCESS_AT);
    control(file, libc::F_GETLK, &mut lock).ok()?;
    let held = i32::from(lock.l_type) != libc::F_UNLCK;
    u32::try_from(lock.l_pid).ok().filter(|&pid| held && pid > 0)
}
