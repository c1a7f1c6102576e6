//! The log is opened, and its gaps and errors are put into words.

use crate::failure::Failure;
use baton_log::{Loss, Lost, Reader};
use baton_logcat::entry::Buffer;
use rustix::io::Errno;
use std::fmt::Display;
use std::path::Path;

/// The action in messages about a log that cannot be shown.
pub const TRIED: &str = "show the log";

/// Opens the log, if it exists and may be read.
pub fn open(directory: &Path, buffers: &[Buffer]) -> Result<Reader, Failure> {
    Reader::open_from(directory, buffers, baton_log::Start::Oldest)
        .map_err(|errno| unreadable(TRIED, directory, errno))
}

pub fn unreadable(tried: impl Display, directory: &Path, errno: Errno) -> Failure {
    let failure = |wrong: &str| Failure::new(&tried, format!("{}: {wrong}", directory.display()));
    match errno {
        Errno::NOENT => failure("nobody has logged there").advice(
            "give another directory with --log-directory or BATON_LOG_DIR, or log something: baton \
             log WORDS",
        ),
        Errno::ACCESS | Errno::PERM => failure("you may not read this log")
            .advice("who may read the directory may read the log: ask its owner"),
        errno => failure(&errno.to_string()),
    }
}

/// A message about entries that are lost.
pub fn told(lost: &Lost<'_>) -> String {
    let origin = lost.origin;
    let buffer = if lost.loss == Loss::Unread { "all buffers" } else { lost.buffer.name() };
    let what = match lost.loss {
        Loss::Overwritten { n_records, .. } => {
            format!("{n_records} entries were overwritten before they could be read")
        }
        Loss::Unlogged { n_records } => format!("{n_records} entries found no room"),
        Loss::Damaged { .. } => "a damaged ring: some entries cannot be read".to_owned(),
        Loss::Unread => "too many files: entries are not read before others are gone".to_owned(),
    };
    let program = without_control_characters(&origin.program);
    format!("{what}: {buffer}, process {} ({program}), user {}", origin.process, origin.user)
}

/// Another process's text, without characters that would move a terminal's cursor.
pub fn without_control_characters(words: &str) -> String {
    words.replace(|letter: char| letter.is_control(), "?")
}
