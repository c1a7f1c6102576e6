//! Programs that tests run, and where the class library is.

use std::path::Path;
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let script = root.join("scripts/vm-library");
    succeed(Command::new(script).arg("-d").arg(root.join("target/vm")).arg(wanted))
}
