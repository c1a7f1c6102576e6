//! The layout of a record in a ring, in native byte order, at a multiple of 8:
//!
//! ```text
//!   0  stamp                      8
//!   8  kind, priority, sequence (48 bits, above them)
//!  16  thread   4
//!  20  bytes of what follows 2, of the tag among them 2
//!  24  tag, message; or event tag 4, payload; or a sample's two clocks; a gap's mean
//!      nothing
//! ```

use crate::buffer::Priority;
use crate::moment::Sample;

/// Bytes before the tag.
pub(crate) const HEADER_BYTES: usize = 24;
/// The most payload bytes of one of Android's logger entries.
pub const MAX_PAYLOAD_BYTES: usize = 4068;
/// The most bytes of tag and message together. An entry has a priority and two zero bytes beside
/// them.
pub const MAX_TEXT_BYTES: usize = MAX_PAYLOAD_BYTES - 3;
/// The most bytes of a record.
pub(crate) const MAX_RECORD_BYTES: usize = record_bytes(MAX_PAYLOAD_BYTES);
/// The bytes of a sample's record.
pub(crate) const SAMPLE_RECORD_BYTES: usize = record_bytes(SAMPLE_BYTES);
const SAMPLE_BYTES: usize = 16;
/// Bits of a record's number in its ring. At full speed the numbers repeat after months.
const SEQUENCE_BITS: u32 = 48;
const MARK_BITS: u32 = 64 - SEQUENCE_BITS;
pub(crate) const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

const TEXT: u8 = 1;
const EVENT: u8 = 2;
const SAMPLE: u8 = 3;
const GAP: u8 = 4;

/// Bytes of a record with this many bytes of tag and message, or of payload.
#[inline]
pub(crate) const fn record_bytes(bytes: usize) -> usize {
    (HEADER_BYTES + bytes + 7) & !7
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text(Priority),
    Event,
    Sample,
    /// Unused room before the end of a page.
    Gap,
}

impl Kind {
    #[inline]
    fn numbers(self) -> [u8; 2] {
        match self {
            Kind::Text(priority) => [priority as u8, TEXT],
            Kind::Event => [0, EVENT],
            Kind::Sample => [0, SAMPLE],
            Kind::Gap => [0, GAP],
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub stamp: u64,
    /// 48 bits. A sample and a gap have the number of the next record.
    pub sequence: u64,
    pub kind: Kind,
    pub thread: u32,
    /// Bytes after the header.
    pub bytes: u16,
    /// Bytes of them that are the tag.
    pub tag_bytes: u16,
}

impl Header {
    #[inline]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let [priority, kind] = self.kind.numbers();
        // The shift drops bits beyond the 48 of a number.
        let number = self.sequence << MARK_BITS | u64::from(priority) << 8 | u64::from(kind);
        let sizes = u64::from(self.bytes) << 32 | u64::from(self.tag_bytes) << 48;
        let last = u64::from(self.thread) | sizes;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&self.stamp.to_le_bytes());
        header[8..16].copy_from_slice(&number.to_le_bytes());
        header[16..].copy_from_slice(&last.to_le_bytes());
        header
    }

    /// Decodes a header. `None`: no writer of this crate makes such a header.
    pub fn decode(header: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let (stamp, number, last) = (word(0), word(8), word(16));
        let (bytes, tag_bytes) = ((last >> 32) as u16, (last >> 48) as u16);
        let priority = (number >> 8) as u8;
        let kind = match number as u8 {
            TEXT => Kind::Text(Priority::numbered(priority)?),
            EVENT => Kind::Event,
            SAMPLE => Kind::Sample,
            GAP => Kind::Gap,
            _ => return None,
        };
        let header = Header {
            stamp,
            sequence: number >> MARK_BITS,
            kind,
            thread: last as u32,
            bytes,
            tag_bytes,
        };
        header.is_sound().then_some(header)
    }

