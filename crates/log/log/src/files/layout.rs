//! The layout of a process's file, in native byte order:
//!
//! ```text
//!   0        header: kind, process (as it says) and start of the machine in which it was made,
//!            number of rings, records that found no ring
//!   4096     table: 128 bytes for each ring; the writer's words are in a cache line of their own
//!   135168   rings, each at a page
//! ```
//!
//! An *archive* has the same layout, with the process number 0. Each of its rings was a ring of a
//! dead process and was never overwritten. It follows the previous ring without a gap, and its
//! entry says whose it was ([`ArchivedRing`]).
//!
//! **Invariant**: readers use numbers of a file only after this module has checked them.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::boot::{BOOT_BYTES, Boot};
use crate::moment::Source;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const MAX_RINGS: usize = 1024;
pub(crate) const RING_ENTRY_BYTES: usize = 128;
pub(crate) const TABLE_AT: usize = PAGE_BYTES;
/// The header and the table, which the process maps besides its rings.
pub(crate) const FRONT_BYTES: usize = TABLE_AT + MAX_RINGS * RING_ENTRY_BYTES;
/// The least bytes of a ring.
pub const MIN_RING_BYTES: usize = 64 * 1024;
/// The most bytes of a ring.
pub const MAX_RING_BYTES: usize = 1 << 30;

const MAGIC: u64 = u64::from_le_bytes(*b"batonlog");
const VERSION: u32 = 3;
const NAME_BYTES: usize = 16;

const VERSION_AT: usize = 8;
const SOURCE_AT: usize = 12;
const PROCESS_AT: usize = 16;
const NAME_AT: usize = 24;
pub(crate) const N_RINGS_AT: usize = 40;
/// Writers write here to wake followers. The value means nothing.
pub(crate) const NOTIFY_AT: usize = 44;
/// The number of threads that write and wake no follower.
pub(crate) const N_SILENT_AT: usize = 48;
/// Eight bytes for each buffer.
pub(crate) const UNLOGGED_AT: usize = 64;
const BOOT_AT: usize = UNLOGGED_AT + 8 * N_BUFFERS;
/// The bytes of the header that a reader reads.
pub(crate) const HEADER_BYTES: usize = BOOT_AT + BOOT_BYTES;

/// Offsets in the entry of a ring.
const OFFSET_AT: usize = 0;
const CAPACITY_AT: usize = 8;
const BUFFER_AT: usize = 16;
pub(crate) const BOUNDS_AT: usize = 64;
const RING_READ_BYTES: usize = 24;
/// Further offsets in the entry of an archive's ring.
const FORMER_PROCESS_AT: usize = 24;
const FORMER_RING_AT: usize = 28;
const FORMER_NUMBER_AT: usize = 32;
const FORMER_NAME_AT: usize = 40;
/// The bytes of an archive's entry that a reader reads.
pub(crate) const ARCHIVED_BYTES: usize = FORMER_NAME_AT + NAME_BYTES;

/// The header of a file, as its process wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub source: Source,
    pub process: u32,
    pub boot: Boot,
    /// The program's name as the kernel has it, filled up with zeros.
    pub name: [u8; NAME_BYTES],
    pub n_rings: usize,
    /// Threads that write and wake no follower.
    pub n_silent: u32,
    /// Records that found no ring, by buffer.
    pub unlogged: [u64; N_BUFFERS],
}

/// The place of a ring in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub buffer: Buffer,
    pub offset: u64,
    pub capacity: u64,
}

/// The former place of an archive's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchivedRing {
    pub process: u32,
    /// The second part of the file's name.
    pub number: u64,
    /// The number of the ring in that file.
    pub ring: u32,
    /// The program's name: see [`Header`].
    pub name: [u8; NAME_BYTES],
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn double_word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

impl Header {
    /// Whether the file is an archive.
    pub fn is_archive(&self) -> bool {
        self.process == 0
    }

