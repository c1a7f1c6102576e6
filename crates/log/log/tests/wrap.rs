//! Waiting until a ring is about to overwrite unread records.

mod support;

use baton_log::{Buffer, MIN_RING_BYTES, Reader, Start};
use std::thread;
use std::time::Duration;
use support::{open, say};

/// At most the bytes of a record with a short message.
const RECORD_BYTES: usize = 32;
const N_RECORDS: usize = MIN_RING_BYTES / RECORD_BYTES;

fn newest(log: &std::path::Path, buffer: Buffer) -> Reader {
    Reader::open_from(log, &[buffer], Start::Newest).unwrap()
}

#[test]
fn a_ring_is_about_to_wrap_when_later_records_fill_it() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    let writer = logger.writer();
    let write = |n_records: usize| {
        for _ in 0..n_records {
            let (buffer, priority) = (Buffer::Main, baton_log::Priority::Info);
            writer.write(buffer, priority, b"test", b"words");
        }
    };
    write(3 * N_RECORDS);
    let mut reader = newest(directory.path(), Buffer::Main);
    let mut other = newest(directory.path(), Buffer::Crash);
    let is_full = |reader: &mut Reader| reader.wait_for_wrap(Duration::ZERO).unwrap();
    assert!(!is_full(&mut reader));
    write(N_RECORDS / 4);
    assert!(!is_full(&mut reader));
    write(N_RECORDS / 2);
    assert!(is_full(&mut reader) && !is_full(&mut other));
    let mut later = newest(directory.path(), Buffer::Main);
    assert!(!is_full(&mut later));
}

#[test]
fn a_sleeper_is_woken_before_its_ring_wraps() {
    let directory = tempfile::tempdir().unwrap();
    say(&open(directory.path()), "so that there is a log");
    let mut reader = newest(directory.path(), Buffer::Main);
    let sleeper = thread::spawn(move || reader.wait_for_wrap(Duration::from_secs(3600)).unwrap());
    // A process that comes later has a new ring from its first record on.
    let logger = open(directory.path());
    while !sleeper.is_finished() {
        say(&logger, "words");
        thread::yield_now();
    }
    assert!(sleeper.join().unwrap());
}
