//! A process's file, native byte order:
//!
//! ```text
//!   0        header: what it is, who says to have made it and in which start of the machine,
//!            how many rings there are, what found no ring
//!   4096     table: 128 bytes for each ring; what its writer changes in a line of its own
//!   135168   rings, each at a page
//! ```
//!
//! An *archive* has the same form, and process number 0. Each of its rings was a dead process's,
//! has never gone round, lies right behind the one before, and says in its entry whose it was
//! ([`Former`]).
//!
//! **Invariant**: what a reader takes from a file it checks here before it computes with it.

use crate::buffer::{Buffer, N_BUFFERS};
use crate::files::boot::{BOOT_BYTES, Boot};
use crate::moment::Source;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const MAX_RINGS: usize = 1024;
pub(crate) const RING_ENTRY_BYTES: usize = 128;
pub(crate) const TABLE_AT: usize = PAGE_BYTES;
/// Header and table: what the process maps beside its rings.
pub(crate) const STATUS_BYTES: usize = TABLE_AT + MAX_RINGS * RING_ENTRY_BYTES;
/// The least that a ring may have.
pub const MIN_RING_BYTES: usize = 64 * 1024;
/// The most that a ring may have.
pub const MAX_RING_BYTES: usize = 1 << 30;

const MAGIC: u64 = u64::from_le_bytes(*b"batonlog");
const VERSION: u32 = 3;
const NAME_BYTES: usize = 16;

const VERSION_AT: usize = 8;
const SOURCE_AT: usize = 12;
const PROCESS_AT: usize = 16;
const NAME_AT: usize = 24;
pub(crate) const N_RINGS_AT: usize = 40;
/// Written to tell followers that there is something new; it means nothing.
pub(crate) const BELL_AT: usize = 44;
/// How many threads write that never ring.
pub(crate) const N_SILENT_AT: usize = 48;
/// Eight bytes a buffer.
pub(crate) const UNLOGGED_AT: usize = 64;
const BOOT_AT: usize = UNLOGGED_AT + 8 * N_BUFFERS;
/// What a reader reads of the header.
pub(crate) const HEADER_BYTES: usize = BOOT_AT + BOOT_BYTES;

/// In a ring's entry.
const OFFSET_AT: usize = 0;
const CAPACITY_AT: usize = 8;
const BUFFER_AT: usize = 16;
pub(crate) const BOUNDS_AT: usize = 64;
const RING_READ_BYTES: usize = 24;
/// In an archive's, from there on.
const FORMER_PROCESS_AT: usize = 24;
const FORMER_RING_AT: usize = 28;
const FORMER_NUMBER_AT: usize = 32;
const FORMER_NAME_AT: usize = 40;
/// What a reader reads of a ring's entry in an archive.
pub(crate) const ARCHIVED_BYTES: usize = FORMER_NAME_AT + NAME_BYTES;

/// What a process says of itself, and how much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub source: Source,
    pub process: u32,
    pub boot: Boot,
    /// The program's name, as the system has it, with zeros behind.
    pub name: [u8; NAME_BYTES],
    pub n_rings: usize,
    /// Threads that write and never ring.
    pub n_silent: u32,
    /// Records that found no ring, by buffer.
    pub unlogged: [u64; N_BUFFERS],
}

/// Where a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub buffer: Buffer,
    pub offset: u64,
    pub capacity: u64,
}

/// Whose a ring of an archive was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Former {
    pub process: u32,
    /// The other half of the file's name.
    pub number: u64,
    /// Which of the file's rings.
    pub ring: u32,
    /// As in [`Header`].
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

    /// The bytes of a new file.
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

    /// `None` for a file of another kind or version.
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

impl Former {
    /// The file's name.
    pub fn file(&self) -> String {
        name_of_file(self.process, self.number)
    }
}

/// What the file of a process is called: nobody else's has that number.
pub(crate) fn name_of_file(process: u32, number: u64) -> String {
    format!("{process}-{number:x}")
}

/// The two halves of a file's name.
pub(crate) fn parse_name_of_file(name: &str) -> Option<(u32, u64)> {
    let (process, number) = name.split_once('-')?;
    let parts = (process.parse().ok()?, u64::from_str_radix(number, 16).ok()?);
    (name_of_file(parts.0, parts.1) == name).then_some(parts)
}

