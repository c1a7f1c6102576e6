//! One ring as a reader sees it: records that were copied out of it, dated, and not yet taken.

use crate::cursor::{self, ATTEMPTS, BATCH_BYTES, Batch, Bounds, Cursor, Piece, Taken};
use crate::files::layout::{self, BOUNDS_AT, Place};
use crate::memory::View;
use crate::moment::{Moment, Sample};
use crate::record::Header;
use rustix::fd::BorrowedFd;

/// How long a real-time writer is left alone that a reader cannot keep up with: its lines would
/// come back to it one by one, and what the reader took with them would be few of many. Then it is
/// copied from once, whatever it does.
const LEAVE_ALONE_NS: u64 = 40_000_000;

pub(crate) struct Track {
    pub place: Place,
    pub ring: usize,
    cursor: Cursor,
    batch: Batch,
    dated: Vec<Dated>,
    /// The first of them that is not taken.
    next: usize,
    /// The last one before what comes next.
    sample: Option<Sample>,
    /// The one before.
    sample_before: Option<Sample>,
    last: Moment,
    /// There is more than was copied.
    pub has_more: bool,
    /// The ring was found damaged, which nobody has been told.
    damaged: bool,
    speed: Speed,
}

/// How fast its writer was found to be, if that one is not to be kept from writing. A copy takes
/// all its lines from it, a look at its positions one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speed {
    /// It is read as it writes.
    Followed,
    /// What was not read is overwritten, or may be by now. Then it had come to this head.
    Ahead { head: u64 },
    /// It goes round from one look to the next, and is left alone until then.
    Outrun { until_ns: u64 },
}

/// A record that was copied, and when it was written.
#[derive(Clone, Copy)]
struct Dated {
    moment: Moment,
    header: Header,
    at: usize,
    lost: u64,
}

/// What comes next on a track.
pub(crate) enum Next<'a> {
    /// So many records are gone.
    Lost(u64),
    /// The ring holds what no writer of ours makes; what comes next is later.
    Damaged,
    Record(&'a Header, &'a [u8]),
}

impl Track {
    /// From the oldest record on.
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

    /// From the next record on that will be written. What was there before tells what that one's
    /// time is.
    pub fn skip(&mut self, file: BorrowedFd<'_>, now: Sample) {
        // Enough for what there is now. A fast writer's go on to be read from wherever this ends.
        for _ in 0..=self.place.capacity / BATCH_BYTES {
            self.look(file, ATTEMPTS, |_| now);
            self.next = self.dated.len();
            self.damaged = false;
        }
    }

    /// Copies what has come, if all has been taken that came before. `now` is asked after the copy.
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
        // A file that is shorter than it says has nothing.
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

    /// When the last record was that was copied, if nobody can say what time it is by the ring's
    /// clock: on the line through the last two samples, or at the last sample, which it is near if
    /// it is the only one.
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

    /// Whether what was written behind this track will soon be overwritten: there is room for one
    /// part more, and one that is being written.
    pub fn is_about_to_wrap(&self, file: BorrowedFd<'_>) -> bool {
        let written = self.view(file).bounds().map_or(0, |bounds| self.cursor.behind(bounds.head));
        written >= self.place.capacity / 4 * 3
    }

    /// Whether to look at what a writer has that is not to be kept from writing. One that has
    /// overwritten what was not read may be about to overwrite the rest: the next look tells.
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

    /// Whether there may be more than was copied, which was left to its writer.
    pub fn is_left(&self) -> bool {
        self.speed != Speed::Followed
    }

    /// Whether the next look decides whether its writer is left alone: it is not to come late.
    pub fn is_ahead(&self) -> bool {
        matches!(self.speed, Speed::Ahead { .. })
    }

    /// Records between two samples lie on the line between them; those after the last one, on the
    /// line to now.
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

    /// When what comes next was, if something does.
    pub fn front(&self) -> Option<Moment> {
        let next = self.dated.get(self.next).map(|dated| dated.moment);
        next.or(self.damaged.then_some(self.last))
    }

    /// What comes next: it is taken.
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

/// The last one's moment. None is before the last one, or after now.
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
    use crate::files::layout::STATUS_BYTES;
    use crate::memory::Memory;
    use crate::record::{HEADER_BYTES, Kind, MAX_TEXT_BYTES, record_bytes};
    use crate::ring::{Entry, Ring};
    use baton_shm::own::{Circle, Own};
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::fs::MemfdFlags;
    use std::sync::Arc;

    const PLACE: Place =
        Place { buffer: Buffer::Main, offset: STATUS_BYTES as u64, capacity: 65536 };

    fn ring() -> (OwnedFd, Ring) {
        ring_at(PLACE)
    }

    fn ring_at(place: Place) -> (OwnedFd, Ring) {
        let file = rustix::fs::memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, place.offset + place.capacity).unwrap();
        let front = Arc::new(Own::once(&file, 0, STATUS_BYTES).unwrap());
        let bytes = Circle::map(&file, place.offset, place.capacity as usize).unwrap();
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

    /// What is on the track now: times of records, and how many were lost before each.
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
        // Ten of the kernel's nanoseconds a tick, and the wall clock goes back.
        ring.take_sample(sample(300, 3000, 20_000));
        append(&mut ring, 300, b"after");
        append(&mut ring, 350, b"last");
        let found = look(&mut Track::new(PLACE, 0), &file, sample(400, 4000, 99_999));
        let moment = |monotonic_ns, wall_ns| (Moment { monotonic_ns, wall_ns }, 0);
        assert_eq!(found, [moment(2000, 51_000), moment(3000, 20_000), moment(3500, 20_500)]);
    }

    /// Looks of a reader that spares the writer: how much is written before each, when it comes,
    /// and what it copies.
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

    /// Records of that length which a ring holds when so many have been written.
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
        // Then it is copied from once, and left alone again if it is as fast as before.
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
        // Of more pages than parts: a part may end in the middle of a page.
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

    /// Which are larger than a part.
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

    /// The second record has this byte of its header changed.
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
        // Nothing was overwritten, so nothing can be missing.
        check_damaged(number);
    }
}
