//! A log has more files than a reader may have open.

mod support;

use baton_log::{Buffer, Content, Item, Loss, N_BUFFERS, Reader, Settings, Start};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{files, in_a_child, open, say};

/// Files of one user that a reader has open at once.
const MOST_FILES: usize = 1024;
/// Descriptors that such a test needs.
const DESCRIPTORS: u64 = 2048;

/// A log of so many files, of which each has one record of a process that has ended.
fn log_of(n_files: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let keep_all = Settings { ring_bytes: [1 << 16; N_BUFFERS], budget_bytes: u64::MAX };
    keep_all.write(path).unwrap();
    say(&open(path), "words");
    let bytes = std::fs::read(path.join(&files(path)[0])).unwrap();
    for number in 1..n_files {
        let copy = File::create_new(path.join(format!("1-{number:x}"))).unwrap();
        copy.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        copy.set_len(bytes.len() as u64).unwrap();
        // The empty pages take no memory.
        for (page, bytes) in bytes.chunks(4096).enumerate() {
            if bytes.iter().any(|&byte| byte != 0) {
                copy.write_all_at(bytes, page as u64 * 4096).unwrap();
            }
        }
    }
    directory
}

/// The files whose records are there now, and those that the reader reports as not read.
fn take(reader: &mut Reader) -> (Vec<String>, Vec<String>) {
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next_item() {
        match item {
            Item::Record(record) => read.push(record.origin.file.clone()),
            Item::Lost(lost) => {
                assert_eq!(lost.loss, Loss::Unread);
                assert_eq!(lost.origin.user, rustix::process::geteuid().as_raw());
                unread.push(lost.origin.file.clone());
            }
        }
    }
    (read, unread)
}

fn remove(directory: &Path, files: &[String]) {
    files.iter().for_each(|file| std::fs::remove_file(directory.join(file)).unwrap());
}

/// Whether this process may open as many files as these tests need.
fn has_descriptors() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let new = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    let new = limit.current.map_or(new, |current| current.max(new));
    let raised = Rlimit { current: Some(new), maximum: limit.maximum };
    new >= DESCRIPTORS && setrlimit(Resource::Nofile, raised).is_ok()
}

#[test]
fn files_beyond_the_bound_are_reported_once_and_read_when_others_are_gone() {
    if !has_descriptors() {
        return eprintln!("skipped: this process may not open {DESCRIPTORS} files");
    }
    let log = log_of(MOST_FILES + 2);
    let mut reader = Reader::open(log.path()).unwrap();
    let (read, unread) = take(&mut reader);
    assert_eq!((read.len(), unread.len()), (MOST_FILES, 2));
    assert_eq!(take(&mut reader), (vec![], vec![]));
    remove(log.path(), &read[..1]);
    let (late, again) = take(&mut reader);
    assert!(late.len() == 1 && unread.contains(&late[0]), "{late:?}, {unread:?}");
    assert_eq!(again, [""; 0]);
}

/// What a follower reads of a process that comes when there is no room, and goes on when there is.
fn check_live_process(start: Start, n_early: usize) {
    let log = log_of(MOST_FILES);
    let mut reader = Reader::open_from(log.path(), &Buffer::ALL, start).unwrap();
    reader.wait(Some(std::time::Duration::ZERO)).unwrap();
    take(&mut reader);
    let old = files(log.path());
    let logger = open(log.path());
    say(&logger, "early");
    let mut unread = Vec::new();
    while unread.is_empty() {
        reader.wait(None).unwrap();
        unread = take(&mut reader).1;
    }
    assert!(unread.len() == 1 && !old.contains(&unread[0]), "{unread:?}");
    remove(log.path(), &old[..1]);
    let mut found = Vec::new();
    let mut n_later = 0;
    while found.last().is_none_or(|last: &Vec<u8>| !last.starts_with(b"later")) {
        // The reader may have seen the removal already.
        n_later += 1;
        say(&logger, &format!("later {n_later}"));
        reader.wait(None).unwrap();
        while let Some(item) = reader.next_item() {
            let Item::Record(record) = item else { panic!("{item:?}") };
            let Content::Text { message, .. } = record.content else { panic!() };
            found.push(message.to_vec());
        }
    }
    assert_eq!(found.iter().filter(|message| *message == b"early").count(), n_early, "{start:?}");
}

#[test]
fn a_live_process_without_room_is_read_when_another_file_is_gone() {
    if !has_descriptors() {
        return eprintln!("skipped: this process may not open {DESCRIPTORS} files");
    }
    check_live_process(Start::Oldest, 1);
    check_live_process(Start::Newest, 0);
}

#[test]
fn files_beyond_the_processs_descriptors_are_reported_and_read_later() {
    let n_files = 40;
    let log = log_of(n_files);
    in_a_child(|| {
        let next = File::open("/dev/null").unwrap().as_raw_fd() as u64;
        let limit = getrlimit(Resource::Nofile);
        let few = Rlimit { current: Some(next + 25), maximum: limit.maximum };
        setrlimit(Resource::Nofile, few).unwrap();
        let mut reader = Reader::open(log.path()).unwrap();
        let (mut read, mut waiting) = take(&mut reader);
        assert!(!read.is_empty() && !waiting.is_empty());
        assert_eq!(read.len() + waiting.len(), n_files);
        while !waiting.is_empty() {
            remove(log.path(), &read);
            let again;
            (read, again) = take(&mut reader);
            assert!(!read.is_empty() && again.is_empty());
            waiting.retain(|file| !read.contains(file));
        }
    });
}
