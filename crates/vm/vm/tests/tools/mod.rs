//! Programs that tests run, and where the class library is.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The output of a command.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: is a JDK installed?"))
}

/// The output of a command that has to end well.
pub fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// What the script for the class library says.
pub fn library(wanted: &str) -> String {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = above.find(|it| it.join("scripts/vm-library").exists()).expect("the workspace");
    let script = root.join("scripts/vm-library");
    succeed(Command::new(script).arg("-d").arg(root.join("target/vm")).arg(wanted))
}

/// Files of a directory with an extension, sorted.
pub fn files(of: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(of).expect("the tests are there");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect();
    paths.sort();
    paths
}

/// Compiles programs against the class library, and against a class path. Returns the dex file, in
/// a directory in which their classes lie, too.
pub fn build(sources: &[PathBuf], class_path: &str, directory: &Path) -> PathBuf {
    let jars = library("java");
    let (_, classes) = jars.split_once(':').expect("two jars");
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "-encoding", "UTF-8", "-source", "8", "-target", "8"]);
    javac.args(["-bootclasspath", classes, "-cp", class_path, "-d"]).arg(directory);
    succeed(javac.args(sources));
    let dex = directory.join("programs.dex");
    translate(directory, &dex);
    dex
}

/// Makes a dex file, or an archive with one, of a directory's or an archive's classes.
pub fn translate(classes: &Path, dex: &Path) {
    let jars = library("java");
    let (dx, _) = jars.split_once(':').expect("two jars");
    let mut command = Command::new("java");
    command.args(["-cp", dx, "com.android.dx.command.Main", "--dex", "--min-sdk-version=26"]);
    succeed(command.arg(format!("--output={}", dex.display())).arg(classes));
}
