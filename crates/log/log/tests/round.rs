//! Records are read as they were written: whole, in order, with their time and process.

mod support;

use baton_log::{
    Buffer, Content, Item, Loss, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, Priority, Reader, Start,
    Voucher,
};
use support::{messages, open, say};

#[test]
fn written_records_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path()).writer();
    writer.write(Buffer::Main, Priority::Info, b"tag", b"message");
    writer.write_event(Buffer::Events, 42, b"payload");
    writer.write(Buffer::Crash, Priority::Fatal, b"", b"");
    let mut reader = Reader::open(directory.path()).unwrap();
    let text = |priority, tag, message| Content::Text { priority, tag, message };
    let event = Content::Event { tag: 42, payload: b"payload" };
    for (buffer, content) in [
        (Buffer::Main, text(Priority::Info, b"tag", b"message")),
        (Buffer::Events, event),
        (Buffer::Crash, text(Priority::Fatal, b"", b"")),
    ] {
        let Some(Item::Record(record)) = reader.next_item() else { panic!("{buffer:?}") };
        assert_eq!((record.buffer, record.content, record.sequence), (buffer, content, 0));
        let origin = record.origin;
        assert_eq!((origin.process, origin.voucher), (std::process::id(), Voucher::Kernel));
        assert_eq!(origin.user, rustix::process::geteuid().as_raw());
        assert_eq!(record.thread, rustix::thread::gettid().as_raw_nonzero().get() as u32);
    }
    assert_eq!(reader.next_item(), None);
}

#[test]
fn records_tell_when_they_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path()).writer();
    let now_ns = baton_shm::clock::now_ns;
    writer.write(Buffer::Main, Priority::Info, b"", b"first");
    let (before_ns, wall_before_ns) = (now_ns(), baton_shm::clock::wall_ns());
    writer.write(Buffer::Main, Priority::Info, b"", b"second");
    let (after_ns, wall_after_ns) = (now_ns(), baton_shm::clock::wall_ns());
    let mut reader = Reader::open(directory.path()).unwrap();
    reader.next_item();
    let Some(Item::Record(record)) = reader.next_item() else { panic!() };
    // The two clocks of a time were read at different instants.
    let slack_ns = 1_000_000;
    let date = record.moment;
    let within = before_ns - slack_ns..=after_ns + slack_ns;
    assert!(within.contains(&date.monotonic_ns), "{date:?} {within:?}");
    // Except if the wall clock is set just now.
    assert!(
        (wall_before_ns - 1_000_000_000..=wall_after_ns + 1_000_000_000).contains(&date.wall_ns)
    );
}

#[test]
fn long_records_are_cut() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path()).writer();
    let long = [b'x'; 3 * MAX_PAYLOAD_BYTES];
    for (tag_bytes, message_bytes) in
        [(0, MAX_TEXT_BYTES), (0, MAX_TEXT_BYTES + 1), (10, 5000), (5000, 10), (5000, 5000)]
    {
        writer.write(Buffer::Main, Priority::Warn, &long[..tag_bytes], &long[..message_bytes]);
    }
    writer.write_event(Buffer::Main, 7, &long);
    let mut reader = Reader::open(directory.path()).unwrap();
    for (expected_tag, expected_message) in [
        (0, MAX_TEXT_BYTES),
        (0, MAX_TEXT_BYTES),
        (10, MAX_TEXT_BYTES - 10),
        (MAX_TEXT_BYTES, 0),
        (MAX_TEXT_BYTES, 0),
    ] {
        let Some(Item::Record(record)) = reader.next_item() else { panic!() };
        let Content::Text { tag, message, .. } = record.content else { panic!() };
        assert_eq!((tag.len(), message.len()), (expected_tag, expected_message));
    }
    let Some(Item::Record(record)) = reader.next_item() else { panic!() };
    let Content::Event { tag: 7, payload } = record.content else { panic!() };
    assert_eq!(payload.len(), MAX_PAYLOAD_BYTES - 4);
}

#[test]
fn overwritten_records_are_counted_and_the_rest_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path()).writer();
    let n_written = 10_000;
    for number in 0..n_written {
        writer.write(Buffer::Main, Priority::Info, b"count", number.to_string().as_bytes());
    }
    let mut reader = Reader::open(directory.path()).unwrap();
    let Some(Item::Lost(lost)) = reader.next_item() else { panic!() };
    let Loss::Overwritten { ring: 0, n_records } = lost.loss else { panic!("{lost:?}") };
    assert!((1..n_written).contains(&n_records));
    let expected: Vec<String> = (n_records..n_written).map(|number| number.to_string()).collect();
    assert_eq!(messages(&mut reader), expected);
}

#[test]
fn rings_are_merged_by_time() {
    let directory = tempfile::tempdir().unwrap();
    let loggers = [open(directory.path()), open(directory.path()), open(directory.path())];
    let writers = loggers.each_ref().map(|logger| logger.writer());
    let buffers = [Buffer::Main, Buffer::System, Buffer::Crash];
    for number in 0..300 {
        let writer = &writers[number % 7 % 3];
        let buffer = buffers[number % 5 % 3];
        writer.write(buffer, Priority::Debug, b"", number.to_string().as_bytes());
    }
    let mut reader = Reader::open(directory.path()).unwrap();
    let expected: Vec<String> = (0..300).map(|number: i32| number.to_string()).collect();
    assert_eq!(messages(&mut reader), expected);
}

#[test]
fn a_reader_has_the_buffers_and_the_beginning_that_it_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    say(&logger, "old");
    let newest = &mut Reader::open_from(directory.path(), &[Buffer::Main], Start::Newest).unwrap();
    let events =
        &mut Reader::open_from(directory.path(), &[Buffer::Events], Start::Oldest).unwrap();
    assert_eq!((messages(newest).len(), messages(events).len()), (0, 0));
    say(&logger, "new");
    logger.writer().write_event(Buffer::Events, 3, b"");
    assert_eq!((messages(newest), messages(events)), (vec!["new".into()], vec!["event 3".into()]));
}

#[test]
fn cleared_records_are_skipped_and_later_ones_read() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    let writer = logger.writer();
    let write = |message: &str| {
        for buffer in [Buffer::Main, Buffer::Crash] {
            writer.write(buffer, Priority::Info, b"tag", message.as_bytes());
        }
    };
    let read = || {
        let mut reader = Reader::open(directory.path()).unwrap();
        let mut found = Vec::new();
        while let Some(Item::Record(record)) = reader.next_item() {
            let Content::Text { message, .. } = record.content else { panic!() };
            found.push((record.buffer, String::from_utf8_lossy(message).into_owned()));
        }
        found
    };
    (0..1000).for_each(|number| write(&format!("old {number}")));
    baton_log::clear(directory.path(), &[Buffer::Main]).unwrap();
    write("new");
    let found = read();
    assert_eq!(found.len(), 1002);
    let main: Vec<_> = found.iter().filter(|(buffer, _)| *buffer == Buffer::Main).collect();
    assert_eq!(main, [&(Buffer::Main, "new".to_owned())]);
    baton_log::clear(directory.path(), &Buffer::ALL).unwrap();
    assert_eq!(read(), []);
}
