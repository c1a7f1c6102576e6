//! A reader's end of a ring: copies bytes out, and checks how far the copy can be believed.
//!
//! The writer may be hostile, and may write during the copy. The copy counts only from the tail on
//! that is read after it. Then each record has to be sound, the numbers have to be in order, and
//! the last record has to end at the head. A gap in the numbers is allowed where records were
//! overwritten, and says how many were.

use crate::bounds::Bounds;
use crate::memory::{Unreadable, View};
use crate::moment::Sample;
use crate::record::{HEADER_BYTES, Header, Kind, MAX_RECORD_BYTES, SEQUENCE_MASK, decode_sample};
use baton_shm::sync::{Ordering, fence};

/// The most bytes that one copy has.
pub(crate) const BATCH_BYTES: u64 = 64 * 1024;
/// How often a look repeats a copy that the writer has overwritten meanwhile, before it leaves the
/// ring to the next look.
pub(crate) const ATTEMPTS: usize = 4;

/// The position of one reader in one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    position: u64,
    /// The number that the next record has to have, if it is known.
    sequence: Option<u64>,
}

/// One record or one sample of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A record whose bytes begin at `at` of the batch. `lost` records before it were overwritten.
    Record {
        header: Header,
        at: usize,
        lost: u64,
    },
    Sample(Sample),
}

/// A copy that was found sound.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub pieces: Vec<Piece>,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// At the head: there are no more records.
    All,
    /// All of it was overwritten meanwhile. The next look goes on.
    Outrun,
    /// Before the head: another copy can follow at once.
    More,
    /// At bytes that no writer of this crate makes. The reader goes on at the head.
    Damaged,
}

impl Cursor {
    /// Begins at the oldest record. Records that were overwritten count as lost.
    pub fn oldest() -> Cursor {
        Cursor { position: 0, sequence: Some(0) }
    }

    /// Whether the ring's tail has passed the cursor, so that records are lost.
    #[cfg(not(loom))]
    pub fn is_overtaken(&self, tail: u64) -> bool {
        self.position < tail
    }

    /// Bytes between the cursor and a head.
    #[cfg(not(loom))]
    pub fn behind(&self, head: u64) -> u64 {
        head.saturating_sub(self.position)
    }
}

/// Copies the next records, in this many attempts, and moves the cursor behind them. The former
/// content of the batch is dropped.
pub(crate) fn take(
    view: &mut View<'_>,
    (capacity, attempts): (u64, usize),
    cursor: &mut Cursor,
    batch: &mut Batch,
) -> Result<Taken, Unreadable> {
    batch.pieces.clear();
    for _ in 0..attempts {
        let Bounds { tail, head } = view.bounds()?;
        if head == cursor.position {
            return Ok(Taken::All);
        }
        if !(tail | head).is_multiple_of(8) || head < cursor.position {
            return Ok(cursor.give_up(head));
        }
        let start = cursor.position.max(tail);
        // Otherwise the two positions are of different times, or the writer is hostile.
        if start < head && head - start <= capacity {
            let copied = copy(view, batch, Copied { start, whole_from: start, head }, capacity)?;
            if let Some(copied) = copied {
                return Ok(cursor.read(batch, copied));
            }
        }
    }
    Ok(Taken::Outrun)
}

/// Copies a batch. `None`: all of it was being overwritten.
fn copy(
    view: &mut View<'_>,
    batch: &mut Batch,
    wanted: Copied,
    capacity: u64,
) -> Result<Option<Copied>, Unreadable> {
    let Copied { start, head, .. } = wanted;
    let n_bytes = (head - start).min(BATCH_BYTES.min(capacity));
    batch.bytes.resize(n_bytes as usize, 0);
    // Pairs with the release store of the head: the bytes before it are complete.
    fence(Ordering::Acquire);
    view.copy(start, &mut batch.bytes)?;
    // Pairs with the release fence of `Ring::make_room`: if the copy has later bytes, the load of
    // the tail below sees the later tail.
    fence(Ordering::Acquire);
    let whole_from = view.bounds()?.tail.max(start);
    Ok((whole_from < start + n_bytes).then_some(Copied { whole_from, ..wanted }))
}

/// The range of positions of which a batch has the bytes.
#[derive(Clone, Copy)]
struct Copied {
    start: u64,
    /// A record begins here, and no byte from here on was overwritten.
    whole_from: u64,
    head: u64,
}

impl Cursor {
    fn give_up(&mut self, head: u64) -> Taken {
        *self = Cursor { position: head, sequence: None };
        Taken::Damaged
    }

    fn read(&mut self, batch: &mut Batch, copied: Copied) -> Taken {
        let mut at = (copied.whole_from - copied.start) as usize;
        // At most this many records fit into the bytes that were skipped.
        let mut most_lost = (copied.whole_from - self.position) / HEADER_BYTES as u64;
        self.position = copied.whole_from;
        while let Some(header) = header_at(&batch.bytes, at) {
            let Some(header) = header else { return self.give_up(copied.head) };
            let end = at + header.record_bytes();
            if end > batch.bytes.len() {
                break;
            }
            let expected = self.sequence.unwrap_or(header.sequence);
            let lost = header.sequence.wrapping_sub(expected) & SEQUENCE_MASK;
            if lost > most_lost {
                return self.give_up(copied.head);
            }
            let bytes_at = at + HEADER_BYTES;
            match header.kind {
                Kind::Sample => {
                    let sample = decode_sample(header.stamp, &batch.bytes[bytes_at..end]);
                    batch.pieces.push(Piece::Sample(sample));
                }
                Kind::Gap => {}
                Kind::Text(_) | Kind::Event => {
                    batch.pieces.push(Piece::Record { header, at: bytes_at, lost });
                    self.sequence = Some((header.sequence + 1) & SEQUENCE_MASK);
                    most_lost = 0;
                }
            }
            self.position += header.record_bytes() as u64;
            at = end;
        }
        self.end(batch, at, copied)
    }

    /// Ends a batch. The rest is the beginning of a record if the batch ends before the head.
    fn end(&mut self, batch: &Batch, at: usize, copied: Copied) -> Taken {
        let left = batch.bytes.len() - at;
        let reaches_head = copied.start + batch.bytes.len() as u64 == copied.head;
        match (reaches_head, left) {
            (true, 0) => Taken::All,
            (false, left) if left < MAX_RECORD_BYTES => Taken::More,
            _ => self.give_up(copied.head),
        }
    }
}

/// The header at this offset. `None`: the bytes end before it does. `Some(None)`: it is not sound.
fn header_at(bytes: &[u8], at: usize) -> Option<Option<Header>> {
    let header = bytes.get(at..)?.first_chunk()?;
    Some(Header::decode(header))
}
