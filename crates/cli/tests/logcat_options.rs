//! Rare options of `baton logcat`.

mod support;

use baton_log::{Buffer, Options, Priority};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use support::Log;

#[test]
fn files_of_another_id_are_emptied() {
    let log = Log::new();
    let file = log.path("file");
    let line = |id: &str| format!("logcat -d -v raw -f {} --id {id}", file.display());
    log.write(&["one".to_owned()]);
    // Entries from before any id was given stay.
    std::fs::write(&file, "kept\n").unwrap();
    std::fs::write(log.path("file.1"), "older\n").unwrap();
    let read = || std::fs::read_to_string(&file).unwrap();
    log.print(&line("7"));
    assert!(read().starts_with("kept\n"), "{}", read());
    log.print(&line("7"));
    assert!(read().starts_with("kept\n") && log.path("file.1").exists());
    log.print(&line("8"));
    assert_eq!(read(), "--------- beginning of main\none\n");
    assert!(!log.path("file.1").exists());
    assert_eq!(std::fs::read_to_string(log.path("file.id")).unwrap(), "8");
}

#[test]
fn entries_can_be_written_as_protocol_buffers() {
    let log = Log::new();
    log.print("log -p w -t Sensors three of them");
    let output = log.run("logcat -d --proto");
    let (size, entry) = output.stdout.split_first_chunk().unwrap();
    assert_eq!(u64::from_le_bytes(*size), entry.len() as u64);
    let end = b"\x3a\x08Sensors\0\x42\x0dthree of them\x4a\x05baton";
    assert!(entry.starts_with(b"\x08") && entry.ends_with(end), "{entry:?}");
}

#[test]
fn the_prune_list_is_always_empty() {
    let log = Log::new();
    log.print("log words");
    assert_eq!(log.print("logcat -p"), "\n");
    assert_eq!(log.run("logcat -P ~!").status.code(), Some(2));
    assert!(log.command(&["logcat", "-P", ""]).status().unwrap().success());
}

/// A directory on a disk survives a reboot. The test marks this one's files as another boot's.
#[test]
fn entries_of_the_previous_boot_are_shown() {
    let log = Log::new();
    log.write(&["one".to_owned(), "two".to_owned(), "three".to_owned()]);
    let is_ring = |name: &str| name.contains('-');
    for entry in std::fs::read_dir(log.path("log")).unwrap().flatten() {
        if is_ring(&entry.file_name().to_string_lossy()) {
            let file = std::fs::OpenOptions::new().write(true).open(entry.path()).unwrap();
            file.write_all_at(&[7; 16], 104).unwrap();
        }
    }
    log.write(&["now".to_owned()]);
    let head = "--------- beginning of main\n";
    assert_eq!(log.print("logcat -d -v raw"), format!("{head}now\n"));
    assert_eq!(log.print("logcat -L -v raw"), format!("{head}one\ntwo\nthree\n"));
    assert_eq!(log.print("logcat -L -v raw -t 1"), format!("{head}three\n"));
    assert_eq!(log.print("logcat -L -v raw -m 1"), format!("{head}one\n"));
    assert_eq!(log.print("logcat -L -b crash"), "");
}

#[test]
fn wrap_shows_entries_before_they_are_overwritten() {
    let log = Log::new();
    let mut command = log.command(&["logcat", "--wrap", "-v", "raw", "-t", "1"]);
    let mut sleeper = command.stdout(Stdio::piped()).spawn().unwrap();
    let logger = Options::new().directory(log.path("log")).open();
    let writer = logger.writer();
    while sleeper.try_wait().unwrap().is_none() {
        writer.write(Buffer::Main, Priority::Info, b"T", b"words");
        std::thread::yield_now();
    }
    let output = sleeper.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--------- beginning of main\nwords\n");
}
