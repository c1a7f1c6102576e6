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

/// Compiles programs against the class library. Returns the dex file, in a directory in which their
/// classes lie, too.
pub fn build(sources: &[PathBuf], directory: &Path) -> PathBuf {
    build_with("", sources, directory)
}

/// Compiles programs against the class library and a class path.
pub fn build_with(class_path: &str, sources: &[PathBuf], directory: &Path) -> PathBuf {
    let jars = library("java");
    let (dx, classes) = jars.split_once(':').expect("two jars");
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "-source", "8", "-target", "8", "-bootclasspath", classes]);
    succeed(javac.args(["-cp", class_path, "-d"]).arg(directory).args(sources));
    let dex = directory.join("programs.dex");
    let mut command = Command::new("java");
    command.args(["-cp", dx, "com.android.dx.command.Main", "--dex", "--min-sdk-version=26"]);
    succeed(command.arg(format!("--output={}", dex.display())).arg(directory));
    dex
}
