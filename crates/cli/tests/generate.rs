//! `baton generate`: the files for packages.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

fn generate(what: &str, output: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    command.args(["generate", what, "--output"]).arg(output).output().unwrap()
}

fn files(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn each_command_that_help_names_has_a_page() {
    let directory = tempfile::tempdir().unwrap();
    assert!(generate("man", directory.path()).status.success());
    let pages = files(directory.path());
    let help = Command::new(env!("CARGO_BIN_EXE_baton")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    // A line that goes on begins with more spaces.
    let names = commands.lines().filter_map(|line| line.strip_prefix("  "));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"run"), "{help}");
    for name in names.into_iter().filter(|name| !name.is_empty() && *name != "help") {
        assert!(pages.contains(&format!("baton-{name}.1")), "{name}: {pages:?}");
    }
    assert!(!pages.contains("baton-generate.1"), "it is for packages alone");
}

#[test]
fn three_shells_have_completions() {
    let directory = tempfile::tempdir().unwrap();
    assert!(generate("completions", directory.path()).status.success());
    let expected = ["_baton", "baton.bash", "baton.fish"].map(str::to_owned);
    assert_eq!(files(directory.path()), BTreeSet::from(expected));
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    for what in ["man", "completions"] {
        let output = generate(what, Path::new("/nonexistent"));
        assert_eq!(output.status.code(), Some(1), "{what}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("baton: cannot write to /nonexistent: "), "{what}: {said}");
    }
}
