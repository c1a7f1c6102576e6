//! One ring as a reader sees it: records that were copied and dated, and not returned yet.

use crate::bounds::Bounds;
use crate::cursor::{self, ATTEMPTS, BATCH_BYTES, Batch, Cursor, Piece, Taken};
use crate::files::layout::{self, BOUNDS_AT, Place};
use crate::memory::View;
use crate::moment::{Moment, Sample};
use crate::record::Header;
use rustix::fd::BorrowedFd;

/// How long a reader leaves a real-time writer alone that writes faster than it reads. Each copied
/// cache line would slow the writer down, for few of its records. After this time the ring is
/// copied once, whatever happens to it.
const LEAVE_ALONE_NS: u64 = 40_000_000;

pub(crate) struct Track {
    pub place: Place,
    pub ring: usize,
    cursor: Cursor,
    batch: Batch,
    dated: Vec<Dated>,
    /// The index of the first record that was not returned.
    next: usize,
    /// The last sample before the next record.
    sample: Option<Sample>,
    /// The sample before that one.
    sample_before: Option<Sample>,
    last: Moment,
    /// Whether the ring has more than was copied.
    pub has_more: bool,
    /// Whether the ring was found damaged and that was not reported yet.
    damaged: bool,
    speed: Speed,
}

/// The speed of a real-time writer that must not be slowed down. A copy takes all its cache lines
/// from it, and a look at the positions takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speed {
    /// The reader keeps up with the writer.
    Followed,
    /// Records that were not read were or may be overwritten. At that time the head was here.
    Ahead { head: u64 },
    /// The writer goes round between two looks, and is left alone until this time.
    Outrun { until_ns: u64 },
}

/// A copied record, and its time.
#[derive(Clone, Copy)]
struct Dated {
    moment: Moment,
    header: Header,
    at: usize,
    lost: u64,
}

/// The next item of a track.
pub(crate) enum Next<'a> {
    /// This many records were lost.
    Lost(u64),
    /// The ring has bytes that no writer of this crate makes. Further items are later than these.
    Damaged,
    Record(&'a Header, &'a [u8]),
}

impl Track {
    /// Begins at the oldest record.
    pub fn new(place: Place, ring: usize) -> Track {
        Track {
            place,
            ring,
            cursor: Cursor::oldest(),
            batch: Batch::default(),
            dated: Vec::new(),
            next: 0,
            sample: None,
            sample_before: None,
            last: Moment::default(),
            has_more: false,
            damaged: false,
            speed: Speed::Followed,
        }
    }

