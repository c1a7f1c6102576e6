//! The start of the machine in which a file was made.
//!
//! On a disk, files outlive the start of the machine in which they were made. The meaning of their
//! stamps, of CLOCK_MONOTONIC and of process numbers does not. So a reader of the present log skips
//! them, and a reader of the last log reads only them.

use std::fmt::{self, Display, Formatter};

pub(crate) const BOOT_BYTES: usize = 16;
/// The kernel's random id of the present start.
const CURRENT: &str = "/proc/sys/kernel/random/boot_id";

/// A start of the machine, as an id without order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Boot(pub [u8; BOOT_BYTES]);

impl Boot {
    /// The present start. Zero if the kernel does not tell its id.
    pub fn current() -> Boot {
        let text = std::fs::read_to_string(CURRENT).unwrap_or_default();
        Boot::parse(&text).unwrap_or(Boot([0; BOOT_BYTES]))
    }

    /// Parses hexadecimal digits, with hyphens anywhere.
    pub fn parse(text: &str) -> Option<Boot> {
        let digits: String = text.trim().chars().filter(|&letter| letter != '-').collect();
        let is_number =
            digits.len() == 2 * BOOT_BYTES && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = is_number.then(|| u128::from_str_radix(&digits, 16).ok()).flatten()?;
        Some(Boot(number.to_be_bytes()))
    }
}

impl Display for Boot {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_known_by_its_digits() {
        let boot = Boot::parse("e5998c18-84f7-4416-8e60-52881a2071dd\n").unwrap();
        assert_eq!(boot.to_string(), "e5998c1884f744168e6052881a2071dd");
        assert_eq!(Boot::parse(&boot.to_string()), Some(boot));
        for wrong in
            ["", "e5998c18", "+5998c1884f744168e6052881a2071dd", "x5998c1884f744168e6052881a2071dd"]
        {
            assert_eq!(Boot::parse(wrong), None, "{wrong}");
        }
    }
}
