//! `-g`, `-G` and `-c`: the sizes of buffers, and emptying them.

use super::args::LogcatArgs;
use super::reading::{open, unreadable};
use crate::failure::{Failure, Kind};
use crate::stderr::say;
use baton_log::{Buffer, Item, MAX_RING_BYTES, MIN_RING_BYTES, Settings};
use baton_logcat::entry::Entry;
use baton_logcat::size;
use baton_logcat::wire::{self, MAX_ENTRY_BYTES, MAX_PAYLOAD_BYTES};
use rustix::io::Errno;
use serde_json::json;
use std::path::Path;

/// Shows the size and content of each buffer.
pub fn show(args: &LogcatArgs, buffers: &[Buffer]) -> Result<(), Failure> {
    let directory = args.directory();
    let settings = Settings::read(&directory);
    let settings =
        settings.map_err(|errno| unreadable("read the log's settings", &directory, errno))?;
    let mut text = String::new();
    for &buffer in buffers {
        let ring_bytes = settings.ring_bytes[buffer as usize] as u64;
        let Taken { n_rings, consumed, readable } = taken(&directory, buffer)?;
        let name = buffer.name();
        text += &match args.json {
            true => {
                let object = json!({
                    "buffer": name, "ring_bytes": ring_bytes, "rings": n_rings,
                    "consumed_bytes": consumed, "readable_bytes": readable,
                });
                format!("{object}\n")
            }
            false => format!(
                "{name}: ring buffer is {} ({} consumed, {} readable), max entry is \
                 {MAX_ENTRY_BYTES} B, \
                 max payload is {MAX_PAYLOAD_BYTES} B\n",
                size::show(ring_bytes),
                size::show(consumed),
                size::show(readable)
            ),
        };
    }
    crate::stdout::show(&text)
}

/// The memory that a buffer takes.
struct Taken {
    n_rings: usize,
    /// Bytes of all rings together. Each has the size that was set when its thread began to log.
    consumed: u64,
    /// Bytes of the entries that can be read.
    readable: u64,
}

fn taken(directory: &Path, buffer: Buffer) -> Result<Taken, Failure> {
    let mut reader = open(directory, &[buffer])?;
    let mut readable = 0;
    while let Some(item) = reader.next_item() {
        if let Item::Record(record) = item {
            readable += wire::encode(&Entry::from(&record)).len() as u64;
        }
    }
    let (n_rings, consumed) = reader.rings(buffer);
    Ok(Taken { n_rings, consumed, readable })
}

/// Sets the size of each thread's ring in these buffers, for new threads.
pub fn set(directory: &Path, buffers: &[Buffer], bytes: u64) -> Result<(), Failure> {
    let tried = "set the size of buffers";
    let failed = |errno: Errno| match errno {
        Errno::PERM | Errno::ACCESS => Failure::new(tried, "not permitted")
            .advice("this is for the owner of the log's directory"),
        errno => unreadable(tried, directory, errno),
    };
    if bytes > MAX_RING_BYTES as u64 {
        let wrong = format!("a ring has at most {}", size::show(MAX_RING_BYTES as u64));
        return Err(Failure::new(tried, wrong).kind(Kind::Usage));
    }
    let mut settings = match Settings::read(directory) {
        Err(Errno::NOENT) => Settings::default(),
        known => known.map_err(failed)?,
    };
    let ring_bytes = (bytes as usize).next_power_of_two().max(MIN_RING_BYTES);
    if ring_bytes as u64 != bytes {
        say(format_args!(
            "baton: the size of a ring is a power of two, and at least 64 KiB: it is {} now",
            size::show(ring_bytes as u64)
        ));
    }
    for &buffer in buffers {
        settings.ring_bytes[buffer as usize] = ring_bytes;
    }
    settings.write(directory).map_err(failed)
}

/// Hides the current entries of these buffers from all readers.
pub fn clear(directory: &Path, buffers: &[Buffer]) -> Result<(), Failure> {
    baton_log::clear(directory, buffers).map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => Failure::new("clear the log", "not permitted")
            .advice("this is for the owner of the log's directory"),
        errno => unreadable("clear the log", directory, errno),
    })
}
