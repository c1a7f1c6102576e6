//! The lines that name the buffer of the following entries.

use crate::entry::Buffer;

/// The lines that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Before the first entry of each buffer.
    Beginnings,
    /// Before each entry of another buffer than the previous entry's (`-D`).
    Switches,
}

/// The lines that were printed so far.
#[derive(Debug)]
pub struct Dividers {
    which: Which,
    last: Option<Buffer>,
    begun: [bool; Buffer::ALL.len()],
}

impl Dividers {
    /// The state at the beginning of the output.
    pub fn new(which: Which) -> Dividers {
        Dividers { which, last: None, begun: [false; Buffer::ALL.len()] }
    }

    /// The line before an entry of this buffer, if one is due.
    pub fn before(&mut self, buffer: Buffer) -> Option<String> {
        if self.last.replace(buffer) == Some(buffer) {
            return None;
        }
        let begun = std::mem::replace(&mut self.begun[buffer as usize], true);
        let words = match (begun, self.which) {
            (false, _) => "beginning of",
            (true, Which::Switches) => "switch to",
            (true, Which::Beginnings) => return None,
        };
        Some(format!("--------- {words} {}\n", buffer.name()))
    }
}