    /// The first bytes of a new file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[VERSION_AT..][..4].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[SOURCE_AT..][..4].copy_from_slice(&(self.source as u32).to_ne_bytes());
        bytes[PROCESS_AT..][..4].copy_from_slice(&self.process.to_ne_bytes());
        bytes[NAME_AT..][..NAME_BYTES].copy_from_slice(&self.name);
        bytes[BOOT_AT..][..BOOT_BYTES].copy_from_slice(&self.boot.0);
        bytes[N_RINGS_AT..][..4].copy_from_slice(&(self.n_rings as u32).to_ne_bytes());
        bytes
    }

    /// Decodes a header. `None`: the file is of another kind or version.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let known = double_word(bytes, 0) == MAGIC && word(bytes, VERSION_AT) == VERSION;
        let unlogged = |buffer: usize| double_word(bytes, UNLOGGED_AT + 8 * buffer);
        known.then_some(Header {
            source: Source::numbered(word(bytes, SOURCE_AT))?,
            process: word(bytes, PROCESS_AT),
            boot: Boot(bytes[BOOT_AT..][..BOOT_BYTES].try_into().expect("so many bytes")),
            name: bytes[NAME_AT..][..NAME_BYTES].try_into().expect("so many bytes"),
            n_rings: (word(bytes, N_RINGS_AT) as usize).min(MAX_RINGS),
            n_silent: word(bytes, N_SILENT_AT),
            unlogged: std::array::from_fn(unlogged),
        })
    }
}

impl ArchivedRing {
    /// The name of the former file.
    pub fn file(&self) -> String {
        name_of_file(self.process, self.number)
    }
}

/// The name of a process's file. No two processes have files of one name.
pub(crate) fn name_of_file(process: u32, number: u64) -> String {
    format!("{process}-{number:x}")
}

/// The two numbers of a file's name.
pub(crate) fn parse_name_of_file(name: &str) -> Option<(u32, u64)> {
    let (process, number) = name.split_once('-')?;
    let parts = (process.parse().ok()?, u64::from_str_radix(number, 16).ok()?);
    (name_of_file(parts.0, parts.1) == name).then_some(parts)
}

/// Whether this is the name of a process's file or an archive, hidden or not.
pub(crate) fn is_name_of_a_file(name: &[u8]) -> bool {
    let name = name.strip_prefix(b".").unwrap_or(name);
    let mut parts = name.split(|&byte| byte == b'-');
    let (first, second, rest) = (parts.next(), parts.next(), parts.next());
    let is = |part: Option<&[u8]>, digit: fn(&u8) -> bool| {
        part.is_some_and(|part| !part.is_empty() && part.iter().all(digit))
    };
    is(first, u8::is_ascii_digit) && is(second, u8::is_ascii_hexdigit) && rest.is_none()
}

/// The offset of a ring's entry.
pub(crate) fn entry_at(ring: usize) -> usize {
    TABLE_AT + ring * RING_ENTRY_BYTES
}

impl Place {
    pub fn encode(&self) -> [u8; RING_READ_BYTES] {
        let mut bytes = [0; RING_READ_BYTES];
        bytes[OFFSET_AT..][..8].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[CAPACITY_AT..][..8].copy_from_slice(&self.capacity.to_ne_bytes());
        bytes[BUFFER_AT] = self.buffer as u8;
        bytes
    }

    /// Decodes an entry. `None`: no writer of this crate makes such an entry.
    pub fn decode(bytes: &[u8; RING_READ_BYTES]) -> Option<Place> {
        let buffer = Buffer::numbered(bytes[BUFFER_AT])?;
        let place = Place {
            buffer,
            offset: double_word(bytes, OFFSET_AT),
            capacity: double_word(bytes, CAPACITY_AT),
        };
        let sound = is_ring_size(usize::try_from(place.capacity).ok()?)
            && place.offset >= FRONT_BYTES as u64
            && place.offset < 1 << 62;
        sound.then_some(place)
    }

    /// Encodes the entry of an archive's ring.
    pub fn encode_archived(&self, former: &ArchivedRing) -> [u8; ARCHIVED_BYTES] {
        let mut bytes = [0; ARCHIVED_BYTES];
        bytes[..RING_READ_BYTES].copy_from_slice(&self.encode());
        bytes[FORMER_PROCESS_AT..][..4].copy_from_slice(&former.process.to_ne_bytes());
        bytes[FORMER_RING_AT..][..4].copy_from_slice(&former.ring.to_ne_bytes());
        bytes[FORMER_NUMBER_AT..][..8].copy_from_slice(&former.number.to_ne_bytes());
        bytes[FORMER_NAME_AT..][..NAME_BYTES].copy_from_slice(&former.name);
        bytes
    }

