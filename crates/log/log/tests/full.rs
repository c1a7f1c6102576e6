//! There is no room for a log: the program runs on, and lost records are counted.

mod support;

use baton_log::{Buffer, N_BUFFERS, Options, Priority, Reader};
use support::{Process, messages, open, say, task};

const DIRECTORY: &str = "LOG_FULL_DIRECTORY";
const N_RECORDS: u64 = 1000;

#[test]
fn without_a_directory_records_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let logger = open(&file.join("log"));
    let writer = logger.writer();
    assert!(!writer.prepare(Buffer::Main));
    for _ in 0..N_RECORDS {
        writer.write(Buffer::Main, Priority::Info, b"", b"nobody reads this");
    }
    writer.write_event(Buffer::Events, 1, b"");
    let counts = Buffer::ALL.map(|buffer| logger.unlogged(buffer));
    assert_eq!(counts, [N_RECORDS, 0, 1, 0, 0]);
}

#[test]
fn earlier_losses_are_reported_once_there_is_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "").unwrap();
    let logger = open(&path);
    let writer = logger.writer();
    let write = || writer.write(Buffer::Main, Priority::Info, b"", b"at last");
    write();
    std::fs::remove_file(&path).unwrap();
    // The logger tries again after a while.
    while !path.exists() {
        write();
    }
    let unlogged = logger.unlogged(Buffer::Main);
    let told = [format!("{unlogged} unlogged"), "at last".to_owned()];
    assert_eq!(messages(&mut Reader::open(&path).unwrap()), told);
}

/// In a process of its own: there is room for a file and for no ring. A limit of file sizes stands
/// for a full memory.
#[test]
fn process_without_room() {
    let Some(directory) = task(DIRECTORY) else { return };
    let limit = libc::rlimit { rlim_cur: 150_000, rlim_max: 150_000 };
    // SAFETY: limits this process. The signal of the limit would end it.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0) };
    let logger = open(directory.as_ref());
    for _ in 0..N_RECORDS {
        say(&logger, "nobody reads this");
    }
    println!("{} unlogged", logger.unlogged(Buffer::Main));
    support::wait_to_be_ended();
}

#[test]
fn without_room_for_a_ring_records_are_counted_for_readers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut process =
        Process::start("process_without_room", &[(DIRECTORY, path.to_str().unwrap())]);
    let told = format!("{N_RECORDS} unlogged");
    process.wait_for(&told);
    assert_eq!(messages(&mut Reader::open(path).unwrap()), [told]);
    process.end();
}

#[test]
fn a_process_has_so_many_rings_and_counts_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let logger = Options::new().directory(directory.path()).ring_bytes([1 << 16; N_BUFFERS]).open();
    let writers: Vec<_> = (0..300).map(|_| logger.writer()).collect();
    let mut got = 0;
    for (writer, buffer) in
        writers.iter().flat_map(|writer| Buffer::ALL.map(|buffer| (writer, buffer)))
    {
        writer.write(buffer, Priority::Info, b"", b"");
        got += u64::from(writer.prepare(buffer));
    }
    let unlogged: u64 = Buffer::ALL.iter().map(|&buffer| logger.unlogged(buffer)).sum();
    assert_eq!((got, unlogged), (1024, 1500 - 1024));
}
