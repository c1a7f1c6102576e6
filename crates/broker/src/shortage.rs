//! What the system lacks for a while: descriptors, memory, watches. Whoever asked may ask again.

use rustix::io::Errno;

/// Whether a system call that failed may succeed later, without anybody's doing anything else.
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