    fn is_sound(&self) -> bool {
        let (bytes, tag_bytes) = (usize::from(self.bytes), usize::from(self.tag_bytes));
        match self.kind {
            Kind::Text(_) => bytes <= MAX_TEXT_BYTES && tag_bytes <= bytes,
            Kind::Event => (4..=MAX_PAYLOAD_BYTES).contains(&bytes) && tag_bytes == 4,
            Kind::Sample => bytes == SAMPLE_BYTES && tag_bytes == 0,
            Kind::Gap => bytes <= MAX_PAYLOAD_BYTES && tag_bytes == 0,
        }
    }

    /// Bytes of the whole record.
    #[inline]
    pub fn record_bytes(&self) -> usize {
        record_bytes(usize::from(self.bytes))
    }
}

/// Encodes the record of a sample, with the number of the next record.
pub(crate) fn encode_sample(sample: &Sample, sequence: u64) -> [u8; SAMPLE_RECORD_BYTES] {
    let header = Header {
        stamp: sample.stamp,
        sequence,
        kind: Kind::Sample,
        thread: 0,
        bytes: SAMPLE_BYTES as u16,
        tag_bytes: 0,
    };
    let mut bytes = [0; SAMPLE_RECORD_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    bytes[HEADER_BYTES..][..8].copy_from_slice(&sample.monotonic_ns.to_le_bytes());
    bytes[HEADER_BYTES + 8..].copy_from_slice(&sample.wall_ns.to_le_bytes());
    bytes
}

/// Encodes the header of a gap, with the number of the next record. `bytes`: a multiple of 8, and
/// at least a header.
pub(crate) fn encode_gap(bytes: usize, sequence: u64) -> [u8; HEADER_BYTES] {
    let left = (bytes - HEADER_BYTES) as u16;
    Header { stamp: 0, sequence, kind: Kind::Gap, thread: 0, bytes: left, tag_bytes: 0 }.encode()
}

/// Decodes the sample of a record with this stamp and these bytes.
pub(crate) fn decode_sample(stamp: u64, bytes: &[u8]) -> Sample {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    Sample { stamp, monotonic_ns: word(0), wall_ns: word(8) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: Header = Header {
        stamp: 0x0123_4567_89ab_cdef,
        sequence: SEQUENCE_MASK - 1,
        kind: Kind::Text(Priority::Warn),
        thread: u32::MAX,
        bytes: 100,
        tag_bytes: 7,
    };

    #[test]
    fn headers_come_back() {
        let texts = [Kind::Text(Priority::Verbose), Kind::Text(Priority::Fatal)];
        for kind in texts.into_iter().chain([Kind::Event, Kind::Sample, Kind::Gap]) {
            let (bytes, tag_bytes) = match kind {
                Kind::Text(_) => (MAX_TEXT_BYTES as u16, MAX_TEXT_BYTES as u16),
                Kind::Event => (MAX_PAYLOAD_BYTES as u16, 4),
                Kind::Sample => (SAMPLE_BYTES as u16, 0),
                Kind::Gap => (MAX_PAYLOAD_BYTES as u16, 0),
            };
            let header = Header { kind, bytes, tag_bytes, ..SOUND };
            assert_eq!(Header::decode(&header.encode()), Some(header));
            assert!(header.record_bytes() <= MAX_RECORD_BYTES);
        }
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        let too_long = MAX_TEXT_BYTES as u16 + 1;
        for header in [
            Header { bytes: too_long, ..SOUND },
            Header { tag_bytes: 101, ..SOUND },
            Header { kind: Kind::Event, bytes: 3, tag_bytes: 4, ..SOUND },
            Header { kind: Kind::Event, tag_bytes: 5, ..SOUND },
            Header { kind: Kind::Sample, tag_bytes: 0, ..SOUND },
            Header { kind: Kind::Gap, tag_bytes: 1, ..SOUND },
            Header { kind: Kind::Gap, bytes: MAX_PAYLOAD_BYTES as u16 + 1, tag_bytes: 0, ..SOUND },
        ] {
            assert_eq!(Header::decode(&header.encode()), None, "{header:?}");
        }
        for (at, value) in [(9, 9), (9, 0), (8, 0), (8, 5)] {
            let mut bytes = SOUND.encode();
            bytes[at] = value;
            assert_eq!(Header::decode(&bytes), None, "{at} {value}");
        }
    }
}
