//! The process of a record, the permissions of a log, and the files of dead processes.

mod support;

use baton_log::{Buffer, Item, N_BUFFERS, Options, Priority, Reader, Settings, Voucher, reclaim};
use rustix::fs::Mode;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use support::{Log, Process, files, in_a_child, messages, open, say, task, tell, wait_to_be_ended};

const DIRECTORY: &str = "LOG_OWNERS_DIRECTORY";
const CHILD: &str = "LOG_OWNERS_CHILD";

/// Logs in a process of its own. With a child, it leaves one that has executed no program.
#[test]
fn another() {
    let Some(directory) = task(DIRECTORY) else { return };
    say(&open(directory.as_ref()), "gone");
    let logger = open(directory.as_ref());
    say(&logger, "here");
    if task(CHILD).is_some() {
        // SAFETY: the child waits and ends. It outlives its parent.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // From here on the parent may be killed: the child has done everything that a child
            // does at its beginning.
            tell(b"logged\n");
            wait_to_be_ended();
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
    } else {
        tell(b"logged\n");
    }
    wait_to_be_ended();
}

fn start_another(directory: &Path, more: &[(&str, &str)]) -> Process {
    let directory = (DIRECTORY, directory.to_str().unwrap());
    let mut process = Process::start("another", &[&[directory], more].concat());
    process.wait_for("logged");
    process
}

fn last(reader: &mut Reader) -> (u32, Voucher, String) {
    let mut found = None;
    while let Some(Item::Record(record)) = reader.next_item() {
        found = Some((record.origin.process, record.origin.voucher, record.origin.program.clone()));
    }
    found.unwrap()
}

#[test]
fn the_kernel_vouches_for_a_process_that_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let process = start_another(directory.path(), &[]);
    let number = process.number();
    let early = &mut Reader::open(directory.path()).unwrap();
    let (seen, voucher, program) = last(early);
    assert_eq!((seen, voucher), (number, Voucher::Kernel));
    assert!(program.starts_with("owners"), "{program}");
    process.end();
    let late = &mut Reader::open(directory.path()).unwrap();
    assert_eq!(last(late), (number, Voucher::Writer, program));
}

#[test]
fn a_process_that_reads_its_own_log_is_still_vouched_for() {
    let directory = tempfile::tempdir().unwrap();
    let logger = open(directory.path());
    say(&logger, "ours");
    drop(Reader::open(directory.path()).unwrap());
    reclaim(directory.path()).unwrap();
    // Another process asks, since the kernel does not name this process to itself.
    let name = files(directory.path()).remove(0);
    let inode = std::fs::metadata(directory.path().join(name)).unwrap().ino();
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let ours = format!(" {} ", std::process::id());
    let of_process = |line: &&str| line.contains("POSIX") && line.contains(&ours);
    let held = locks.lines().filter(of_process).any(|line| line.contains(&format!(":{inode} ")));
    assert!(held, "{locks}");
}

#[test]
fn a_file_that_others_can_write_is_nobodys() {
    let directory = tempfile::tempdir().unwrap();
    say(&open(directory.path()), "forged?");
    let path = directory.path().join(&files(directory.path())[0]);
    for (mode, n_messages) in [(0o602, 0), (0o620, 0), (0o644, 1)] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(
            messages(&mut Reader::open(directory.path()).unwrap()).len(),
            n_messages,
            "{mode:o}"
        );
    }
}

#[test]
fn files_that_only_look_like_a_log_are_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    say(&open(path), "real");
    let real = &files(path)[0];
    std::os::unix::fs::symlink(path.join(real), path.join("1-1")).unwrap();
    std::fs::create_dir(path.join("1-2")).unwrap();
    std::fs::write(path.join("1-3"), "short").unwrap();
    std::fs::write(path.join("1-4"), [0; 200_000]).unwrap();
    std::fs::hard_link(path.join(real), path.join("1-5")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path.join("1-6"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(messages(&mut Reader::open(path).unwrap()), ["real"]);
}

#[test]
fn readers_of_the_directory_may_read_its_files() {
    for (of_directory, of_files) in
        [(0o700, 0o600), (0o750, 0o640), (0o3733, 0o600), (0o3773, 0o640), (0o1777, 0o644)]
    {
        let log = Log::with_mode(of_directory);
        let path = log.path();
        say(&open(path), "");
        let mode = std::fs::metadata(path.join(&files(path)[0])).unwrap().mode() & 0o777;
        assert_eq!(mode, of_files, "{of_directory:o}");
    }
}

#[test]
fn a_directory_where_anybody_can_replace_files_is_not_used() {
    let log = Log::with_mode(0o777);
    let logger = open(log.path());
    say(&logger, "");
    assert_eq!(logger.unlogged(Buffer::Main), 1);
}

/// Changes this process's user to one without rights.
fn become_nobody() {
    const NOBODY: u32 = 65534;
    // SAFETY: only changes the ids of this process.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!((libc::setgid(NOBODY), libc::setuid(NOBODY)), (0, 0));
    }
}

