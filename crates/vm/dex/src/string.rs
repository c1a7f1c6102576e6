//! Java's modified UTF-8: zero takes two bytes, and each half of a surrogate pair takes three.

use std::fmt;

/// A string of a dex file. Bytes are well-formed modified UTF-8 without a zero byte.
///
/// Equal strings have equal bytes, so that bytes serve as keys of maps.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mutf8<'a>(&'a [u8]);

impl<'a> Mutf8<'a> {
    /// The bytes as a string.
    ///
    /// # Errors
    /// They are malformed: the index of the first wrong byte.
    pub fn new(bytes: &'a [u8]) -> Result<Mutf8<'a>, usize> {
        let mut at = 0;
        while at < bytes.len() {
            at += match decode(&bytes[at..]) {
                Some((_, n_bytes)) => n_bytes,
                None => return Err(at),
            };
        }
        Ok(Mutf8(bytes))
    }

    /// Bytes that `new` has accepted before.
    pub(crate) fn accepted(bytes: &'a [u8]) -> Mutf8<'a> {
        Mutf8(bytes)
    }

    /// The bytes, without the zero byte at the end.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The string as Rust's, which is possible without surrogates and zeros. Names are mostly so.
    pub fn to_str(self) -> Option<&'a str> {
        if self.0.windows(2).any(|pair| pair == [0xc0, 0x80]) {
            return None;
        }
        std::str::from_utf8(self.0).ok()
    }

    /// UTF-16 units: Java's `char`s.
    pub fn utf16(self) -> impl Iterator<Item = u16> + 'a {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (unit, n_bytes) = decode(rest)?;
            rest = &rest[n_bytes..];
            Some(unit)
        })
    }
}

/// UTF-16 units as modified UTF-8. A zero byte is added by whoever needs one.
pub fn encode(units: impl IntoIterator<Item = u16>) -> Vec<u8> {
    let mut to = Vec::new();
    for unit in units {
        match unit {
            1..=0x7f => to.push(unit as u8),
            0 | 0x80..=0x7ff => to.extend([0xc0 | (unit >> 6) as u8, 0x80 | (unit & 0x3f) as u8]),
            _ => to.extend([
                0xe0 | (unit >> 12) as u8,
                0x80 | (unit >> 6 & 0x3f) as u8,
                0x80 | (unit & 0x3f) as u8,
            ]),
        }
    }
    to
}

/// The first unit and its bytes: `None` at the end, and where the bytes are malformed.
fn decode(bytes: &[u8]) -> Option<(u16, usize)> {
    let low = |index: usize| {
        let byte = *bytes.get(index)?;
        (byte & 0xc0 == 0x80).then_some(u16::from(byte & 0x3f))
    };
    let first = u16::from(*bytes.first()?);
    match first {
        0x01..=0x7f => Some((first, 1)),
        0xc0..=0xdf => {
            let unit = (first & 0x1f) << 6 | low(1)?;
            (unit == 0 || unit >= 0x80).then_some((unit, 2))
        }
        0xe0..=0xef => {
            let unit = (first & 0x0f) << 12 | low(1)? << 6 | low(2)?;
            (unit >= 0x800).then_some((unit, 3))
        }
        _ => None,
    }
}

impl fmt::Display for Mutf8<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let characters = char::decode_utf16(self.utf16());
        for character in characters {
            fmt::Write::write_char(f, character.unwrap_or(char::REPLACEMENT_CHARACTER))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Mutf8<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_strings_come_back() {
        for (bytes, units) in [
            (&b"abc"[..], &[0x61, 0x62, 0x63][..]),
            (b"", &[]),
            (b"\xc0\x80", &[0]),
            (b"\xc3\xa9", &[0xe9]),
            (b"\xe2\x82\xac", &[0x20ac]),
            (b"\xed\xa0\xbd\xed\xb8\x80", &[0xd83d, 0xde00]),
            (b"\xed\xa0\xbd", &[0xd83d]),
        ] {
            let string = Mutf8::new(bytes).unwrap();
            assert_eq!(string.utf16().collect::<Vec<_>>(), units);
            assert_eq!(encode(units.iter().copied()), bytes);
        }
        assert_eq!(Mutf8(b"\xed\xa0\xbd\xed\xb8\x80!").to_string(), "\u{1f600}!");
        assert_eq!(Mutf8(b"\xc3\xa9").to_str(), Some("\u{e9}"));
        assert_eq!(Mutf8(b"\xc0\x80").to_str(), None);
    }

    #[test]
    fn malformed_strings_are_refused() {
        for (bytes, at) in [
            (&b"a\0"[..], 1),
            (b"\x80", 0),
            (b"\xc3", 0),
            (b"a\xc1\x81", 1),
            (b"\xe0\x80\xaf", 0),
            (b"\xe2\x82", 0),
            (b"ab\xf0\x9f\x98\x80", 2),
        ] {
            assert_eq!(Mutf8::new(bytes), Err(at), "{bytes:x?}");
        }
    }
}
