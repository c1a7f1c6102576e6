//! A reader's half of a ring: what is copied out, and what of the copy is believed.
//!
//! The writer may be anybody, and may write while we copy. A copy counts as far as the tail, looked
//! at after the copy, has not passed it; then each record must be sound, the numbers must follow
//! each other, and the last record must end where the head was. A gap in the numbers is allowed
//! where records were overwritten, and tells how many.

use crate::bounds::Bounds;
use crate::memory::{Unreadable, View};
use crate::moment::Sample;
use crate::record::{HEADER_BYTES, Header, Kind, MAX_RECORD_BYTES, SEQUENCE_MASK, decode_sample};
use baton_shm::sync::{Ordering, fence};

/// Most bytes that are copied at once.
pub(crate) const BATCH_BYTES: u64 = 64 * 1024;
/// How often a look copies what its writer overwrites meanwhile. Then it is left for the next look.
pub(crate) const ATTEMPTS: usize = 4;

/// How far one reader has come in one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    position: u64,
    /// The number of the next record, if it is to be this one.
    sequence: Option<u64>,
}

/// Of what was copied, one record or one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A record, whose bytes begin at `at` of the batch. `lost` records before it were overwritten.
    Record {
        header: Header,
        at: usize,
        lost: u64,
    },
    Sample(Sample),
}

/// What was copied, and found sound.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub pieces: Vec<Piece>,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// At the head: there was no more.
    All,
    /// Nowhere: all of it was overwritten meanwhile, and there is more at the next look.
    Outrun,
    /// Before it: there is more at once.
    More,
    /// In what no writer of ours makes. The reader goes on at the head.
    Damaged,
}

impl Cursor {
    /// From the oldest record on. Those that are gone count as lost.
    pub fn oldest() -> Cursor {
        Cursor { position: 0, sequence: Some(0) }
    }

    /// Whether what comes next was overwritten, by a ring's tail.
    #[cfg(not(loom))]
    pub fn is_overtaken(&self, tail: u64) -> bool {
        self.position < tail
    }

    /// How many bytes lie between it and a head.
    #[cfg(not(loom))]
    pub fn behind(&self, head: u64) -> u64 {
        head.saturating_sub(self.position)
    }
}

/// Copies what comes next, in so many attempts, and moves the cursor past it. What the batch had is
/// gone.
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
        // Else the two are of different times. Or the writer is none of ours, and has nothing to
        // tell.
        if start < head && head - start <= capacity {
            let copied = copy(view, batch, Copied { start, whole_from: start, head }, capacity)?;
            if let Some(copied) = copied {
                return Ok(cursor.read(batch, copied));
            }
        }
    }
    Ok(Taken::Outrun)
}

/// `None` if all of it was being overwritten.
fn copy(
    view: &mut View<'_>,
    batch: &mut Batch,
    wanted: Copied,
    capacity: u64,
) -> Result<Option<Copied>, Unreadable> {
    let Copied { start, head, .. } = wanted;
    let n_bytes = (head - start).min(BATCH_BYTES.min(capacity));
    batch.bytes.resize(n_bytes as usize, 0);
    // Pairs with the release store of the head: what was written before it is there to copy.
    fence(Ordering::Acquire);
    view.copy(start, &mut batch.bytes)?;
    // Pairs with the release fence of `Ring::make_room`: bytes from after it would show its tail,
    // too.
    fence(Ordering::Acquire);
    let whole_from = view.bounds()?.tail.max(start);
    Ok((whole_from < start + n_bytes).then_some(Copied { whole_from, ..wanted }))
}

/// What a batch has the bytes of.
#[derive(Clone, Copy)]
struct Copied {
    start: u64,
    /// A record begins here, and nothing from here on was overwritten.
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
        // Records that were skipped have room where they were.
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

    /// What is left of the batch is the beginning of a record, if the batch ends before the head.
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

/// The header at this place: `None` if the bytes end before it does, `Some(None)` if it is not
/// sound.
fn header_at(bytes: &[u8], at: usize) -> Option<Option<Header>> {
    let header = bytes.get(at..)?.first_chunk()?;
    Some(Header::decode(header))
}
