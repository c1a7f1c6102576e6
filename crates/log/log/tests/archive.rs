//! Many processes log little and end. Their records take little memory, and are read once.

mod support;

use baton_log::{Item, N_BUFFERS, Reader, Settings, reclaim};
use std::collections::HashSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use support::{Log, Process, files, messages, open, say, task, tell};

const DIRECTORY: &str = "LOG_ARCHIVE_DIRECTORY";
const FIRST: &str = "LOG_ARCHIVE_FIRST";

/// 46 bytes.
fn message(number: usize) -> String {
    format!("{number:046}")
}

/// Writes a record as a process of its own that has ended.
fn write_and_end(path: &Path, number: usize) {
    say(&open(path), &message(number));
}

fn bytes_taken(path: &Path) -> u64 {
    let blocks = |name: &String| std::fs::metadata(path.join(name)).unwrap().blocks();
    files(path).iter().map(blocks).sum::<u64>() * 512
}

#[test]
fn records_of_5000_ended_processes_are_kept() {
    const MANY: usize = 5000;
    let log = Log::with_mode(0o700);
    (0..MANY).for_each(|number| write_and_end(log.path(), number));
    let reader = &mut Reader::open(log.path()).unwrap();
    let expected: Vec<String> = (0..MANY).map(message).collect();
    assert!(messages(reader) == expected, "all of them, in order");
    let budget = Settings::default().budget_bytes;
    assert!(bytes_taken(log.path()) <= budget, "{} bytes", bytes_taken(log.path()));
    // Each record has the file name of its process, as before.
    let reader = &mut Reader::open(log.path()).unwrap();
    let mut names = HashSet::new();
    while let Some(item) = reader.next_item() {
        let Item::Record(record) = item else { panic!("{item:?}") };
        let process = record.origin.process;
        assert_eq!((process, record.ring, record.sequence), (std::process::id(), 0, 0));
        assert!(record.origin.file.starts_with(&format!("{process}-")), "{:?}", record.origin);
        assert!(!record.origin.program.is_empty());
        names.insert(record.origin.file.clone());
    }
    assert_eq!(names.len(), MANY);
}

/// A file has room for its rings, whatever is in them: few of them exceed the budget.
#[test]
fn records_in_large_rings_of_ended_processes_are_kept() {
    for ring_bytes in [2 << 20, 16 << 20] {
        let log = Log::with_mode(0o700);
        let ring_bytes = [ring_bytes; N_BUFFERS];
        Settings { ring_bytes, ..Settings::default() }.write(log.path()).unwrap();
        (0..10).for_each(|number| write_and_end(log.path(), number));
        let reader = &mut Reader::open(log.path()).unwrap();
        assert_eq!(messages(reader), (0..10).map(message).collect::<Vec<_>>());
    }
}

/// A reader that has read a file does not read it again from an archive; another reader does.
#[test]
fn a_follower_reads_each_record_once() {
    const MANY: usize = 1000;
    let log = Log::with_mode(0o700);
    write_and_end(log.path(), 0);
    let [mut often, mut seldom] = [(); 2].map(|()| Reader::open(log.path()).unwrap());
    let (mut by_often, mut by_seldom) = (Vec::new(), Vec::new());
    let read = |reader: &mut Reader, found: &mut Vec<String>| {
        reader.wait(Some(std::time::Duration::ZERO)).unwrap();
        found.extend(messages(reader));
    };
    for number in 1..MANY {
        read(&mut often, &mut by_often);
        if number % 300 == 0 {
            read(&mut seldom, &mut by_seldom);
        }
        write_and_end(log.path(), number);
    }
    for (mut reader, mut found) in [(often, by_often), (seldom, by_seldom)] {
        while found.len() < MANY {
            let before = found.len();
            read(&mut reader, &mut found);
            read(&mut reader, &mut found);
            assert!(found.len() > before, "{before} of {MANY}");
        }
        found.sort();
        assert!(found == (0..MANY).map(message).collect::<Vec<_>>(), "each once");
    }
    assert!(files(log.path()).len() < MANY / 2);
}