/// Where the entry of a ring is.
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

    /// `None` for what no writer of ours makes.
    pub fn decode(bytes: &[u8; RING_READ_BYTES]) -> Option<Place> {
        let buffer = Buffer::numbered(bytes[BUFFER_AT])?;
        let place = Place {
            buffer,
            offset: double_word(bytes, OFFSET_AT),
            capacity: double_word(bytes, CAPACITY_AT),
        };
        let sound = is_ring_size(usize::try_from(place.capacity).ok()?)
            && place.offset >= STATUS_BYTES as u64
            && place.offset < 1 << 62;
        sound.then_some(place)
    }

    /// In an archive.
    pub fn encode_archived(&self, former: &Former) -> [u8; ARCHIVED_BYTES] {
        let mut bytes = [0; ARCHIVED_BYTES];
        bytes[..RING_READ_BYTES].copy_from_slice(&self.encode());
        bytes[FORMER_PROCESS_AT..][..4].copy_from_slice(&former.process.to_ne_bytes());
        bytes[FORMER_RING_AT..][..4].copy_from_slice(&former.ring.to_ne_bytes());
        bytes[FORMER_NUMBER_AT..][..8].copy_from_slice(&former.number.to_ne_bytes());
        bytes[FORMER_NAME_AT..][..NAME_BYTES].copy_from_slice(&former.name);
        bytes
    }

    /// `None` for what no process of ours has archived.
    pub fn decode_archived(bytes: &[u8; ARCHIVED_BYTES]) -> Option<(Place, Former)> {
        let place = Place {
            buffer: Buffer::numbered(bytes[BUFFER_AT])?,
            offset: double_word(bytes, OFFSET_AT),
            capacity: double_word(bytes, CAPACITY_AT),
        };
        let former = Former {
            process: word(bytes, FORMER_PROCESS_AT),
            number: double_word(bytes, FORMER_NUMBER_AT),
            ring: word(bytes, FORMER_RING_AT),
            name: bytes[FORMER_NAME_AT..][..NAME_BYTES].try_into().expect("so many bytes"),
        };
        let sound = place.capacity.is_multiple_of(8)
            && (8..=MAX_RING_BYTES as u64).contains(&place.capacity)
            && (STATUS_BYTES as u64..1 << 62).contains(&place.offset)
            && former.process > 0
            && former.ring < MAX_RINGS as u32;
        sound.then_some((place, former))
    }
}

/// Whether a ring may have so many bytes.
pub fn is_ring_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (MIN_RING_BYTES..=MAX_RING_BYTES).contains(&bytes)
}

const _: () = assert!(STATUS_BYTES.is_multiple_of(PAGE_BYTES) && HEADER_BYTES <= PAGE_BYTES);
const _: () = assert!(ARCHIVED_BYTES <= BOUNDS_AT);
const _: () = assert!(BOUNDS_AT.is_multiple_of(64) && BOUNDS_AT + 16 <= RING_ENTRY_BYTES);
// However large records are, there is a boundary between the tail and the head: none lies further
// behind than a part and a record, and there is to be room for another one.
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
        let sound = Place { buffer: Buffer::Crash, offset: STATUS_BYTES as u64, capacity: 65536 };
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
        let former =
            Former { process: 17, number: 0x1f, ring: 3, name: *b"sensors\0\0\0\0\0\0\0\0\0" };
        let sound = Place { buffer: Buffer::Crash, offset: STATUS_BYTES as u64 + 8, capacity: 136 };
        let check = |place: Place, former: Former, is_sound: bool| {
            let decoded = Place::decode_archived(&place.encode_archived(&former));
            assert_eq!(decoded, is_sound.then_some((place, former)), "{place:?} {former:?}");
        };
        check(sound, former, true);
        check(Place { offset: 0, ..sound }, former, false);
        check(Place { capacity: 0, ..sound }, former, false);
        check(Place { capacity: 1 << 31, ..sound }, former, false);
        check(Place { capacity: 137, ..sound }, former, false);
        check(sound, Former { process: 0, ..former }, false);
        check(sound, Former { ring: 1024, ..former }, false);
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
