//! `baton bench` and `baton latency`: which program they execute, and what if there is none.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A copy of `baton` in a directory, with nothing beside it.
fn baton(directory: &Path) -> Command {
    let program = directory.join("baton");
    std::fs::hard_link(env!("CARGO_BIN_EXE_baton"), &program)
        .or_else(|_| std::fs::copy(env!("CARGO_BIN_EXE_baton"), &program).map(drop))
        .unwrap();
    let mut command = Command::new(program);
    command.env("PATH", directory.join("path"));
    command
}

/// A `baton-bench` that says where it lies and what it is told, and ends with 7.
fn put_bench(directory: &Path) {
    std::fs::create_dir_all(directory).unwrap();
    let program = directory.join("baton-bench");
    std::fs::write(&program, "#!/bin/sh\necho \"$0\"\nprintf '%s\\n' \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
}

fn lines(output: &Output) -> Vec<&str> {
    std::str::from_utf8(&output.stdout).unwrap().lines().collect()
}

#[test]
fn the_program_beside_baton_comes_before_the_one_on_path() {
    let directory = tempfile::tempdir().unwrap();
    let (beside, on_path) = (directory.path(), directory.path().join("path"));
    put_bench(&on_path);
    let own = |at: &Path| at.join("baton-bench").display().to_string();
    let output = baton(beside).args(["latency", "-a", "--help"]).output().unwrap();
    assert_eq!(lines(&output), [&own(&on_path), "latency", "-a", "--help"], "{output:?}");
    put_bench(beside);
    std::fs::remove_file(beside.join("baton")).unwrap();
    let output = baton(beside).args(["bench", "rpc", "--quick"]).output().unwrap();
    assert_eq!(lines(&output), [&own(beside), "rpc", "--quick"], "{output:?}");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_missing_program_is_named_with_what_to_build() {
    let directory = tempfile::tempdir().unwrap();
    for words in [&["bench", "rpc"][..], &["latency"]] {
        let mut command = baton(directory.path());
        let output = command.args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(127), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("baton-bench") && error.contains("cargo build"), "{error}");
        std::fs::remove_file(directory.path().join("baton")).unwrap();
    }
}
