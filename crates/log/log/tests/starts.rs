//! A log on a disk from before the machine's last start. No test restarts the machine: files are
//! changed to name another start.

mod support;

use baton_log::{Buffer, Item, Reader};
use rustix::fs::{Timespec, Timestamps};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use support::{files, messages, open, say};

/// The offset of the start's id in a file, and that of CLOCK_MONOTONIC in the first sample of its
/// first ring.
const BOOT_AT: u64 = 104;
const FIRST_MONOTONIC_AT: u64 = 135_168 + 24;

fn file_of(directory: &Path, known: &[String]) -> (File, String) {
    let name = files(directory).into_iter().find(|name| !known.contains(name)).unwrap();
    let file = OpenOptions::new().write(true).open(directory.join(&name)).unwrap();
    (file, name)
}

/// The file of a process with one message, of a start with this id, that was changed last at this
/// time.
fn log_of_start(directory: &Path, start: u8, changed_s: i64, message: &str) -> File {
    let known = files(directory);
    let logger = open(directory);
    say(&logger, message);
    drop(logger);
    let (file, _) = file_of(directory, &known);
    file.write_all_at(&[start; 16], BOOT_AT).unwrap();
    let time = Timespec { tv_sec: changed_s, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(&file, &times).unwrap();
    file
}

fn now(path: &Path) -> Vec<String> {
    messages(&mut Reader::open(path).unwrap())
}

fn last(path: &Path) -> Option<Vec<String>> {
    Some(messages(&mut Reader::open_last(path, &Buffer::ALL).unwrap()?))
}

#[test]
fn records_of_the_last_start_are_read_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    say(&open(path), "now");
    assert_eq!((now(path), last(path)), (vec!["now".to_owned()], None));
    log_of_start(path, 7, 2000, "before");
    log_of_start(path, 8, 1000, "long before");
    assert_eq!(now(path), ["now"]);
    assert_eq!(last(path).unwrap(), ["before"]);
    log_of_start(path, 8, 3000, "again");
    assert_eq!(last(path).unwrap(), ["long before", "again"]);
}

#[test]
fn buffers_are_chosen() {
    let directory = tempfile::tempdir().unwrap();
    log_of_start(directory.path(), 7, 0, "main");
    for (buffer, expected) in [(Buffer::Main, 1), (Buffer::Crash, 0)] {
        let reader = Reader::open_last(directory.path(), &[buffer]).unwrap();
        assert_eq!(messages(&mut reader.unwrap()).len(), expected);
    }
}

#[test]
fn a_machine_that_ran_for_longer_has_later_times_and_they_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = log_of_start(directory.path(), 7, 0, "at the end of a long run");
    let late_ns = u64::MAX / 2;
    file.write_all_at(&late_ns.to_ne_bytes(), FIRST_MONOTONIC_AT).unwrap();
    let mut reader = Reader::open_last(directory.path(), &Buffer::ALL).unwrap().unwrap();
    let Some(Item::Record(record)) = reader.next_item() else { panic!("there is one") };
    assert!(record.moment.monotonic_ns >= late_ns);
    assert!(reader.next_item().is_none());
}

/// Records are dated by their ring's own samples, as this start's clocks say nothing of another
/// one.
#[test]
fn records_keep_their_time_of_day() {
    let wall_ns = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let directory = tempfile::tempdir().unwrap();
    let before_ns = wall_ns();
    log_of_start(directory.path(), 7, 0, "then");
    let after_ns = wall_ns();
    let mut reader = Reader::open_last(directory.path(), &Buffer::ALL).unwrap().unwrap();
    let Some(Item::Record(record)) = reader.next_item() else { panic!("there is one") };
    let wall_ns = record.moment.wall_ns;
    assert!((before_ns..=after_ns).contains(&wall_ns), "{before_ns} {wall_ns} {after_ns}");
}

#[test]
fn an_earlier_starts_clear_hides_no_present_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let logger = open(path);
    log_of_start(path, 7, 0, "before");
    say(&logger, "cleared");
    baton_log::clear(path, &Buffer::ALL).unwrap();
    say(&logger, "now");
    assert_eq!(
        (now(path), last(path).unwrap()),
        (vec!["now".to_owned()], vec!["before".to_owned()])
    );
    let text = std::fs::read_to_string(path.join("cleared")).unwrap();
    let (_, times) = text.split_once('\n').unwrap();
    let of_start =
        |start: &str| std::fs::write(path.join("cleared"), format!("boot {start}\n{times}"));
    of_start(&"07".repeat(16)).unwrap();
    assert_eq!(
        (now(path), last(path).unwrap()),
        (vec!["cleared".to_owned(), "now".to_owned()], vec![])
    );
}

#[test]
fn sound_records_of_an_incomplete_disk_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let whole = log_of_start(path, 7, 0, "whole");
    let partial = log_of_start(path, 7, 0, "lost");
    let nothing = log_of_start(path, 7, 0, "lost, too");
    partial.write_all_at(&[0; 4096], 135_168).unwrap();
    nothing.set_len(0).unwrap();
    let mut found = last(path).unwrap();
    found.sort();
    assert_eq!(found, ["damaged", "whole"]);
    whole.set_len(100).unwrap();
    assert_eq!(last(path).unwrap(), ["damaged"]);
}