#[test]
fn users_share_a_log_that_one_of_them_reads() {
    if !rustix::process::geteuid().is_root() {
        // Only root can change its user.
        return;
    }
    let log = Log::with_mode(0o3733);
    let path = log.path();
    say(&open(path), "of root");
    let logger = open(path);
    let writer = logger.writer();
    in_a_child(|| {
        become_nobody();
        writer.write(Buffer::Main, Priority::Info, b"", b"of nobody");
        assert_eq!(logger.unlogged(Buffer::Main), 0);
        assert_eq!(Reader::open(path).err(), Some(rustix::io::Errno::ACCESS));
        let names = || std::fs::read_dir(path).map(|_| ());
        assert!(names().is_err());
    });
    let mut reader = Reader::open(path).unwrap();
    let mut users = Vec::new();
    while let Some(Item::Record(record)) = reader.next_item() {
        users.push(record.origin.user);
    }
    assert_eq!(users, [0, 65534]);
    let theirs = files(path)
        .into_iter()
        .find(|name| std::fs::metadata(path.join(name)).unwrap().uid() == 65534);
    let theirs = path.join(theirs.unwrap());
    let ours = path.join(&files(path)[0]);
    in_a_child(|| {
        become_nobody();
        assert!(std::fs::OpenOptions::new().write(true).open(&theirs).is_ok());
        assert!(std::fs::File::open(&ours).is_err() || ours == theirs);
    });
}

#[test]
fn a_change_of_user_takes_effect_with_a_new_logger() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let log = Log::with_mode(0o3733);
    let path = log.path();
    in_a_child(|| {
        say(&open(path), "as root");
        become_nobody();
        say(&open(path), "as nobody");
    });
    let mut reader = Reader::open(path).unwrap();
    let mut users = Vec::new();
    while let Some(Item::Record(record)) = reader.next_item() {
        users.push(record.origin.user);
    }
    assert_eq!(users, [0, 65534]);
}

fn set_budget(path: &Path, budget_bytes: u64) {
    Settings { ring_bytes: [1 << 16; N_BUFFERS], budget_bytes }.write(path).unwrap();
}

#[test]
fn dead_processes_keep_their_budget_and_live_ones_everything() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    set_budget(path, u64::MAX);
    let logger = Options::new().directory(path).ring_bytes([1 << 20; N_BUFFERS]).open();
    say(&logger, "alive");
    let living = files(path);
    let alive = start_another(path, &[]);
    for _ in 0..3 {
        start_another(path, &[]).end();
    }
    // One logger of each process has ended before the process, and has left its file.
    let n_files = files(path).len();
    assert_eq!(n_files, 1 + 2 * 4);
    assert_eq!(reclaim(path), Ok(0));
    let one_bytes =
        std::fs::metadata(path.join(files(path).last().unwrap())).unwrap().blocks() * 512;
    let most_bytes = 3 * one_bytes.min(100_000);
    set_budget(path, most_bytes);
    assert!(reclaim(path).unwrap() > 0);
    let left = files(path);
    assert!((3..=5).contains(&left.len()) && left.contains(&living[0]), "{left:?}");
    set_budget(path, 0);
    reclaim(path).unwrap();
    let number = format!("{}-", alive.number());
    let left = files(path);
    assert_eq!(left.len(), 2);
    assert!(
        left.contains(&living[0]) && left.iter().any(|name| name.starts_with(&number)),
        "{left:?}"
    );
    alive.end();
    assert_eq!(reclaim(path), Ok(1));
}

#[test]
fn a_child_does_not_keep_its_parents_file_alive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    set_budget(path, 0);
    let mut process = start_another(path, &[(CHILD, "1")]);
    process.kill();
    reclaim(path).unwrap();
    assert_eq!(files(path), [""; 0]);
}
