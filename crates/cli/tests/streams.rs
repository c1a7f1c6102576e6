//! Standard output and standard error that take nothing: the exit code tells what a command could
//! not say.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const BATON: &str = env!("CARGO_BIN_EXE_baton");

fn baton(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(BATON);
    command.env("BATON_SOCKET", socket).args(arguments).stdin(Stdio::null());
    // No program here needs the interposer.
    command.env("BATON_PRELOAD_LIB", "/dev/null");
    command
}

/// A device on which no byte has room.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A pipe without a reader.
fn closed() -> OwnedFd {
    std::io::pipe().unwrap().1.into()
}

#[test]
fn a_message_that_has_no_room_changes_no_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("broker");
    for (arguments, code) in [
        (&["list"][..], 3),
        (&["wait", "echo", "--timeout", "0"], 3),
        (&["run", "--", "/nonexistent"], 127),
        (&["call", "echo", "1", "i32", "x"], 2),
        (&["nonsense"], 2),
    ] {
        for stderr in [Stdio::from(full()), Stdio::from(closed())] {
            let status = baton(&socket, arguments).stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(code), "{arguments:?}");
        }
    }
}

#[test]
fn help_that_has_no_room_is_a_failure() {
    let socket = Path::new("/nonexistent");
    for arguments in [&["--help"][..], &["help", "ps"], &["call", "--help"], &["--version"]] {
        let Output { status, stderr, .. } =
            baton(socket, arguments).stdout(full()).output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("baton: cannot write to standard output: "), "{said}");
        // The reader of a pipe may have seen enough.
        let output = baton(socket, arguments).stdout(closed()).output().unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    }
}

#[test]
fn a_server_whose_starter_has_ended_ends_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = baton(&directory.path().join("broker"), &["broker", "--serving"]);
    let Output { status, stderr, .. } = server.stdout(closed()).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), &said[..]), (Some(0), ""));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files are left");
}
