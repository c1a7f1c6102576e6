//! The ring under the model checker: `RUSTFLAGS="--cfg loom" cargo test -p baton-log --release`.

mod waking;

use crate::bounds::Bounds;
use crate::buffer::Priority;
use crate::cursor::{self, ATTEMPTS, Batch, Cursor, Piece, Taken};
use crate::moment::Sample;
use crate::record::{Kind, record_bytes};
use crate::ring::{Entry, Ring};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

/// The model of [`crate::memory`]: bytes in words, each of which a reader may see before or after a
/// write.
pub(crate) struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    tail: AtomicU64,
    head: AtomicU64,
    words: Vec<AtomicU64>,
}

impl Memory {
    pub fn capacity(&self) -> u64 {
        8 * self.shared.words.len() as u64
    }

    pub fn tail(&self) -> &AtomicU64 {
        &self.shared.tail
    }

    pub fn head(&self) -> &AtomicU64 {
        &self.shared.head
    }

    pub fn write<const N: usize>(
        &self,
        position: u64,
        header: &[u8; N],
        tag: &[u8],
        message: &[u8],
    ) {
        let words = &self.shared.words;
        assert!(position.is_multiple_of(8), "a record begins at a word");
        let bytes = [&header[..], tag, message].concat();
        for (index, bytes) in (position as usize / 8..).zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            words[index % words.len()].store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }
}

/// The model of [`crate::memory::Unreadable`]: nothing fails.
#[derive(Debug)]
pub(crate) enum Unreadable {}

/// The model of [`crate::memory::View`].
pub(crate) struct View<'a> {
    shared: &'a Shared,
}

impl View<'_> {
    pub fn bounds(&mut self) -> Result<Bounds, Unreadable> {
        let tail = self.shared.tail.load(Ordering::Relaxed);
        Ok(Bounds { tail, head: self.shared.head.load(Ordering::Relaxed) })
    }

    pub fn copy(&mut self, position: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let words = &self.shared.words;
        for (index, bytes) in (position as usize / 8..).zip(into.chunks_mut(8)) {
            let word = words[index % words.len()].load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    }
}

fn memory(n_words: usize) -> Arc<Shared> {
    let words = (0..n_words).map(|_| AtomicU64::new(0)).collect();
    Arc::new(Shared { tail: AtomicU64::new(0), head: AtomicU64::new(0), words })
}

fn write(ring: &mut Ring, number: u64) {
    let message = (number * MARK).to_le_bytes();
    let kind = Kind::Text(Priority::Info);
    let entry = Entry { stamp: number, kind, thread: 1, tag: &[], message: &message };
    if ring.wants_sample(number) {
        ring.take_sample(Sample { stamp: number, monotonic_ns: number, wall_ns: 0 });
    }
    let bytes = record_bytes(message.len());
    if ring.end_of(bytes) > ring.limit(0) {
        ring.make_room(bytes);
    }
    ring.append(&entry);
}

/// The numbers of the records that a look finds, each checked to be whole, and the number of
/// records that it reports as lost.
fn look(shared: &Shared, cursor: &mut Cursor) -> Vec<u64> {
    let mut batch = Batch::default();
    let mut known = Vec::new();
    let capacity = 8 * shared.words.len() as u64;
    let taken = cursor::take(&mut View { shared }, (capacity, ATTEMPTS), cursor, &mut batch);
    assert_ne!(taken.unwrap(), Taken::Damaged, "an honest writer");
    for piece in &batch.pieces {
        let &Piece::Record { header, at, lost } = piece else { continue };
        let message = batch.bytes[at..at + 8].try_into().unwrap();
        assert_eq!(u64::from_le_bytes(message), header.sequence * MARK, "torn");
        assert_eq!(header.stamp, header.sequence);
        known.extend((header.sequence - lost)..=header.sequence);
    }
    known
}

const MARK: u64 = 0x0101_0101_0101_0101;

/// A writer goes round and overwrites records while a reader copies. The records that the reader
/// gets are whole, and together with those that it knows to be lost they are all, in order.
fn check(n_words: usize, n_before: u64, n_meanwhile: u64) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.check(move || {
        let shared = memory(n_words);
        let mut ring = Ring::new(Memory { shared: shared.clone() });
        (0..n_before).for_each(|number| write(&mut ring, number));
        let writer = loom::thread::spawn(move || {
            (n_before..n_before + n_meanwhile).for_each(|number| write(&mut ring, number));
        });
        let mut cursor = Cursor::oldest();
        let mut known = look(&shared, &mut cursor);
        writer.join().unwrap();
        known.extend(look(&shared, &mut cursor));
        assert!(known.into_iter().eq(0..n_before + n_meanwhile));
    });
}

#[test]
fn records_are_seen_whole_as_they_come() {
    check(64, 0, 2);
}

#[test]
fn what_is_overwritten_while_it_is_copied_is_lost_and_counted() {
    check(32, 5, 1);
}