    fn view<'a>(&self, file: BorrowedFd<'a>) -> View<'a> {
        let bounds_at = (layout::entry_at(self.ring) + BOUNDS_AT) as u64;
        View { file, bounds_at, bytes_at: self.place.offset, capacity: self.place.capacity }
    }

    /// Skips to the next record that will be written. The samples of the skipped records date it.
    pub fn skip(&mut self, file: BorrowedFd<'_>, now: Sample) {
        // Enough copies for the present records. Later records of a fast writer are read from there
        // on.
        for _ in 0..=self.place.capacity / BATCH_BYTES {
            self.look(file, ATTEMPTS, |_| now);
            self.next = self.dated.len();
            self.damaged = false;
        }
    }

    /// Copies new records, if all earlier ones were returned. `now` is called after the copy.
    pub fn look(
        &mut self,
        file: BorrowedFd<'_>,
        attempts: usize,
        now: impl FnOnce(&Track) -> Sample,
    ) {
        if self.front().is_some() {
            return;
        }
        (self.next, self.has_more) = (0, false);
        self.dated.clear();
        let (mut view, capacity) = (self.view(file), self.place.capacity);
        // A file that is shorter than its entries say has no records.
        let how = (capacity, attempts);
        let taken = cursor::take(&mut view, how, &mut self.cursor, &mut self.batch);
        let Ok(taken) = taken else { return };
        self.has_more = taken == Taken::More;
        self.damaged = taken == Taken::Damaged;
        if self.damaged || !self.batch.pieces.is_empty() {
            let now = now(self);
            self.date(now);
        }
        if self.damaged {
            (self.sample, self.sample_before) = (None, None);
        }
    }

    /// The time of the last copied record by the ring's own clock, for rings whose clock means
    /// nothing now: on the line through the last two samples, or at the only sample.
    pub fn end(&self) -> Sample {
        let samples = self.batch.pieces.iter().filter_map(|piece| match piece {
            Piece::Sample(sample) => Some(*sample),
            Piece::Record { .. } => None,
        });
        let known = self.sample_before.into_iter().chain(self.sample);
        let (before, last) = known.chain(samples).fold((None, None), |(before, last), sample| {
            let is_later = last.is_none_or(|last: Sample| sample.stamp > last.stamp);
            if is_later { (last, Some(sample)) } else { (before, last) }
        });
        let last = last.unwrap_or_default();
        let mut stamps = self.batch.pieces.iter().filter_map(|piece| match piece {
            Piece::Record { header, .. } => Some(header.stamp),
            Piece::Sample(_) => None,
        });
        before.unwrap_or(last).beyond(last, stamps.next_back().unwrap_or(last.stamp))
    }

    /// Whether unread records will soon be overwritten: there is room for one more part, and the
    /// one that is being written.
    pub fn is_about_to_wrap(&self, file: BorrowedFd<'_>) -> bool {
        let written = self.view(file).bounds().map_or(0, |bounds| self.cursor.behind(bounds.head));
        written >= self.place.capacity / 4 * 3
    }

    /// Whether a reader may look at the ring of a real-time writer. If unread records were
    /// overwritten, the writer may be about to overwrite the rest: the next look shows it.
    pub fn may_look(&mut self, file: BorrowedFd<'_>, now_ns: u64) -> bool {
        if self.front().is_some()
            || matches!(self.speed, Speed::Outrun { until_ns } if now_ns < until_ns)
        {
            return false;
        }
        let Ok(Bounds { tail, head }) = self.view(file).bounds() else { return false };
        let (speed, may_look) = match self.speed {
            Speed::Followed if self.cursor.is_overtaken(tail) => (Speed::Ahead { head }, false),
            Speed::Followed => (Speed::Followed, true),
            Speed::Ahead { head: before } if before < tail => {
                (Speed::Outrun { until_ns: now_ns + LEAVE_ALONE_NS }, false)
            }
            Speed::Ahead { .. } => (Speed::Followed, true),
            Speed::Outrun { .. } => (Speed::Ahead { head }, true),
        };
        self.speed = speed;
        may_look
    }

    /// Whether there may be more records, which were left to the writer.
    pub fn is_left(&self) -> bool {
        self.speed != Speed::Followed
    }

    /// Whether the next look decides if the writer is left alone. That look must not be late.
    pub fn is_ahead(&self) -> bool {
        matches!(self.speed, Speed::Ahead { .. })
    }

    /// Dates records: between two samples on the line between them, and after the last sample on
    /// the line to now.
    fn date(&mut self, now: Sample) {
        let mut undated = 0;
        for piece in &self.batch.pieces {
            match *piece {
                Piece::Record { header, at, lost } => {
                    self.dated.push(Dated { moment: Moment::default(), header, at, lost });
                }
                Piece::Sample(sample) => {
                    let before = self.sample.unwrap_or(sample);
                    if sample.stamp > before.stamp || self.sample.is_none() {
                        self.last =
                            date_all(&mut self.dated[undated..], before, sample, self.last, now);
                        undated = self.dated.len();
                        self.sample_before = self.sample.replace(sample);
                    }
                }
            }
        }
        let before = self.sample.unwrap_or(now);
        self.last = date_all(&mut self.dated[undated..], before, now, self.last, now);
    }

    /// The time of the next item, if there is one.
    pub fn front(&self) -> Option<Moment> {
        let next = self.dated.get(self.next).map(|dated| dated.moment);
        next.or(self.damaged.then_some(self.last))
    }

    /// Takes the next item.
    pub fn take(&mut self) -> Option<Next<'_>> {
        let Some(dated) = self.dated.get_mut(self.next) else {
            return std::mem::take(&mut self.damaged).then_some(Next::Damaged);
        };
        let lost = std::mem::take(&mut dated.lost);
        if lost > 0 {
            return Some(Next::Lost(lost));
        }
        self.next += 1;
        let bytes = &self.batch.bytes[dated.at..][..usize::from(dated.header.bytes)];
        Some(Next::Record(&dated.header, bytes))
    }
}

