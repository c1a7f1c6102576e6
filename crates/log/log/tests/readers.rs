//! Several readers follow at once, come and go.

mod support;

use baton_log::{Buffer, Content, Item, Priority, Reader, Start};
use std::ops::ControlFlow;
use std::path::Path;
use support::{messages, open, say};

const LAST: &[u8] = b"last";

/// Follows until the last message, and returns the number of messages.
fn follow(mut reader: Reader) -> usize {
    let mut n_records = 0;
    let each = |item: Item<'_>| {
        let Item::Record(record) = item else { panic!("{item:?}") };
        n_records += 1;
        match record.content {
            Content::Text { message, .. } if message == LAST => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    reader.follow(each).unwrap();
    n_records
}

#[test]
fn a_follower_gets_each_record_without_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    say(&logger, "first");
    let (ask, asked) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reader = Reader::open(directory.path()).unwrap();
            let each = |_: Item<'_>| match ask.send(()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            reader.follow(each).unwrap();
        });
        // Each record is written when the one before was seen: only the record itself can wake the
        // reader.
        for number in 0..200 {
            asked.recv().unwrap();
            if number % 20 == 0 {
                // Long enough for the reader to fall asleep.
                let mut other = Reader::open(directory.path()).unwrap();
                other.wait(None).unwrap();
                while other.next_item().is_some() {}
                other.wait(Some(std::time::Duration::from_millis(3))).unwrap();
            }
            say(&logger, &number.to_string());
        }
        asked.recv().unwrap();
        drop(asked);
        say(&logger, "end");
    });
}

#[test]
fn readers_join_and_leave_while_processes_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let n_files = 8;
    say(&open(path), "there before");
    let counts = std::thread::scope(|scope| {
        let reader = || Reader::open(path).unwrap();
        let steady = [scope.spawn(move || follow(reader())), scope.spawn(move || follow(reader()))];
        for number in 0..n_files {
            let logger = open(path);
            say(&logger, &number.to_string());
            let passing = scope.spawn(move || messages(&mut Reader::open(path).unwrap()).len());
            assert!(passing.join().unwrap() >= number + 2);
            say(&logger, "bye");
        }
        say(&open(path), "last");
        steady.map(|reader| reader.join().unwrap())
    });
    assert_eq!(counts, [2 * n_files + 2; 2]);
}

fn wait_for_file(path: &Path) -> Reader {
    loop {
        if let Ok(reader) = Reader::open_from(path, &Buffer::ALL, Start::Newest) {
            return reader;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_follower_from_now_on_misses_no_later_record() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    say(&logger, "old");
    let reader = wait_for_file(directory.path());
    let follower = std::thread::spawn(move || follow(reader));
    let writer = logger.writer();
    for number in 0..100 {
        writer.write(Buffer::System, Priority::Info, b"", number.to_string().as_bytes());
    }
    // In the same ring: the order across rings is that of dates, which are interpolated.
    writer.write(Buffer::System, Priority::Info, b"", LAST);
    assert_eq!(follower.join().unwrap(), 101);
}
