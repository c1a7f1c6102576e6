//! A real-time thread makes no system call for a record, even while readers follow, and readers
//! still get its records.

mod support;

use baton_log::{Buffer, Content, Item, Loss, Priority, Reader};
use baton_shm::schedule;
use std::time::Duration;
use support::{Process, open, say, task};

const DIRECTORY: &str = "LOG_SILENT_DIRECTORY";
/// More records than a ring has parts, and fewer than it holds.
const N_RECORDS: u32 = 1500;
const LAST: &[u8] = b"last";

fn become_real_time() -> bool {
    schedule::set(0, libc::SCHED_FIFO, 1).is_ok()
}

/// Lets the kernel end the process at any system call of this thread, except the one that ends it.
fn swear_off_system_calls() {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let number = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
    let is_exit =
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_exit as u32);
    let answer = |answer| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, answer);
    let mut filter =
        [number, is_exit, answer(libc::SECCOMP_RET_ALLOW), answer(libc::SECCOMP_RET_KILL_PROCESS)];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: limits the calling thread, by a program that lives until the kernel has copied it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

/// In a process of its own: a thread that may make no system call.
#[test]
fn silent_process() {
    let Some(directory) = task(DIRECTORY) else { return };
    let logger = open(directory.as_ref());
    std::thread::spawn(move || {
        assert!(become_real_time());
        let writer = logger.writer();
        writer.prepare(Buffer::Main);
        println!("prepared");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        swear_off_system_calls();
        for number in 0..N_RECORDS {
            writer.write(Buffer::Main, Priority::Info, b"", &number.to_ne_bytes());
        }
        writer.write(Buffer::Main, Priority::Info, b"", LAST);
        // The regular end of a thread frees its stack, which is a forbidden system call.
        // SAFETY: ends this thread, and runs nothing of it any more.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    });
    loop {
        std::thread::park();
    }
}

#[test]
fn a_real_time_thread_wakes_no_follower() {
    if !std::thread::spawn(become_real_time).join().unwrap() {
        eprintln!("not tested: no real-time priority to be had");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    say(&open(path), "there before");
    let mut process = Process::start("silent_process", &[(DIRECTORY, path.to_str().unwrap())]);
    process.wait_for("prepared");
    // A follower seems to sleep, and has asked for wake-ups.
    let mut other = Reader::open(path).unwrap();
    while other.next_item().is_some() {}
    for _ in 0..3 {
        other.wait(Some(Duration::from_millis(2))).unwrap();
    }
    process.say("go");
    let (mut reader, mut n_records, mut last) = (Reader::open(path).unwrap(), 0, Vec::new());
    while last != LAST {
        assert!(!process.has_ended(), "it has made a system call");
        while let Some(item) = reader.next_item() {
            let Item::Record(record) = item else { panic!("{item:?}") };
            let Content::Text { message, .. } = record.content else { panic!("{record:?}") };
            (last, n_records) = (message.to_vec(), n_records + 1);
        }
        reader.wait(Some(Duration::from_millis(50))).unwrap();
    }
    assert_eq!(n_records, N_RECORDS + 2);
}

/// A follower leaves the ring alone at first, and is the last process that has the file open.
#[test]
fn records_of_a_fast_real_time_thread_are_read_after_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let logger = open(path);
    let (write, numbers) = std::sync::mpsc::channel();
    let (tell, is_told) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let is_real_time = become_real_time();
        let writer = logger.writer();
        for n_records in numbers {
            for _ in 0..n_records {
                writer.write(Buffer::Main, Priority::Info, b"", b"words");
            }
            writer.write(Buffer::Main, Priority::Info, b"", LAST);
            tell.send(is_real_time).unwrap();
        }
    });
    write.send(10).unwrap();
    if !is_told.recv().unwrap() {
        eprintln!("not tested: no real-time priority to be had");
        return;
    }
    let mut reader = Reader::open(path).unwrap();
    let mut read_to_last = || {
        let (mut n_known, mut is_there) = (0, false);
        for _ in 0..200 {
            while let Some(item) = reader.next_item() {
                match item {
                    Item::Record(record) => {
                        n_known += 1;
                        is_there |= matches!(record.content, Content::Text { message: LAST, .. });
                    }
                    Item::Lost(lost) => {
                        let Loss::Overwritten { n_records, .. } = lost.loss else {
                            panic!("{lost:?}")
                        };
                        n_known += n_records;
                    }
                }
            }
            // At least once: the reader follows from then on.
            reader.wait(Some(Duration::from_millis(50))).unwrap();
            if is_there {
                break;
            }
        }
        (n_known, is_there)
    };
    assert_eq!(read_to_last(), (11, true));
    write.send(20_000).unwrap();
    is_told.recv().unwrap();
    for file in std::fs::read_dir(path).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(read_to_last(), (20_001, true));
    drop(write);
    writer.join().unwrap();
}
