//! The writer's end of a ring.
//!
//! ```text
//!   position:   ... tail ............ head ...        modulo the capacity: where its byte lies
//!                    | records, whole |  being written
//!                    | ^boundary  ^boundary           a sample begins there
//! ```
//!
//! Positions only grow. Between tail and head there are whole records. Before the writer overwrites
//! the oldest records, it moves the tail to a *boundary* behind them. It remembers some boundaries,
//! so it need not read its own records. Then it writes, and then it moves the head. A reader that
//! finds the tail unmoved after its copy has copied whole records.
//!
//! A record that would cross a page leaves a *gap* at the end of the first page instead. A store
//! that crosses a page takes a third of a record's time, and a boundary is due at the ends of pages
//! anyway.
//!
//! Memory order: the writer stores the tail, makes a release fence, and then writes bytes; the
//! reader copies, makes an acquire fence, and then loads the tail. The writer writes bytes, and
//! then stores the head with release; the reader loads the head with acquire, and then copies. A
//! writer that is killed between any two of these leaves a ring of whole records.

use crate::memory::Memory;
use crate::moment::Sample;
use crate::record::{HEADER_BYTES, Header, Kind, SAMPLE_RECORD_BYTES, encode_gap, encode_sample};
use baton_shm::sync::{Ordering, fence};

/// The parts of the capacity at which boundaries are. More parts cost the writer time: see ADR
/// 0022.
pub(crate) const N_PARTS: u64 = 16;
const PAGE_BYTES: u64 = 4096;
/// Longer records may cross a page: a gap for them would be large, and the crossing costs little
/// beside their copy.
const MOST_ON_A_PAGE: usize = 512;
/// More than the boundaries that there are between tail and head.
const MAX_BOUNDARIES: usize = 2 * N_PARTS as usize;

/// The fields that each record needs come first, then those that each part needs.
#[repr(C)]
pub(crate) struct Ring {
    memory: Memory,
    /// The head, and behind it the bytes that are not published yet.
    position: u64,
    sequence: u64,
    /// The stamp from which on a sample is due.
    sample_due: u64,
    tail: u64,
    /// The next part. A record goes beyond it only after a boundary.
    next_boundary: u64,
    sample: Sample,
    first: u32,
    n_boundaries: u32,
    /// The boundaries behind the tail; the oldest is at `first`.
    boundaries: [u64; MAX_BOUNDARIES],
}

/// A record that is to be written.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub stamp: u64,
    pub kind: Kind,
    pub thread: u32,
    pub tag: &'a [u8],
    pub message: &'a [u8],
}

impl Ring {
    /// An empty ring. [`Ring::take_sample`] has to precede its first record.
    pub fn new(memory: Memory) -> Ring {
        Ring {
            memory,
            position: 0,
            sequence: 0,
            sample_due: 0,
            tail: 0,
            next_boundary: 0,
            sample: Sample::default(),
            first: 0,
            n_boundaries: 0,
            boundaries: [0; MAX_BOUNDARIES],
        }
    }

    /// The position at which a record of this many bytes would end.
    #[inline]
    pub fn end_of(&self, record_bytes: usize) -> u64 {
        self.position + record_bytes as u64
    }

    /// Whether a sample is due before a record with this stamp.
    #[inline]
    pub fn wants_sample(&self, stamp: u64) -> bool {
        stamp >= self.sample_due
    }

    /// Sets the sample that dates the records from now on.
    pub fn take_sample(&mut self, sample: Sample) {
        let before = (self.sample_due > 0).then_some(self.sample);
        self.sample_due = sample.due(before);
        self.sample = sample;
        let next_boundary = self.next_boundary;
        self.make_room(0);
        if self.next_boundary == next_boundary {
            self.append_sample();
        }
    }

    /// Makes room for a record of this many bytes by overwriting the oldest ones.
    #[inline]
    pub fn make_room(&mut self, record_bytes: usize) {
        let gap = self.gap_before(record_bytes);
        let needed = (gap + record_bytes + SAMPLE_RECORD_BYTES) as u64;
        let oldest = (self.position + needed).saturating_sub(self.memory.capacity());
        if self.tail < oldest {
            while self.tail < oldest {
                self.forget_boundary();
            }
            self.memory.tail().store(self.tail, Ordering::Relaxed);
            // Pairs with the acquire fence of `cursor::take`: a reader that copies bytes written
            // after this fence sees the new tail.
            fence(Ordering::Release);
        }
        if gap > 0 {
            self.memory.write(self.position, &encode_gap(gap, self.sequence), &[], &[]);
            self.position += gap as u64;
        }
        if self.position >= self.next_boundary || self.end_of(record_bytes) > self.next_boundary {
            self.add_boundary(record_bytes);
        }
    }

    /// Bytes to leave at the end of the page so that this record does not cross it. A gap is at
    /// least a header. If there is less room, only the record's header crosses the page, and no
    /// word of it does.
    #[inline]
    fn gap_before(&self, record_bytes: usize) -> usize {
        let room = (PAGE_BYTES - self.position % PAGE_BYTES) as usize;
        let may_leave = room >= HEADER_BYTES && record_bytes <= MOST_ON_A_PAGE;
        if may_leave && record_bytes > room { room } else { 0 }
    }

    /// The position up to which records may be written without [`Ring::make_room`], after a record
    /// of this many bytes.
    #[inline]
    pub fn limit(&self, record_bytes: usize) -> u64 {
        let page = self.end_of(record_bytes).next_multiple_of(PAGE_BYTES);
        self.next_boundary.min(page).min(self.tail + self.memory.capacity())
    }

    /// The next part. It changes when a part begins.
    #[inline]
    pub fn next_part(&self) -> u64 {
        self.next_boundary
    }

    /// Writes a record into room that was made, and publishes it.
    #[inline(always)]
    pub fn append(&mut self, entry: &Entry<'_>) {
        let bytes = (entry.tag.len() + entry.message.len()) as u16;
        let header = Header {
            stamp: entry.stamp,
            sequence: self.sequence,
            kind: entry.kind,
            thread: entry.thread,
            bytes,
            tag_bytes: entry.tag.len() as u16,
        };
        self.memory.write(self.position, &header.encode(), entry.tag, entry.message);
        self.position += header.record_bytes() as u64;
        self.sequence += 1;
        // The record is complete. Pairs with the acquire load of the head by readers.
        self.memory.head().store(self.position, Ordering::Release);
    }

    #[inline]
    fn forget_boundary(&mut self) {
        assert!(self.n_boundaries > 0, "a part is less than the capacity");
        self.n_boundaries -= 1;
        self.first = self.first.wrapping_add(1);
        self.tail = match self.n_boundaries {
            0 => self.position,
            _ => self.boundaries[self.first as usize % MAX_BOUNDARIES],
        };
    }

    /// Prepares the ring for a record of this many bytes.
    #[inline]
    fn add_boundary(&mut self, record_bytes: usize) {
        let last = self.first.wrapping_add(self.n_boundaries);
        self.boundaries[last as usize % MAX_BOUNDARIES] = self.position;
        self.n_boundaries += 1;
        self.append_sample();
        let part = self.memory.capacity() / N_PARTS;
        self.next_boundary = self.end_of(record_bytes).next_multiple_of(part);
    }

    /// Appends the sample. It is published together with the next record.
    fn append_sample(&mut self) {
        let bytes = encode_sample(&self.sample, self.sequence);
        // Not through the copy for messages, so that the branch predictor's history of that one
        // stays.
        self.memory.write(self.position, &bytes, &[], &[]);
        self.position += SAMPLE_RECORD_BYTES as u64;
    }
}
