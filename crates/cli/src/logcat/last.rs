//! `-L`: shows entries from before the machine's last start.
//!
//! If the log's directory is on a disk, its rings still exist. Otherwise the kernel's pstore may
//! have the entries that `logcat -B -f /dev/pmsg0` wrote.

use super::args::{From, LogcatArgs};
use super::beginning::Beginning;
use super::reading::{TRIED, told, unreadable};
use super::session::{Ended, Session, Wanted};
use crate::failure::Failure;
use crate::stderr::say;
use baton_log::{Item, Loss, Reader};
use baton_logcat::entry::{Buffer, Entry};
use baton_logcat::wire::Entries;
use rustix::io::Errno;
use std::path::Path;

/// The kernel's file with the contents of `/dev/pmsg0`.
const PSTORE: &str = "/sys/fs/pstore/pmsg-ramoops-0";

/// Shows the entries from before the last start.
pub fn last(
    args: &LogcatArgs,
    buffers: &[Buffer],
    from: From,
    session: &mut Session,
) -> Result<Result<(), Ended>, Failure> {
    let beginning = Beginning::new(args, from);
    let kept = match &args.last_file {
        None => rings(args, buffers)?,
        Some(_) => None,
    };
    let shown = match kept {
        Some(reader) => show_rings(reader, beginning, session),
        None => {
            let bytes = read(args)?;
            let entries = Entries::new(&bytes).filter(|entry| buffers.contains(&entry.buffer));
            show(entries, beginning, session)
        }
    };
    Ok(shown.map_err(Ended::Output))
}

fn rings(args: &LogcatArgs, buffers: &[Buffer]) -> Result<Option<Reader>, Failure> {
    let directory = args.directory();
    match Reader::open_last(&directory, buffers) {
        Err(Errno::NOENT) => Ok(None),
        opened => opened.map_err(|errno| unreadable(TRIED, &directory, errno)),
    }
}

fn read(args: &LogcatArgs) -> Result<Vec<u8>, Failure> {
    let path = args.last_file.as_deref().unwrap_or(Path::new(PSTORE));
    let tried = format!("read {}", path.display());
    let bytes = std::fs::read(path).map_err(|error| match &args.last_file {
        Some(_) => Failure::new(&tried, error),
        None => Failure::new(&tried, error).advice(
            "nothing was kept: let BATON_LOG_DIR be on a disk, or, with pstore's ramoops, run \
             `baton logcat -B -f /dev/pmsg0`",
        ),
    })?;
    if !bytes.is_empty() && Entries::new(&bytes).next().is_none() {
        return Err(Failure::new(tried, "it has no entry in binary")
            .advice("give a file that `baton logcat -B -f FILE` has written"));
    }
    Ok(bytes)
}

/// Entries that were overwritten are normal; entries that a disk did not get, and files that are
/// not read, are reported.
fn show_rings(
    mut reader: Reader,
    mut beginning: Beginning<'_>,
    session: &mut Session,
) -> std::io::Result<()> {
    while let Some(item) = reader.next_item() {
        let record = match item {
            Item::Record(record) => record,
            Item::Lost(lost) => {
                if matches!(lost.loss, Loss::Damaged { .. } | Loss::Unread) {
                    say(format_args!("baton: {}", told(&lost)));
                }
                continue;
            }
        };
        session.add_program(record.origin.process, &record.origin.program);
        if beginning.take(Entry::from(&record), session)? == Wanted::Nothing {
            break;
        }
    }
    beginning.end(session)?;
    session.end()
}

fn show(
    entries: impl Iterator<Item = Entry>,
    mut beginning: Beginning<'_>,
    session: &mut Session,
) -> std::io::Result<()> {
    for entry in entries {
        if beginning.take(entry, session)? == Wanted::Nothing {
            break;
        }
    }
    beginning.end(session)?;
    session.end()
}
