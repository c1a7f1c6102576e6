//! The bytes of an entry for Android's readers: `struct logger_entry` of liblog, version 4.
//!
//! ```text
//!   0  u16 payload bytes   u16 28 (this header)   i32 pid   u32 tid
//!   12 u32 seconds         u32 nanoseconds        u32 buffer   u32 uid
//!   28 text: level, tag NUL message NUL;   event: u32 number, values
//! ```
//!
//! All fields are little-endian, with no bytes between entries. There is no field for the monotonic
//! time.

use crate::entry::{Body, Buffer, Entry, Level};
use std::ops::Range;
use std::time::Duration;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 28;
/// The most bytes of a payload.
pub const MAX_PAYLOAD_BYTES: usize = 4068;
/// The most bytes of an entry, for which readers make room.
pub const MAX_ENTRY_BYTES: usize = 5 * 1024;

/// Why bytes are no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end within the entry.
    Short,
    /// No writer makes such a header or payload.
    Broken,
}

/// Encodes an entry. The end of a long payload is cut.
pub fn encode(entry: &Entry) -> Vec<u8> {
    let mut payload = match &entry.body {
        Body::Text { level, tag, message } => [&[level.0][..], tag, b"\0", message, b"\0"].concat(),
        Body::Event { tag, payload } => [&tag.to_le_bytes()[..], payload].concat(),
    };
    if payload.len() > MAX_PAYLOAD_BYTES {
        payload.truncate(MAX_PAYLOAD_BYTES);
        if matches!(entry.body, Body::Text { .. }) {
            payload[MAX_PAYLOAD_BYTES - 1] = 0;
        }
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
    out.extend((payload.len() as u16).to_le_bytes());
    out.extend((HEADER_BYTES as u16).to_le_bytes());
    let seconds = u32::try_from(entry.wall.as_secs()).unwrap_or(u32::MAX);
    let buffer = entry.buffer as u32;
    for word in [entry.pid, entry.tid, seconds, entry.wall.subsec_nanos(), buffer, entry.uid] {
        out.extend(word.to_le_bytes());
    }
    out.extend(payload);
    out
}

/// Reads entries that follow each other. Bytes that are no entry are skipped, as a ring buffer may
/// have overwritten a part of the first one.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    /// Begins at the first of these bytes.
    pub fn new(bytes: &'a [u8]) -> Entries<'a> {
        Entries { rest: bytes }
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        while self.rest.len() >= HEADER_BYTES {
            match decode(self.rest) {
                Ok((entry, n_bytes)) => {
                    self.rest = &self.rest[n_bytes..];
                    return Some(entry);
                }
                Err(_) => self.rest = &self.rest[1..],
            }
        }
        None
    }
}

/// Decodes one entry. Returns the number of its bytes, too.
///
/// # Errors
/// The bytes are no entry, or not all of one.
pub fn decode(bytes: &[u8]) -> Result<(Entry, usize), Malformed> {
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed::Short)?;
    let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let (payload_bytes, header_bytes) = (half(0), half(2));
    if header_bytes < HEADER_BYTES || header_bytes + payload_bytes > MAX_ENTRY_BYTES {
        return Err(Malformed::Broken);
    }
    let end = header_bytes + payload_bytes;
    let payload = bytes.get(header_bytes..end).ok_or(Malformed::Short)?;
    let buffer = u8::try_from(word(20)).ok().and_then(Buffer::numbered).ok_or(Malformed::Broken)?;
    let nanoseconds = Some(word(16)).filter(|nanoseconds| *nanoseconds < 1_000_000_000);
    let body = match buffer {
        Buffer::Events => event(payload),
        _ => text(payload),
    };
    let entry = Entry {
        buffer,
        wall: Duration::new(u64::from(word(12)), nanoseconds.ok_or(Malformed::Broken)?),
        monotonic: Duration::ZERO,
        uid: word(24),
        pid: word(4),
        tid: word(8),
        body: body.ok_or(Malformed::Broken)?,
    };
    Ok((entry, end))
}

fn event(payload: &[u8]) -> Option<Body> {
    let (tag, payload) = payload.split_first_chunk()?;
    Some(Body::Event { tag: u32::from_le_bytes(*tag), payload: payload.to_vec() })
}

fn text(payload: &[u8]) -> Option<Body> {
    let parts = Parts::find(payload)?;
    let (tag, message) = (payload[parts.tag].into(), payload[parts.message].into());
    Some(Body::Text { level: Level(payload[0]), tag, message })
}

/// The positions of tag and message in the payload of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The bytes after the level.
    pub tag: Range<usize>,
    /// The bytes after the tag and one byte.
    pub message: Range<usize>,
}

impl Parts {
    /// Finds both as Android does: the tag ends at a NUL or, if there is none, at the first byte
    /// that no tag has. `None`: the payload is too short for a level and two NULs.
    pub fn find(payload: &[u8]) -> Option<Parts> {
        let rest = payload.get(1..).filter(|_| payload.len() >= 3)?;
        let is_odd = |byte: &u8| !(b'!'..0x7f).contains(byte) || *byte == b':';
        let end = rest.iter().position(|&byte| byte == 0).or_else(|| rest.iter().position(is_odd));
        // Otherwise all bytes are the tag, and the last one becomes its NUL.
        let end = end.map_or(payload.len() - 1, |end| end + 1);
        let start = (end + 1).min(payload.len());
        let message = &payload[start..];
        let bytes = message.iter().position(|&byte| byte == 0);
        // The last byte of a message without a NUL becomes its NUL.
        let bytes = bytes.unwrap_or(message.len().saturating_sub(1));
        Some(Parts { tag: 1..end, message: start..start + bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(message: &str) -> Entry {
        Entry {
            buffer: Buffer::System,
            wall: Duration::new(1_710_000_000, 999_999_999),
            monotonic: Duration::ZERO,
            uid: 1000,
            pid: 12,
            tid: 13,
            body: Body::Text { level: Level::WARN, tag: b"Tag".into(), message: message.into() },
        }
    }

    #[test]
    fn entries_come_back() {
        let event = Body::Event { tag: 2722, payload: vec![0, 5, 0, 0, 0] };
        for entry in [entry("words"), Entry { buffer: Buffer::Events, body: event, ..entry("") }] {
            let bytes = encode(&entry);
            assert_eq!(decode(&bytes), Ok((entry, bytes.len())));
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end]), Err(Malformed::Short), "{end}");
            }
        }
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let bytes = encode(&entry(&"x".repeat(5000)));
        let (decoded, n_bytes) = decode(&bytes).unwrap();
        assert_eq!(n_bytes, HEADER_BYTES + MAX_PAYLOAD_BYTES);
        // A level, the tag, and two NULs.
        assert_eq!(decoded, entry(&"x".repeat(MAX_PAYLOAD_BYTES - 6)));
    }

    #[test]
    fn entries_are_found_behind_what_is_none() {
        let log = ["one", "two", "three"].map(|message| encode(&entry(message))).concat();
        let messages = |bytes: &[u8]| Entries::new(bytes).collect::<Vec<_>>();
        let all = ["one", "two", "three"].map(entry);
        assert_eq!(messages(&log), all);
        assert_eq!(messages(&log[3..]), all[1..]);
        assert_eq!(messages(&[&[28; 40][..], &log, &[0; 50]].concat()), all);
        assert_eq!(messages(&log[..log.len() - 1]), all[..2]);
    }
}
