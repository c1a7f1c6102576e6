//! Messages to the process that started this one.

use std::io::{self, Write};

/// Sends a line to the process that started this one.
pub fn say(line: &str) {
    let mut out = io::stdout().lock();
    // If the starter has ended, this process ends too.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