/// Dates records between two samples. No time is before `last` or after `now`. Returns the last
/// time.
fn date_all(dated: &mut [Dated], from: Sample, to: Sample, last: Moment, now: Sample) -> Moment {
    dated.iter_mut().fold(last, |last, dated| {
        let moment = from.date(to, dated.header.stamp);
        let monotonic_ns = moment.monotonic_ns.min(now.monotonic_ns).max(last.monotonic_ns);
        dated.moment = Moment { monotonic_ns, ..moment };
        dated.moment
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Buffer, Priority};
    use crate::files::layout::FRONT_BYTES;
    use crate::memory::Memory;
    use crate::record::{HEADER_BYTES, Kind, MAX_TEXT_BYTES, record_bytes};
    use crate::ring::{Entry, Ring};
    use baton_shm::own::{MirroredRing, Own};
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::fs::MemfdFlags;
    use std::sync::Arc;

    const PLACE: Place =
        Place { buffer: Buffer::Main, offset: FRONT_BYTES as u64, capacity: 65536 };

    fn ring() -> (OwnedFd, Ring) {
        ring_at(PLACE)
    }

    fn ring_at(place: Place) -> (OwnedFd, Ring) {
        let file = rustix::fs::memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, place.offset + place.capacity).unwrap();
        let front = Arc::new(Own::once(&file, 0, FRONT_BYTES).unwrap());
        let bytes = MirroredRing::map(&file, place.offset, place.capacity as usize).unwrap();
        let memory = Memory::new(&front, layout::entry_at(0) + BOUNDS_AT, bytes);
        (file, Ring::new(memory))
    }

    fn append(ring: &mut Ring, stamp: u64, message: &[u8]) {
        let kind = Kind::Text(Priority::Info);
        let bytes = record_bytes(message.len());
        ring.make_room(bytes);
        assert!(ring.end_of(bytes) <= ring.next_part(), "a part ends where a record does");
        ring.append(&Entry { stamp, kind, thread: 1, tag: &[], message });
    }

    /// Takes all records of a track: their times, and the number of lost records before each.
    fn look(track: &mut Track, file: &OwnedFd, now: Sample) -> Vec<(Moment, u64)> {
        let mut found = Vec::new();
        loop {
            track.look(file.as_fd(), ATTEMPTS, |_| now);
            let mut lost = 0;
            while let Some(moment) = track.front() {
                match track.take().unwrap() {
                    Next::Lost(n_records) => lost = n_records,
                    Next::Damaged => panic!("an honest writer"),
                    Next::Record(..) => found.push((moment, std::mem::take(&mut lost))),
                }
            }
            if !track.has_more {
                return found;
            }
        }
    }

    fn sample(stamp: u64, monotonic_ns: u64, wall_ns: i64) -> Sample {
        Sample { stamp, monotonic_ns, wall_ns }
    }

    #[test]
    fn a_wall_clock_that_is_set_changes_what_comes_after() {
        let (file, mut ring) = ring();
        ring.take_sample(sample(100, 1000, 50_000));
        append(&mut ring, 200, b"before");
        // A tick is ten nanoseconds of CLOCK_MONOTONIC, and the wall clock goes back.
        ring.take_sample(sample(300, 3000, 20_000));
        append(&mut ring, 300, b"after");
        append(&mut ring, 350, b"last");
        let found = look(&mut Track::new(PLACE, 0), &file, sample(400, 4000, 99_999));
        let moment = |monotonic_ns, wall_ns| (Moment { monotonic_ns, wall_ns }, 0);
        assert_eq!(found, [moment(2000, 51_000), moment(3000, 20_000), moment(3500, 20_500)]);
    }

    /// Looks of a reader that spares the writer: the records written before each, its time, and the
    /// records that it copies.
    fn check_sparing(looks: &[(usize, u64, usize)]) {
        let (file, mut ring) = ring();
        ring.take_sample(sample(0, 0, 0));
        let (mut track, mut n_known, mut n_written) = (Track::new(PLACE, 0), 0, 0);
        for (number, &(n_records, at_ns, n_copied)) in looks.iter().enumerate() {
            (0..n_records).for_each(|_| append(&mut ring, 7, b"words"));
            n_written += n_records as u64;
            let may_look = track.may_look(file.as_fd(), at_ns);
            let found = if may_look { look(&mut track, &file, sample(9, 1000, 0)) } else { vec![] };
            assert_eq!(found.len(), n_copied, "look {number}");
            n_known += found.iter().map(|&(_, lost)| lost + 1).sum::<u64>();
        }
        assert_eq!(n_known == n_written, !track.is_left());
    }

    /// The records of this length that a ring has after this many were written.
    fn held(n_written: usize) -> usize {
        let (file, mut ring) = ring();
        ring.take_sample(sample(0, 0, 0));
        (0..n_written).for_each(|_| append(&mut ring, 7, b"words"));
        look(&mut Track::new(PLACE, 0), &file, sample(9, 1000, 0)).len()
    }

    #[test]
    fn who_has_gone_round_between_two_looks_is_left_alone_for_a_while() {
        const END: u64 = 2 + LEAVE_ALONE_NS;
        let round = 5000;
        let all = held(10 + 3 * round);
        check_sparing(&[(10, 0, 10), (round, 1, 0), (round, 2, 0), (0, END - 1, 0)]);
        // The ring is copied once, and the writer is left alone again if it is as fast as before.
        let begun = [(10, 0, 10), (round, 1, 0), (round, 2, 0), (round, END, all)];
        check_sparing(&[&begun[..], &[(10, END + 1, 10), (10, END + 2, 10)]].concat());
        let fast = [(round, END + 1, 0), (0, END + LEAVE_ALONE_NS, 0)];
        check_sparing(&[&begun[..], &fast].concat());
    }

    #[test]
    fn who_was_ahead_once_is_followed() {
        let round = 5000;
        check_sparing(&[(10, 0, 10), (round, 1, 0), (0, 2, held(10 + round)), (10, 3, 10)]);
        check_sparing(&[(10, 0, 10), (round, 1, 0), (20, 2, held(10 + round + 20)), (10, 3, 10)]);
    }

    #[test]
    fn stamps_of_a_liar_go_neither_back_nor_beyond_now() {
        let (file, mut ring) = ring();
        ring.take_sample(sample(100, 1000, 0));
        for stamp in [300, 200, u64::MAX, 0] {
            append(&mut ring, stamp, b"");
        }
        let found = look(&mut Track::new(PLACE, 0), &file, sample(400, 4000, 0));
        let times: Vec<u64> = found.iter().map(|(moment, _)| moment.monotonic_ns).collect();
        assert_eq!(times, [3000, 3000, 4000, 4000]);
    }

    #[test]
    fn every_record_is_seen_or_counted() {
        let (file, mut ring) = ring();
        ring.take_sample(sample(0, 0, 0));
        let mut track = Track::new(PLACE, 0);
        let (mut written, mut known) = (0, 0);
        for n_records in [1, 10, 1000, 0, 5000, 3, 100_000, 1] {
            for _ in 0..n_records {
                append(&mut ring, written, &vec![7; written as usize % 300]);
                written += 1;
            }
            for (_, lost) in look(&mut track, &file, sample(written, written, 0)) {
                known += lost + 1;
            }
            assert_eq!(known, written);
        }
        let (bounds, capacity) = (track.view(file.as_fd()).bounds().unwrap(), PLACE.capacity);
        assert!(bounds.head - bounds.tail > capacity * 7 / 8, "{bounds:?}");
    }

    #[test]
    fn short_records_lie_on_one_page() {
        let place = Place { capacity: 1 << 20, ..PLACE };
        let (file, mut ring) = ring_at(place);
        ring.take_sample(sample(0, 0, 0));
        let (page, mut n_over) = (4096, 0);
        for number in 0..20_000 {
            let message = vec![7; number * 7 % 480];
            append(&mut ring, 0, &message);
            let end = ring.end_of(0);
            let start = end - record_bytes(message.len()) as u64;
            let is_over = start / page != (end - 1) / page;
            n_over += usize::from(is_over);
            assert!(!is_over || start % page > page - HEADER_BYTES as u64, "{start} to {end}");
        }
        assert!(n_over > 0, "no page's end was too short for a gap");
        let found = look(&mut Track::new(place, 0), &file, sample(0, 0, 0));
        assert_eq!(found.iter().map(|&(_, lost)| lost + 1).sum::<u64>(), 20_000);
    }

    #[test]
    fn the_tail_makes_way_for_records_of_any_length_and_gaps() {
        // More pages than parts, so a part may end in the middle of a page.
        let place = Place { capacity: 1 << 18, ..PLACE };
        let (file, mut ring) = ring_at(place);
        ring.take_sample(sample(0, 0, 0));
        let track = Track::new(place, 0);
        let mut random = 1_u64;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let lengths = [random >> 57, random >> 55, random >> 52];
            append(&mut ring, 0, &vec![7; lengths[(random >> 32) as usize % 3] as usize % 4066]);
            let Bounds { tail, head } = track.view(file.as_fd()).bounds().unwrap();
            assert!(head - tail <= place.capacity, "{tail} to {head}");
        }
    }

    /// Records that are larger than a part.
    #[test]
    fn the_largest_records_go_round() {
        let (file, mut ring) = ring();
        let mut track = Track::new(PLACE, 0);
        ring.take_sample(sample(0, 0, 0));
        let mut known = 0;
        for written in 1..=200 {
            let length = if written % 3 == 0 { 1 } else { MAX_TEXT_BYTES };
            append(&mut ring, written, &vec![7; length]);
            if written % 50 == 0 {
                for (_, lost) in look(&mut track, &file, sample(written, written, 0)) {
                    known += lost + 1;
                }
                assert_eq!(known, written);
            }
        }
    }

    /// Changes this byte of the second record's header, and checks that the damage is found.
    fn check_damaged(at: u64) {
        let (file, mut ring) = ring();
        ring.take_sample(sample(0, 0, 0));
        append(&mut ring, 1, b"first");
        append(&mut ring, 2, b"second");
        rustix::io::pwrite(&file, &[77], PLACE.offset + 40 + 32 + at).unwrap();
        let mut track = Track::new(PLACE, 0);
        let now = sample(9, 9, 0);
        track.look(file.as_fd(), ATTEMPTS, |_| now);
        assert!(matches!(track.take(), Some(Next::Record(_, b"first"))));
        assert!(track.front().is_some());
        assert!(matches!(track.take(), Some(Next::Damaged)));
        assert!(track.front().is_none());
        append(&mut ring, 3, b"third");
        track.look(file.as_fd(), ATTEMPTS, |_| now);
        assert!(matches!(track.take(), Some(Next::Record(_, b"third"))));
    }

    #[test]
    fn what_is_damaged_is_told_and_passed_over() {
        let (kind, number) = (8, 10);
        check_damaged(kind);
        // Nothing was overwritten, so no number may be missing.
        check_damaged(number);
    }
}
