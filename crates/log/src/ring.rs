//! The writer's half of a ring.
//!
//! ```text
//!   position:   ... tail ............ head ...        modulo the capacity: where its byte lies
//!                    | records, whole |  being written
//!                    | ^boundary  ^boundary           a sample begins there
//! ```
//!
//! Positions only grow. What lies between tail and head is records, each whole. The writer moves the tail before it
//! writes where the oldest ones lay, to a *boundary*, of which it remembers some, so that it need not read
//! what it has written; then it writes, then it moves the head. A reader that finds the tail unmoved after it has copied has whole records.
//!
//! Orders: the tail's store, a release fence, then bytes; the reader's copy, an acquire fence, then its load of
//! the tail. Bytes, then the head's release store; the reader's acquire load, then its copy. Killed between
//! any two of these the writer leaves a ring of whole records.

use crate::memory::Memory;
use crate::moment::Sample;
use crate::record::{Header, Kind, SAMPLE_RECORD_BYTES, encode_sample};
use baton_shm::sync::{Ordering, fence};

/// Boundaries lie no nearer than such a part of the capacity. More of them cost the writer time: see ADR 0022.
pub(crate) const N_PARTS: u64 = 16;
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
    /// From here on a boundary is due.
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
        let has_boundary = self.position >= self.next_boundary;
        self.make_room(0);
        if !has_boundary {
            self.append_sample();
        }
    }

    /// Makes room for a record of so many bytes, at the oldest ones' cost.
    #[inline]
    pub fn make_room(&mut self, record_bytes: usize) {
        let needed = (record_bytes + SAMPLE_RECORD_BYTES) as u64;
        let oldest = (self.position + needed).saturating_sub(self.memory.capacity());
        if self.tail < oldest {
            while self.tail < oldest {
                self.forget_boundary();
            }
            self.memory.tail().store(self.tail, Ordering::Relaxed);
            // Pairs with the acquire fence of `cursor::take`: who copies what is written from now on sees the tail.
            fence(Ordering::Release);
        }
        if self.position >= self.next_boundary {
            self.add_boundary();
        }
    }

    /// Until where records may be written without [`Ring::make_room`].
    #[inline]
    pub fn limit(&self) -> u64 {
        self.next_boundary.min(self.tail + self.memory.capacity())
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

    #[inline]
    fn add_boundary(&mut self) {
        let last = self.first.wrapping_add(self.n_boundaries);
        self.boundaries[last as usize % MAX_BOUNDARIES] = self.position;
        self.n_boundaries += 1;
        self.next_boundary = self.position + self.memory.capacity() / N_PARTS;
        self.append_sample();
    }

    /// Not shown before the record that comes after it.
    fn append_sample(&mut self) {
        let bytes = encode_sample(&self.sample, self.sequence);
        // No call to copy it: what the processor has learnt of copying messages stays true.
        self.memory.write(self.position, &bytes, &[], &[]);
        self.position += SAMPLE_RECORD_BYTES as u64;
    }
}
