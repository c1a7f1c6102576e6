//! Programs of Java machines: where `bench/vm/build` has put them, and what they print.

use crate::report::RowKey;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use strum::VariantArray;

/// A virtual machine that interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Machine {
    /// `baton dalvikvm`, with the collector that stops the world.
    BatonMarkSweep,
    /// `baton dalvikvm`, with the collector that counts.
    BatonCounting,
    /// The JDK's interpreter.
    JavaXint,
}

impl Machine {
    /// A program on this machine, of a dex file or a jar.
    ///
    /// # Errors
    /// A program is not there.
    pub fn command(self) -> io::Result<Command> {
        let collector = match self {
            Machine::BatonMarkSweep => "-Xgc:mark-sweep",
            Machine::BatonCounting => "-Xgc:counting",
            Machine::JavaXint => {
                let mut command = Command::new("java");
                command.args(["-Xint", "-cp"]).arg(program("vm-kernels.jar")?);
                return Ok(command);
            }
        };
        let mut command = Command::new(baton()?);
        command.args(["dalvikvm", collector, "-cp"]).arg(program("vm-kernels.dex")?);
        Ok(command)
    }

    /// The row of a case.
    pub(crate) fn key(self, case: &'static str) -> RowKey {
        RowKey::new(self.into(), case).heading(case.to_owned())
    }
}

/// A program that `bench/vm/build` builds.
///
/// # Errors
/// The program is not there.
pub fn program(name: &str) -> io::Result<PathBuf> {
    beside(name, "`bench/vm/build` builds it")
}

/// The program `baton`.
///
/// # Errors
/// The program is not there.
pub fn baton() -> io::Result<PathBuf> {
    beside("baton", "`make build` builds it")
}

fn beside(name: &str, advice: &str) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    let missing = || io::Error::other(format!("{name} is not there: {advice}"));
    if path.exists() { Ok(path) } else { Err(missing()) }
}

/// Runs a program, and returns its output.
///
/// # Errors
/// The program does not start, or fails: with the last line that it says.
pub fn output(mut command: Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        io::Error::other(format!("{}: {error}", command.get_program().display()))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("nothing");
        return Err(io::Error::other(format!("it ends with {}, saying {last}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

/// An error about a line that a program should not print.
pub fn misunderstood(line: &str) -> io::Error {
    io::Error::other(format!("it says {line:?}"))
}
