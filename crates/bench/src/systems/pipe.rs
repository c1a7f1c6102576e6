//! Two named pipes, one for each direction.

use super::stream::Side;
use rustix::fs::{CWD, FileType, Mode};
use std::fs::File;
use std::io;
use std::path::Path;

/// Opened for both directions, which on Linux waits for nobody.
fn open(directory: &Path, name: &str) -> io::Result<File> {
    File::options().read(true).write(true).open(directory.join(name))
}

pub fn listen(directory: &Path) -> io::Result<Side<File, File>> {
    for name in ["request", "reply"] {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, directory.join(name), FileType::Fifo, mode, 0)?;
    }
    Ok(Side::new(open(directory, "request")?, open(directory, "reply")?))
}

pub fn connect(directory: &Path) -> io::Result<Side<File, File>> {
    Ok(Side::new(open(directory, "reply")?, open(directory, "request")?))
}
