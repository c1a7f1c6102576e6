//! Writers are killed at any instant: no record is torn or invented, and each lost one is counted.
//!
//! Each record has its writer, its number there, and bytes that follow from both. Each writer also
//! counts its records outside of the log. `LOG_STORM_RECORDS=100000000` sets the number of records,
//! `SEED=n` runs one round.

mod support;

use baton_log::{Buffer, Content, Item, Loss, Options, Priority, Reader, Record};
use baton_shm::own::Own;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use support::{Process, task};

const DIRECTORY: &str = "LOG_STORM_DIRECTORY";
const SEED: &str = "LOG_STORM_SEED";
const COUNTS: &str = "counts";
const N_WRITERS: usize = 2;
/// Records of one round, at most.
const ROUND_RECORDS: u64 = 400_000;
const USUAL_RECORDS: u64 = 1_000_000;

/// A number that depends on all bits of another.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The message of a record.
fn message(seed: u64, writer: u64, number: u64, room: &mut Vec<u8>) {
    room.clear();
    for word in [seed, writer, number] {
        room.extend_from_slice(&word.to_le_bytes());
    }
    let fill = mix(seed ^ (writer << 56) ^ number);
    let n_bytes = if fill.is_multiple_of(1000) { 3800 } else { fill % 150 };
    room.resize(room.len() + n_bytes as usize, fill as u8);
}

/// Writes as fast as it can until it is killed, in a process of its own.
#[test]
fn writers() {
    let (Some(directory), Some(seed)) = (task(DIRECTORY), task(SEED)) else { return };
    let seed: u64 = seed.parse().unwrap();
    let counts = OpenOptions::new().read(true).write(true).open(Path::new(&directory).join(COUNTS));
    let counts = Own::once(counts.unwrap(), 0, 4096).unwrap();
    let logger = Options::new().directory(Path::new(&directory).join("log")).open();
    std::thread::scope(|scope| {
        for writer in 0..N_WRITERS {
            let (logger, counts) = (&logger, &counts);
            scope.spawn(move || {
                let log = logger.writer();
                let mut room = Vec::new();
                for number in 0.. {
                    message(seed, writer as u64, number, &mut room);
                    log.write(Buffer::Main, Priority::Info, b"storm", &room);
                    counts.double_word(8 * writer).store(number + 1, Ordering::Release);
                }
            });
        }
    });
}

/// The records of a ring so far: the writer's next number, once one was seen.
#[derive(Default)]
struct Known {
    writer: Option<usize>,
    next: u64,
}

#[derive(Default)]
struct Tally {
    rings: HashMap<(String, usize), Known>,
    seen: u64,
    lost: u64,
    room: Vec<u8>,
}

impl Tally {
    fn add(&mut self, seed: u64, item: Item<'_>) {
        match item {
            Item::Record(record) => self.add_record(seed, &record),
            Item::Lost(lost) => {
                let Loss::Overwritten { ring, n_records } = lost.loss else { panic!("{lost:?}") };
                self.rings.entry((lost.origin.file.clone(), ring)).or_default().next += n_records;
                self.lost += n_records;
            }
        }
    }

    fn add_record(&mut self, seed: u64, record: &Record<'_>) {
        let Content::Text { tag: b"storm", message: said, .. } = record.content else {
            panic!("invented: {record:?}")
        };
        let word = |at: usize| u64::from_le_bytes(said[at..at + 8].try_into().unwrap());
        let (writer, number) = (word(8), word(16));
        message(seed, writer, number, &mut self.room);
        assert!(self.room == said, "torn: {record:?}");
        let known = self.rings.entry((record.origin.file.clone(), record.ring)).or_default();
        assert_eq!(*known.writer.get_or_insert(writer as usize), writer as usize);
        assert_eq!((known.next, record.sequence), (number, number), "uncounted");
        known.next += 1;
        self.seen += 1;
    }

    /// Checks, after a writer's end, that all its records are known, and at most one that it had
    /// not counted yet.
    fn check(&self, written: [u64; N_WRITERS]) {
        let mut known = [0; N_WRITERS];
        for ring in self.rings.values().filter(|ring| ring.next > 0) {
            known[ring.writer.expect("the newest records are never lost")] += ring.next;
        }
        for (known, written) in known.into_iter().zip(written) {
            assert!((written..=written + 1).contains(&known), "{known} of {written}");
        }
    }
}

fn counts(file: &File) -> [u64; N_WRITERS] {
    let mut bytes = [0; 8 * N_WRITERS];
    file.read_exact_at(&mut bytes, 0).unwrap();
    std::array::from_fn(|writer| u64::from_le_bytes(bytes[8 * writer..][..8].try_into().unwrap()))
}

/// Kills one process after some records, and reads them meanwhile and afterwards. Returns their
/// number.
fn round(directory: &Path, seed: u64) -> u64 {
    let file = directory.join(COUNTS);
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(file);
    let file = file.unwrap();
    file.set_len(4096).unwrap();
    let log = directory.join("log");
    let _ = std::fs::remove_dir_all(&log);
    let directory = directory.to_str().unwrap();
    let mut child = Process::start("writers", &[(DIRECTORY, directory), (SEED, &seed.to_string())]);
    let enough = mix(seed) % ROUND_RECORDS;
    let mut tally = Tally::default();
    while counts(&file).iter().sum::<u64>() == 0 {
        std::thread::yield_now();
    }
    let mut reader = Reader::open(&log).unwrap();
    // Some rounds are read from the first record on, others only at the end.
    let reads_meanwhile = !seed.is_multiple_of(3);
    while counts(&file).iter().sum::<u64>() <= enough {
        assert!(!child.has_ended(), "the writers ended by themselves");
        for _ in 0..if reads_meanwhile { 1000 } else { 0 } {
            let Some(item) = reader.next_item() else { break };
            tally.add(seed, item);
        }
    }
    child.kill();
    while let Some(item) = reader.next_item() {
        tally.add(seed, item);
    }
    let written = counts(&file);
    tally.check(written);
    written.iter().sum()
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn a_killed_writer_tears_invents_and_hides_nothing() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let wanted = setting("LOG_STORM_RECORDS").unwrap_or(USUAL_RECORDS);
    let first = setting("SEED").unwrap_or(0);
    let mut written = 0;
    for seed in first.. {
        eprintln!("seed {seed}, {written} records so far");
        written += round(directory.path(), seed);
        if written >= wanted || setting("SEED").is_some() {
            break;
        }
    }
}
