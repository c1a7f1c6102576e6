//! Standard error.

use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard error. A line that standard error does not take is lost: the command
/// goes on, and its exit code tells the rest.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
