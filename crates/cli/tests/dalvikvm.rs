//! `baton dalvikvm` without a class library: what is wrong with the command line or with files.
//! Programs run in tests/vm/run.

use std::process::Command;

fn check(arguments: &[&str], code: i32, said: &str) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.dex"), b"dex\n038\0and nothing else").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_baton"))
        .arg("dalvikvm")
        .args(arguments)
        .current_dir(directory.path())
        .env("XDG_CACHE_HOME", directory.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(errors.contains(said), "{arguments:?}: {errors}");
}

#[test]
fn bad_input_gets_a_clear_error() {
    check(&["-Xmx1x", "Main"], 2, "no size");
    check(&["-unknown", "Main"], 2, "there is no option -unknown");
    check(&["-cp", "a.dex"], 2, "no class is named");
    check(&["Main"], 1, "scripts/vm-library");
    check(&["-Xbootclasspath:missing.dex", "Main"], 1, "missing.dex");
    check(&["-Xbootclasspath:bad.dex", "Main"], 1, "bad.dex");
}
