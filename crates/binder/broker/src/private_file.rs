//! Files that only the broker's user can access, which a broker leaves to the next one.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Opens a file. `None` unless it is a regular one that nobody else can access.
pub(crate) fn open(path: &Path, access: OFlags) -> Option<File> {
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let status = file.metadata().ok()?;
    let is_ours = status.uid() == rustix::process::geteuid().as_raw();
    let is_private = status.mode() & 0o077 == 0 && status.nlink() == 1;
    (status.is_file() && is_ours && is_private).then_some(file)
}

/// Makes a new file, in place of one that is there.
pub(crate) fn create(path: &Path) -> Result<File, Errno> {
    let _ = std::fs::remove_file(path);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}