    /// Decodes the entry of an archive's ring. `None`: no archiver of this crate makes such an
    /// entry.
    pub fn decode_archived(bytes: &[u8; ARCHIVED_BYTES]) -> Option<(Place, ArchivedRing)> {
        let place = Place {
            buffer: Buffer::numbered(bytes[BUFFER_AT])?,
            offset: double_word(bytes, OFFSET_AT),
            capacity: double_word(bytes, CAPACITY_AT),
        };
        let former = ArchivedRing {
            process: word(bytes, FORMER_PROCESS_AT),
            number: double_word(bytes, FORMER_NUMBER_AT),
            ring: word(bytes, FORMER_RING_AT),
            name: bytes[FORMER_NAME_AT..][..NAME_BYTES].try_into().expect("so many bytes"),
        };
        let sound = place.capacity.is_multiple_of(8)
            && (8..=MAX_RING_BYTES as u64).contains(&place.capacity)
            && (FRONT_BYTES as u64..1 << 62).contains(&place.offset)
            && former.process > 0
            && former.ring < MAX_RINGS as u32;
        sound.then_some((place, former))
    }
}

/// Whether a ring may have this many bytes.
pub fn is_ring_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (MIN_RING_BYTES..=MAX_RING_BYTES).contains(&bytes)
}

const _: () = assert!(FRONT_BYTES.is_multiple_of(PAGE_BYTES) && HEADER_BYTES <= PAGE_BYTES);
const _: () = assert!(ARCHIVED_BYTES <= BOUNDS_AT);
const _: () = assert!(BOUNDS_AT.is_multiple_of(64) && BOUNDS_AT + 16 <= RING_ENTRY_BYTES);
// There is always a boundary between tail and head, even with records of the largest size: the next
// one is at most a part and a record away, and another record has to fit.
const _: () = {
    let largest = crate::record::MAX_RECORD_BYTES + 2 * crate::record::SAMPLE_RECORD_BYTES;
    assert!(MIN_RING_BYTES / crate::ring::N_PARTS as usize + 2 * largest < MIN_RING_BYTES);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_others_do_not() {
        let header = Header {
            source: Source::Vdso,
            process: 17,
            boot: Boot([7; BOOT_BYTES]),
            name: *b"sensors\0\0\0\0\0\0\0\0\0",
            n_rings: 0,
            n_silent: 0,
            unlogged: [0; N_BUFFERS],
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for at in [0, VERSION_AT, SOURCE_AT] {
            let mut other = bytes;
            other[at] ^= 0x40;
            assert_eq!(Header::decode(&other), None);
        }
        let mut many = bytes;
        many[N_RINGS_AT..][..4].fill(0xff);
        assert_eq!(Header::decode(&many).unwrap().n_rings, MAX_RINGS);
    }

    #[test]
    fn rings_lie_behind_the_table_and_have_sound_sizes() {
        let sound = Place { buffer: Buffer::Crash, offset: FRONT_BYTES as u64, capacity: 65536 };
        assert_eq!(Place::decode(&sound.encode()), Some(sound));
        for place in [
            Place { offset: 0, ..sound },
            Place { offset: u64::MAX, ..sound },
            Place { capacity: 65537, ..sound },
            Place { capacity: 32768, ..sound },
            Place { capacity: 1 << 31, ..sound },
        ] {
            assert_eq!(Place::decode(&place.encode()), None, "{place:?}");
        }
        let mut bytes = sound.encode();
        bytes[BUFFER_AT] = 5;
        assert_eq!(Place::decode(&bytes), None);
    }

    #[test]
    fn an_archives_rings_have_any_length_and_say_whose_they_were() {
        let former = ArchivedRing {
            process: 17,
            number: 0x1f,
            ring: 3,
            name: *b"sensors\0\0\0\0\0\0\0\0\0",
        };
        let sound = Place { buffer: Buffer::Crash, offset: FRONT_BYTES as u64 + 8, capacity: 136 };
        let check = |place: Place, former: ArchivedRing, is_sound: bool| {
            let decoded = Place::decode_archived(&place.encode_archived(&former));
            assert_eq!(decoded, is_sound.then_some((place, former)), "{place:?} {former:?}");
        };
        check(sound, former, true);
        check(Place { offset: 0, ..sound }, former, false);
        check(Place { capacity: 0, ..sound }, former, false);
        check(Place { capacity: 1 << 31, ..sound }, former, false);
        check(Place { capacity: 137, ..sound }, former, false);
        check(sound, ArchivedRing { process: 0, ..former }, false);
        check(sound, ArchivedRing { ring: 1024, ..former }, false);
    }

    #[test]
    fn names_of_files_come_back() {
        for (process, number) in [(1, 0), (17, 0x1f), (u32::MAX, u64::MAX)] {
            let name = name_of_file(process, number);
            assert_eq!(parse_name_of_file(&name), Some((process, number)));
        }
        for wrong in ["", "17", "17-", "-1", "017-1", "17-1F", "17-1-1", ".17-1", "+17-1"] {
            assert_eq!(parse_name_of_file(wrong), None, "{wrong}");
        }
    }
}
