//! An entry as `logcat --proto` prints it: Android's `LogcatEntryProto`, after its size.
//!
//! ```text
//!   u64 bytes, little-endian; then fields, each with its number:
//!   1 seconds  2 nanoseconds  3 priority  4 uid  5 pid  6 tid  7 tag, NUL  8 message
//!   9 program, if it is known
//! ```

use crate::entry::{Entry, Shown};

const VARINT: u64 = 0;
const BYTES: u64 = 2;

/// Encodes an entry.
pub fn encode(entry: &Entry, shown: &Shown<'_>, program: Option<&str>) -> Vec<u8> {
    let mut fields = Vec::new();
    let numbers = [
        entry.wall.as_secs(),
        u64::from(entry.wall.subsec_nanos()),
        // A level without a name is UNKNOWN.
        u64::from(Some(shown.level.0).filter(|level| *level <= 8).unwrap_or(0)),
        // Signed fields of 32 bits: a larger number becomes a negative one of 64 bits.
        entry.uid as i32 as u64,
        entry.pid as i32 as u64,
        entry.tid as i32 as u64,
    ];
    for (number, value) in (1..).zip(numbers) {
        varint(&mut fields, number << 3 | VARINT);
        varint(&mut fields, value);
    }
    let tag = [&shown.tag, &b"\0"[..]].concat();
    let texts = [Some(&tag[..]), Some(&shown.message), program.map(str::as_bytes)];
    for (number, text) in (7..).zip(texts) {
        let Some(text) = text else { continue };
        varint(&mut fields, number << 3 | BYTES);
        varint(&mut fields, text.len() as u64);
        fields.extend(text);
    }
    [&(fields.len() as u64).to_le_bytes()[..], &fields].concat()
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Body, Buffer, Level};
    use std::time::Duration;

    #[test]
    fn an_entry_has_these_bytes() {
        let entry = Entry {
            buffer: Buffer::Main,
            wall: Duration::new(300, 1),
            monotonic: Duration::ZERO,
            uid: 1000,
            pid: 127,
            tid: 128,
            body: Body::Event { tag: 0, payload: Vec::new() },
        };
        let shown = Shown { level: Level::WARN, tag: b"Tag"[..].into(), message: b"hi"[..].into() };
        let fields =
            b"\x08\xac\x02\x10\x01\x18\x05\x20\xe8\x07\x28\x7f\x30\x80\x01\x3a\x04Tag\0\x42\x02hi";
        let with = |more: &[u8]| {
            let size = (fields.len() + more.len()) as u64;
            [&size.to_le_bytes(), &fields[..], more].concat()
        };
        assert_eq!(encode(&entry, &shown, None), with(b""));
        assert_eq!(encode(&entry, &shown, Some("app")), with(b"\x4a\x03app"));
        let unknown = Shown { level: Level(9), ..shown };
        assert_eq!(encode(&entry, &unknown, None)[8 + 6], 0);
        let huge = Entry { uid: u32::MAX, ..entry };
        let minus_one = b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(encode(&huge, &unknown, None)[8 + 7..][..11], minus_one[..]);
    }
}
