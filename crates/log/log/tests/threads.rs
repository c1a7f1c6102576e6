//! Rings and their writers: threads that end, children of fork, and signal handlers.

mod support;

use baton_log::{Buffer, Item, Loss, Options, Priority, Reader, Writer};
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use support::{files, in_a_child, messages, open, say};

#[test]
fn threads_that_end_leave_their_rings_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    for number in 0..20 {
        let logger = logger.clone();
        let write = move || say(&logger, &number.to_string());
        std::thread::spawn(write).join().unwrap();
    }
    let mut reader = Reader::open(directory.path()).unwrap();
    let (mut threads, mut rings, mut sequences) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    while let Some(Item::Record(record)) = reader.next_item() {
        threads.insert(record.thread);
        rings.insert(record.ring);
        sequences.push(record.sequence);
    }
    assert_eq!((threads.len(), rings.len()), (20, 1));
    assert_eq!(sequences, (0..20).collect::<Vec<u64>>());
}

#[test]
fn threads_at_once_have_rings_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let writer = logger.writer();
                assert!(writer.prepare(Buffer::Main));
                barrier.wait();
                for number in 0..100 {
                    writer.write(Buffer::Main, Priority::Info, b"", number.to_string().as_bytes());
                }
            });
        }
    });
    let mut reader = Reader::open(directory.path()).unwrap();
    let mut next = [0; 4];
    while let Some(Item::Record(record)) = reader.next_item() {
        assert_eq!(record.sequence, next[record.ring]);
        next[record.ring] += 1;
    }
    assert_eq!(next, [100; 4]);
}

#[test]
fn a_child_writes_to_a_file_of_its_own_and_the_parent_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    let writer = logger.writer();
    let write = |message: &[u8]| writer.write(Buffer::Main, Priority::Info, b"", message);
    write(b"before");
    in_a_child(|| {
        write(b"child");
        write(b"child again");
        in_a_child(|| write(b"grandchild"));
    });
    write(b"after");
    assert_eq!(files(directory.path()).len(), 3);
    let expected = ["before", "child", "child again", "grandchild", "after"];
    assert_eq!(messages(&mut Reader::open(directory.path()).unwrap()), expected);
}

#[test]
fn a_child_that_ends_at_once_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    let mut writer = Some(logger.writer());
    let write = |message: &[u8]| {
        writer.as_ref().unwrap().write(Buffer::Main, Priority::Info, b"", message);
    };
    write(b"before");
    write(b"still before");
    let mut theirs = Some((logger.clone(), logger.writer()));
    in_a_child(|| drop(theirs.take()));
    write(b"after");
    in_a_child(|| drop(writer.take()));
    assert_eq!(messages(&mut Reader::open(directory.path()).unwrap()).len(), 3);
}

/// Each record of the handler is read, counted as overwritten, or counted as unlogged.
#[test]
fn a_signal_handler_may_write_while_its_thread_does() {
    const N_HANDLED: u64 = 2000;
    static HANDLED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    extern "C" fn handle(_: i32) {
        use std::sync::atomic::Ordering::Relaxed;
        baton_log::write(Buffer::Main, Priority::Warn, b"handler", b"interrupted");
        HANDLED.fetch_add(1, Relaxed);
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(baton_log::set_options(Options::new().directory(directory.path())));
    let write =
        || baton_log::write(Buffer::Main, Priority::Info, b"thread", b"not yet interrupted");
    write();
    // SAFETY: the handler does what this crate allows in handlers, for a signal that only this
    // thread gets.
    unsafe {
        libc::signal(libc::SIGUSR1, handle as *const () as libc::sighandler_t);
    }
    // SAFETY: the call only returns the calling thread.
    let thread = unsafe { libc::pthread_self() };
    let handled = || HANDLED.load(std::sync::atomic::Ordering::Relaxed);
    let mut n_written = 1;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while handled() < N_HANDLED {
                // SAFETY: the thread waits for this one, so it lives.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            }
        });
        while handled() < N_HANDLED {
            write();
            n_written += 1;
        }
    });
    let mut known = 0;
    let mut reader = Reader::open(directory.path()).unwrap();
    while let Some(item) = reader.next_item() {
        known += match item {
            Item::Record(_) => 1,
            Item::Lost(lost) => match lost.loss {
                Loss::Overwritten { n_records, .. } | Loss::Unlogged { n_records } => n_records,
                Loss::Damaged { .. } | Loss::Unread => panic!("{lost:?}"),
            },
        };
    }
    assert_eq!(known, n_written + handled());
}

/// The system interrupts a thread that makes its file: the directory reports new files by SIGIO.
/// Files may have no bytes.
#[test]
fn a_signal_handler_that_interrupts_the_making_of_a_ring_finds_none() {
    /// Of `linux/fcntl.h`.
    const DN_CREATE: i32 = 4;
    static WRITER: AtomicPtr<Writer> = AtomicPtr::new(std::ptr::null_mut());
    extern "C" fn handle(_: i32) {
        // SAFETY: the test waits for the child, in which this handler runs.
        let writer = unsafe { &*WRITER.load(Relaxed) };
        writer.write(Buffer::Radio, Priority::Warn, b"handler", b"interrupted");
    }
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    in_a_child(|| {
        let writer = logger.writer();
        WRITER.store((&raw const writer).cast_mut(), Relaxed);
        let no_bytes = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
        let reports = std::fs::File::open(directory.path()).unwrap();
        // SAFETY: the handler does what this crate counts in handlers; the alarm ends a child that
        // waits for itself.
        unsafe {
            libc::signal(libc::SIGIO, handle as *const () as libc::sighandler_t);
            let fd = reports.as_raw_fd();
            assert_eq!(libc::fcntl(fd, libc::F_NOTIFY, DN_CREATE), 0);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const no_bytes);
            libc::alarm(60);
        }
        writer.write(Buffer::Main, Priority::Info, b"thread", b"interrupted");
        assert_eq!(logger.unlogged(Buffer::Main), 1);
        assert!(logger.unlogged(Buffer::Radio) > 0);
    });
}
