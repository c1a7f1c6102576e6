//! The writer's half of a ring.
//!
//! ```text
//!   position:   ... tail ............ head ...        modulo the capacity: where its byte lies
//!                    | records, whole |  being written
//!                    | ^boundary  ^boundary           a sample begins there
//! ```
//!
//! Positions only grow. What lies between tail and head is records, each whole. The writer moves
//! the tail before it writes where the oldest ones lay, to a *boundary*, of which it remembers
//! some, so that it need not read what it has written; then it writes, then it moves the head. A
//! reader that finds the tail unmoved after it has copied has whole records.
//!
//! A record that would lie on two pages leaves a *gap* at the first one's end instead. A store that
//! reaches over a page's end takes a processor as long as a third of a record does, and a boundary
//! is due at the ends of pages anyway.
//!
//! Orders: the tail's store, a release fence, then bytes; the reader's copy, an acquire fence, then
//! its load of the tail. Bytes, then the head's release store; the reader's acquire load, then its
//! copy. Killed between any two of these the writer leaves a ring of whole records.

use crate::memory::Memory;
use crate::moment::Sample;
use crate::record::{HEADER_BYTES, Header, Kind, SAMPLE_RECORD_BYTES, encode_gap, encode_sample};
use baton_shm::sync::{Ordering, fence};

/// Boundaries begin such parts of the capacity. More of them cost the writer time: see ADR 0022.
pub(crate) const N_PARTS: u64 = 16;
const PAGE_BYTES: u64 = 4096;
/// Records of more bytes may lie on two pages: gaps for them would be large, and it is little
/// beside what they take to copy.
const MOST_ON_A_PAGE: usize = 512;
/// More than there ever are between tail and head.
const MAX_BOUNDARIES: usize = 2 * N_PARTS as usize;

/// What each record needs comes first, then what each part does.
#[repr(C)]
pub(crate) struct Ring {
    memory: Memory,
    /// The head, with what is written beyond it.
    position: u64,
    sequence: u64,
    /// The stamp from which on a sample is due.
    sample_due: u64,
    tail: u64,
    /// The part that comes next: no record goes beyond it without a boundary before it.
    next_boundary: u64,
    sample: Sample,
    first: u32,
    n_boundaries: u32,
    /// Boundaries from the tail on, the oldest at `first`.
    boundaries: [u64; MAX_BOUNDARIES],
}

/// A record to be.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub stamp: u64,
    pub kind: Kind,
    pub thread: u32,
    pub tag: &'a [u8],
    pub message: &'a [u8],
}

impl Ring {
    /// An empty one. Before its first record it needs [`Ring::take_sample`].
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

    /// Where a record of so many bytes ends.
    #[inline]
    pub fn end_of(&self, record_bytes: usize) -> u64 {
        self.position + record_bytes as u64
    }

    /// Whether a record of this stamp wants a sample before it.
    #[inline]
    pub fn wants_sample(&self, stamp: u64) -> bool {
        stamp >= self.sample_due
    }

    /// From now on records are dated by this.
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

    /// Makes room for a record of so many bytes, at the oldest ones' cost.
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
            // Pairs with the acquire fence of `cursor::take`: who copies what is written from now
            // on sees the tail.
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

    /// How much of the page to leave, so that such a record lies on one. What is less than a header
    /// cannot be left, and need not: nothing but headers, of which each word lies on one page,
    /// reaches over the page's end then.
    #[inline]
    fn gap_before(&self, record_bytes: usize) -> usize {
        let room = (PAGE_BYTES - self.position % PAGE_BYTES) as usize;
        let may_leave = room >= HEADER_BYTES && record_bytes <= MOST_ON_A_PAGE;
        if may_leave && record_bytes > room { room } else { 0 }
    }

    /// Until where records may be written without [`Ring::make_room`], once there is one of so many
    /// bytes.
    #[inline]
    pub fn limit(&self, record_bytes: usize) -> u64 {
        let page = self.end_of(record_bytes).next_multiple_of(PAGE_BYTES);
        self.next_boundary.min(page).min(self.tail + self.memory.capacity())
    }

    /// The part that comes next. Another one than before if a part has begun.
    #[inline]
    pub fn next_part(&self) -> u64 {
        self.next_boundary
    }

    /// Writes a record into the room that there is, and shows it.
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
        // The record is there. Pairs with the acquire load of whoever reads the head.
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

    /// Before a record of so many bytes.
    #[inline]
    fn add_boundary(&mut self, record_bytes: usize) {
        let last = self.first.wrapping_add(self.n_boundaries);
        self.boundaries[last as usize % MAX_BOUNDARIES] = self.position;
        self.n_boundaries += 1;
        self.append_sample();
        let part = self.memory.capacity() / N_PARTS;
        self.next_boundary = self.end_of(record_bytes).next_multiple_of(part);
    }

    /// Not shown before the record that comes after it.
    fn append_sample(&mut self) {
        let bytes = encode_sample(&self.sample, self.sequence);
        // No call to copy it: what the processor has learnt of copying messages stays true.
        self.memory.write(self.position, &bytes, &[], &[]);
        self.position += SAMPLE_RECORD_BYTES as u64;
    }
}