#[test]
fn a_process_with_many_records_keeps_its_file() {
    let log = Log::with_mode(0o700);
    let path = log.path();
    let budget_bytes = 40 * 72 * 1024;
    Settings { budget_bytes, ..Settings::default() }.write(path).unwrap();
    let large = open(path);
    (0..300).for_each(|number| say(&large, &message(number)));
    drop(large);
    let [large] = &files(path)[..] else { panic!("one file") };
    (300..330).for_each(|number| write_and_end(path, number));
    assert!(files(path).contains(large));
    assert!(files(path).iter().any(|name| name.starts_with("0-")), "{:?}", files(path));
    assert_eq!(messages(&mut Reader::open(path).unwrap()).len(), 330);
}

/// An archive belongs to its files' user, and has the directory's permissions for reading.
#[test]
fn an_archive_has_its_files_owner_and_permissions() {
    for (mode, of_files) in [(0o700, 0o600), (0o755, 0o644)] {
        let log = Log::with_mode(mode);
        (0..200).for_each(|number| write_and_end(log.path(), number));
        let archives = files(log.path()).into_iter().filter(|name| name.starts_with("0-"));
        let known = archives.map(|name| std::fs::metadata(log.path().join(name)).unwrap());
        let known: Vec<_> = known.map(|file| (file.mode() & 0o777, file.uid())).collect();
        let own = rustix::process::geteuid().as_raw();
        assert!(
            !known.is_empty() && known.iter().all(|file| *file == (of_files, own)),
            "{known:?}"
        );
    }
}

/// An archive that other users can write is ignored, and one of another version is not read.
#[test]
fn a_forged_archive_is_ignored() {
    let log = Log::with_mode(0o700);
    (0..200).for_each(|number| write_and_end(log.path(), number));
    let name = files(log.path()).into_iter().find(|name| name.starts_with("0-")).unwrap();
    let path = log.path().join(name);
    let n_kept = |log: &Log| messages(&mut Reader::open(log.path()).unwrap()).len();
    assert_eq!(n_kept(&log), 200);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o602)).unwrap();
    let n_without = n_kept(&log);
    assert!(n_without < 200 - 16, "{n_without}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    // The second entry says that its ring is where the first one's is.
    let mut bytes = std::fs::read(&path).unwrap();
    let (first, second) = (4096, 4096 + 128);
    let place = bytes[first..first + 8].to_vec();
    bytes[second..second + 8].copy_from_slice(&place);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(n_kept(&log), n_without + 1);
}

/// Logs and archives for ever, in a process of its own.
#[test]
fn archiver() {
    let Some(directory) = task(DIRECTORY) else { return };
    let first: usize = task(FIRST).unwrap().parse().unwrap();
    for number in first.. {
        write_and_end(directory.as_ref(), number);
        tell(format!("written {number}.\n").as_bytes());
    }
}

#[test]
fn an_archiver_that_is_killed_loses_and_doubles_nothing() {
    let log = Log::with_mode(0o700);
    let path = log.path();
    // Files of twenty processes, so every other round makes an archive of as few as there may be.
    let budget_bytes = 40 * 72 * 1024;
    Settings { budget_bytes, ..Settings::default() }.write(path).unwrap();
    let mut n_written = 0;
    for round in 0..30 {
        let first = n_written.to_string();
        let variables = [(DIRECTORY, path.to_str().unwrap()), (FIRST, &first)];
        let mut process = Process::start("archiver", &variables);
        process.wait_for(&format!("written {}.", n_written + 19 + round % 7));
        process.kill();
        let mut found = messages(&mut Reader::open(path).unwrap());
        found.sort();
        let expected: Vec<String> = (0..found.len()).map(message).collect();
        assert!(found == expected, "round {round}: {} messages", found.len());
        assert!(found.len() >= n_written + 20 + round % 7, "round {round}");
        n_written = found.len();
    }
    reclaim(path).unwrap();
    assert!(files(path).iter().any(|name| name.starts_with("0-")));
    assert_eq!(Settings::read(path).unwrap().ring_bytes, [64 * 1024; N_BUFFERS]);
}
