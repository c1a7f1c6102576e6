//! The lines that say from which buffer the next ones are.

use crate::entry::Buffer;

/// Which of them are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Where a buffer's first entry comes.
    Beginnings,
    /// Wherever another buffer than before comes (`-D`).
    Switches,
}

/// What has been printed so far.
#[derive(Debug)]
pub struct Dividers {
    which: Which,
    last: Option<Buffer>,
    begun: [bool; Buffer::ALL.len()],
}

impl Dividers {
    /// At the beginning of the output.
    pub fn new(which: Which) -> Dividers {
        Dividers { which, last: None, begun: [false; Buffer::ALL.len()] }
    }

    /// The line before an entry of this buffer.
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
