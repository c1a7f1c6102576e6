//! Programs of Java machines: where `bench/vm/build` has put them, and what they print.

use crate::child::beside;
use crate::report::RowKey;
use baton_shm::clock::now_ns;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;

/// A Java machine: `baton dalvikvm` with one of its collectors, or the JDK's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Machine {
    /// With the collector that stops the world.
    BatonMarkSweep,
    /// With the collector that counts.
    BatonCounting,
    /// With a heap that is not full before the end.
    BatonNone,
    /// The JDK's interpreter.
    JavaXint,
    /// The JDK with its compilers.
    Java,
    /// The JDK with a collector that runs beside the program.
    JavaZgc,
    JavaShenandoah,
}

/// The machines that interpret.
pub(crate) const INTERPRETERS: [Machine; 3] =
    [Machine::BatonMarkSweep, Machine::BatonCounting, Machine::JavaXint];

impl Machine {
    pub fn is_ours(self) -> bool {
        matches!(self, Machine::BatonMarkSweep | Machine::BatonCounting | Machine::BatonNone)
    }

    /// The beginning of a command that runs a class of bench/vm, with more options.
    ///
    /// # Errors
    /// A program is not there.
    pub fn command(self, options: &[&str]) -> io::Result<Command> {
        let option: &[&str] = match self {
            Machine::BatonMarkSweep | Machine::BatonNone => &["-Xgc:mark-sweep"],
            Machine::BatonCounting => &["-Xgc:counting"],
            Machine::JavaXint => &["-Xint"],
            Machine::Java => &[],
            Machine::JavaZgc => &["-XX:+UseZGC"],
            Machine::JavaShenandoah => &["-XX:+UseShenandoahGC"],
        };
        let (mut command, classes) = match self.is_ours() {
            true => (dalvikvm()?, "vm-kernels.dex"),
            false => (Command::new("java"), "vm-kernels.jar"),
        };
        command.args(option).args(options).arg("-cp").arg(program(classes)?);
        Ok(command)
    }

    /// The row of a case.
    pub(crate) fn key(self, case: &'static str) -> RowKey {
        RowKey::new(self.into(), case).heading(case)
    }

    /// As ratios name it.
    pub fn word(self) -> String {
        <&str>::from(self).replace('-', "_")
    }
}

/// The beginning of a command for `baton dalvikvm`.
///
/// # Errors
/// The program is not there.
pub fn dalvikvm() -> io::Result<Command> {
    let mut command = Command::new(baton()?);
    command.arg("dalvikvm");
    Ok(command)
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

/// Runs a program, and returns what it prints, on standard error last.
///
/// # Errors
/// The program does not start, or fails: with the last line that it says, but for the calls of a
/// stack trace.
pub fn run(mut command: Command) -> io::Result<[String; 2]> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        io::Error::other(format!("{}: {error}", command.get_program().display()))
    })?;
    let [printed, said] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if !output.status.success() {
        let last = said.lines().rfind(|line| !line.starts_with(char::is_whitespace));
        let last = last.unwrap_or("nothing");
        return Err(io::Error::other(format!("it ends with {}, saying {last}", output.status)));
    }
    Ok([printed, said])
}

/// The numbers that a program prints, one in a line.
pub fn numbers(printed: &str) -> io::Result<Vec<u64>> {
    printed.lines().map(number).collect()
}

/// A number that a program prints.
pub fn number<N: FromStr>(word: &str) -> io::Result<N> {
    word.trim().parse().map_err(|_| misunderstood(word))
}

/// From the start of a process to its `main`, whose time it prints, in nanoseconds.
pub fn until_main(command: Command) -> io::Result<u64> {
    let before_ns = now_ns();
    let [printed, _] = run(command)?;
    Ok(number::<u64>(&printed)?.saturating_sub(before_ns))
}

/// An error about a line that a program should not print.
pub fn misunderstood(line: &str) -> io::Error {
    io::Error::other(format!("it says {line:?}"))
}
