//! The limit of the size of a process's files, which holds for files in memory, too.

use rustix::io::{Errno, Result};
use rustix::process::{Resource, getrlimit};

/// `EFBIG` if RLIMIT_FSIZE does not let a file have so many bytes. To be asked before the file
/// grows: the kernel would refuse that, too, but also end the process by SIGXFSZ.
pub fn check(bytes: u64) -> Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(most) if most < bytes => Err(Errno::FBIG),
        _ => Ok(()),
    }
}
