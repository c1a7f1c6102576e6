//! Writers that are killed at any instant: how many records are torn, invented, or lost without
//! being counted.
//!
//! A writer's records are the messages in turn, so each is known by its number. What each has
//! written it counts in a file beside the log.

use crate::child::{ChildError, ChildProcess};
use crate::log::messages::{N_MESSAGES, message};
use crate::log::role::Role;
use crate::log::setup::directory;
use crate::report::Keys;
use baton_log::{Buffer, Content, Item, Loss, N_BUFFERS, Options, Priority, Reader, Record};
use baton_shm::own::Own;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const COUNTS: &str = "counts";
const COUNTS_BYTES: usize = 4096;
const N_WRITERS: usize = 2;
/// Room for much to be read that nobody has seen yet, and less than is written.
const RING_BYTES: [usize; N_BUFFERS] = [4 << 20; N_BUFFERS];
/// Of one process, at most about.
const MOST_RECORDS: u64 = 400_000;

/// What became of all records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub kills: u64,
    /// Records that their writers had counted.
    pub written: u64,
    /// Records that were read, whole and in turn.
    pub seen: u64,
    /// Records that the reader has told as overwritten.
    pub overwritten: u64,
    /// Records that no writer has written so.
    pub torn: u64,
    /// Records that are neither seen nor told of, or are so twice.
    pub uncounted: u64,
}

pub fn write(
    place: &Path,
    threads: usize,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let counts = File::options().read(true).write(true).open(place.join(COUNTS))?;
    let counts = Own::once(counts, 0, COUNTS_BYTES)?;
    let logger = Options::new().directory(place.join("log")).ring_bytes(RING_BYTES).open();
    thread::scope(|scope| {
        let begin = |writer: usize| {
            let (log, counts) = (logger.writer(), &counts);
            scope.spawn(move || {
                for number in 0.. {
                    let tag = [writer as u8];
                    log.write(Buffer::Main, Priority::Info, &tag, message(number));
                    counts.double_word(8 * writer).store(number as u64 + 1, Ordering::Release);
                }
            })
        };
        let _writers: Vec<_> = (0..threads).map(begin).collect();
        ready()
    })
}

/// What is known of a ring.
#[derive(Default)]
struct Known {
    writer: Option<u8>,
    next: u64,
}

#[derive(Default)]
struct Rings {
    rings: HashMap<(String, usize), Known>,
    tally: Tally,
}

impl Rings {
    fn add(&mut self, item: Item<'_>) {
        match item {
            Item::Record(record) => self.add_record(&record),
            Item::Lost(lost) => match lost.loss {
                Loss::Overwritten { ring, n_records } => {
                    self.ring(&lost.origin.file, ring).next += n_records;
                    self.tally.overwritten += n_records;
                }
                Loss::Unlogged { .. } | Loss::Damaged { .. } | Loss::Unread => self.tally.torn += 1,
            },
        }
    }

    fn ring(&mut self, file: &str, ring: usize) -> &mut Known {
        self.rings.entry((file.to_owned(), ring)).or_default()
    }

    fn add_record(&mut self, record: &Record<'_>) {
        let expected = message((record.sequence % N_MESSAGES as u64) as usize);
        let known = self.ring(&record.origin.file, record.ring);
        let is_whole = match record.content {
            Content::Text { priority: Priority::Info, tag: &[writer], message } => {
                message == expected && *known.writer.get_or_insert(writer) == writer
            }
            _ => false,
        };
        let gap = known.next.abs_diff(record.sequence);
        known.next = record.sequence + 1;
        self.tally.uncounted += gap;
        match is_whole {
            true => self.tally.seen += 1,
            false => self.tally.torn += 1,
        }
    }

    /// A writer may have been killed between a record and its count.
    fn end(mut self, written: [u64; N_WRITERS]) -> Tally {
        let mut known = [0; N_WRITERS];
        for ring in self.rings.values() {
            match ring.writer.and_then(|writer| known.get_mut(usize::from(writer))) {
                Some(known) => *known += ring.next,
                None => self.tally.uncounted += ring.next,
            }
        }
        for (known, written) in known.into_iter().zip(written) {
            self.tally.uncounted += match known.checked_sub(written) {
                Some(more) => more.saturating_sub(1),
                None => written - known,
            };
        }
        self.tally.kills = 1;
        self.tally.written = written.iter().sum();
        self.tally
    }
}

impl Tally {
    pub fn faults(&self) -> u64 {
        self.torn + self.uncounted
    }

    pub fn keys(&self) -> Keys {
        vec![
            ("kills", self.kills.into()),
            ("written", self.written.into()),
            ("seen", self.seen.into()),
            ("overwritten", self.overwritten.into()),
            ("torn", self.torn.into()),
            ("uncounted", self.uncounted.into()),
        ]
    }

    fn add(&mut self, other: Tally) {
        self.kills += other.kills;
        self.written += other.written;
        self.seen += other.seen;
        self.overwritten += other.overwritten;
        self.torn += other.torn;
        self.uncounted += other.uncounted;
    }
}

pub fn run(n_kills: u64) -> io::Result<Tally> {
    let mut tally = Tally::default();
    for number in 1..=n_kills {
        // Anywhere between the first record and the last, and not where another run killed.
        let seed = crate::service::now_ns() ^ number << 48;
        let mixed = (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        tally.add(kill_one((mixed >> 32) % MOST_RECORDS, number.is_multiple_of(2))?);
    }
    Ok(tally)
}

fn kill_one(after_records: u64, reads_meanwhile: bool) -> io::Result<Tally> {
    let directory = directory()?;
    let place = directory.path();
    let file = File::options().create_new(true).read(true).write(true).open(place.join(COUNTS))?;
    file.set_len(COUNTS_BYTES as u64)?;
    let mut writers = Role::Killed { n_threads: N_WRITERS }.start(place)?;
    let mut rings = Rings::default();
    while counts(&file)?.contains(&0) {
        still_writes(&mut writers)?;
    }
    let mut reader = Reader::open(&place.join("log"))?;
    while counts(&file)?.iter().sum::<u64>() <= after_records {
        still_writes(&mut writers)?;
        for _ in 0..if reads_meanwhile { 1000 } else { 0 } {
            let Some(item) = reader.next_item() else { break };
            rings.add(item);
        }
    }
    drop(writers);
    while let Some(item) = reader.next_item() {
        rings.add(item);
    }
    Ok(rings.end(counts(&file)?))
}

fn still_writes(writers: &mut ChildProcess) -> io::Result<()> {
    match writers.hear(Duration::ZERO) {
        Err(ChildError::Stuck(_)) => Ok(()),
        _ => Err(io::Error::other("the writers have ended by themselves")),
    }
}

fn counts(file: &File) -> io::Result<[u64; N_WRITERS]> {
    let mut bytes = [0; 8 * N_WRITERS];
    file.read_exact_at(&mut bytes, 0)?;
    let word = |at: usize| u64::from_ne_bytes(bytes[8 * at..][..8].try_into().expect("8 bytes"));
    Ok(std::array::from_fn(word))
}
