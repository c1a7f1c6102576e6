//! Time: the stamps of writers, and their meaning for readers.
//!
//! A stamp costs one read of one clock. *Samples* tell its meaning: each is a stamp together with
//! the kernel's clocks at that time. A ring has one at the beginning of each part, and one every
//! second. A reader interpolates between the sample before a record and the next one, or one of its
//! own. So no rate has to be known in advance, and a change of the wall clock is seen within a
//! second.

use baton_shm::clock;

/// The clock of stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Source {
    /// The processor's counter, if the kernel uses it for its own clocks.
    Counter = 1,
    /// CLOCK_MONOTONIC through the vDSO.
    Vdso = 2,
    /// CLOCK_MONOTONIC through a system call, to measure the cost of that.
    SystemCall = 3,
}

/// A stamp, and the kernel's clocks at that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The stamp, in the units of its source.
    pub stamp: u64,
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, in nanoseconds since 1970.
    pub wall_ns: i64,
}

/// A time, by both of the kernel's clocks as they were then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// CLOCK_MONOTONIC, in nanoseconds: the order of records.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, in nanoseconds since 1970.
    pub wall_ns: i64,
}

impl Source {
    /// The source with this number in files.
    pub fn numbered(number: u32) -> Option<Source> {
        [Source::Counter, Source::Vdso, Source::SystemCall]
            .into_iter()
            .find(|&source| source as u32 == number)
    }

    /// The name of the source, for people.
    pub fn name(self) -> &'static str {
        match self {
            Source::Counter => "counter",
            Source::Vdso => "vdso",
            Source::SystemCall => "system-call",
        }
    }
}

impl Source {
    /// The fastest source that this machine has.
    pub fn best() -> Source {
        if clock::counter_is_the_kernels() { Source::Counter } else { Source::Vdso }
    }

    /// The stamp of now.
    #[inline]
    pub fn stamp(self) -> u64 {
        match self {
            Source::Counter => clock::counter(),
            slower => slower.ask_the_kernel(),
        }
    }

    /// Not inlined, so that the path of the counter stays short.
    #[inline(never)]
    fn ask_the_kernel(self) -> u64 {
        match self {
            Source::SystemCall => clock::now_ns_by_system_call(),
            _ => clock::now_ns(),
        }
    }

    /// The stamp and the clocks of now: the fastest of a few attempts, as other threads may run in
    /// between.
    pub fn sample(self) -> Sample {
        let attempt = || {
            let before = self.stamp();
            let (monotonic_ns, wall_ns) = (clock::now_ns(), clock::wall_ns());
            let after = self.stamp();
            (after.wrapping_sub(before), Sample { stamp: before, monotonic_ns, wall_ns })
        };
        let attempts = [attempt(), attempt(), attempt()];
        let (_, sample) =
            attempts.into_iter().min_by_key(|(took, _)| *took).expect("three of them");
        sample
    }
}

/// Samples are at least this often in a ring, if there are stamps that often.
const SAMPLE_PERIOD_NS: u64 = 1_000_000_000;
/// The least distance of two samples from which a rate is taken, since reading the clocks takes
/// time.
const LEAST_LENGTH_NS: u64 = 1_000_000;
/// The period until a rate is known: 40 ms of the slowest counter in use.
const FIRST_PERIOD: u64 = 1_000_000;

impl Sample {
    /// The time of the sample.
    pub fn moment(self) -> Moment {
        Moment { monotonic_ns: self.monotonic_ns, wall_ns: self.wall_ns }
    }

    /// The stamp from which on a sample after this one is due. The sample before this one gives the
    /// rate.
    pub(crate) fn due(self, before: Option<Sample>) -> u64 {
        let period = before.and_then(|before| {
            let length_ns = self.monotonic_ns.saturating_sub(before.monotonic_ns);
            let whole = u128::from(self.stamp.saturating_sub(before.stamp));
            let period = whole * u128::from(SAMPLE_PERIOD_NS) / u128::from(length_ns.max(1));
            (length_ns >= LEAST_LENGTH_NS).then_some(u64::try_from(period).ok()?)
        });
        self.stamp.saturating_add(period.unwrap_or(FIRST_PERIOD))
    }

    /// Extrapolates a stamp after `later` on the line through both samples. If both are one sample,
    /// returns that one.
    pub(crate) fn beyond(self, later: Sample, stamp: u64) -> Sample {
        let length = u128::from(later.monotonic_ns.saturating_sub(self.monotonic_ns));
        let whole = u128::from(later.stamp.saturating_sub(self.stamp));
        let further = u128::from(stamp.saturating_sub(later.stamp));
        let passed = (length * further).checked_div(whole).unwrap_or(0);
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        Sample {
            stamp: stamp.max(later.stamp),
            monotonic_ns: later.monotonic_ns.saturating_add(passed),
            wall_ns: later.wall_ns.saturating_add_unsigned(passed),
        }
    }

    /// Interpolates the time of a stamp between this sample and a later one. The result is between
    /// the two for any stamp.
    pub fn date(self, later: Sample, stamp: u64) -> Moment {
        let length = later.monotonic_ns.saturating_sub(self.monotonic_ns);
        let whole = later.stamp.saturating_sub(self.stamp);
        let part = stamp.saturating_sub(self.stamp).min(whole);
        let passed = u128::from(length) * u128::from(part) / u128::from(whole.max(1));
        let passed = passed as u64;
        Moment {
            monotonic_ns: self.monotonic_ns.saturating_add(passed),
            wall_ns: self.wall_ns.saturating_add_unsigned(passed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_lie_on_the_line_between_two_samples() {
        let first = Sample { stamp: 1000, monotonic_ns: 500, wall_ns: -100 };
        let second = Sample { stamp: 3000, monotonic_ns: 1500, wall_ns: 9999 };
        for (stamp, expected_ns) in
            [(1000, 500), (2000, 1000), (3000, 1500), (0, 500), (u64::MAX, 1500)]
        {
            let wall_ns = expected_ns as i64 - 600;
            let expected = Moment { monotonic_ns: expected_ns, wall_ns };
            assert_eq!(first.date(second, stamp), expected, "{stamp}");
        }
    }

    #[test]
    fn the_line_through_two_samples_goes_on() {
        let first = Sample { stamp: 1000, monotonic_ns: 500, wall_ns: -100 };
        let second = Sample { stamp: 3000, monotonic_ns: 1500, wall_ns: 9000 };
        let check = |from: Sample, stamp: u64, monotonic_ns, wall_ns| {
            let expected = Sample { stamp: stamp.max(3000), monotonic_ns, wall_ns };
            assert_eq!(from.beyond(second, stamp), expected, "{stamp}");
        };
        check(first, 5000, 2500, 10_000);
        check(first, 3000, 1500, 9000);
        check(first, 7, 1500, 9000);
        check(second, 5000, 1500, 9000);
        assert_eq!(first.beyond(second, u64::MAX).monotonic_ns, 1500 + (u64::MAX - 3000) / 2);
    }

    #[test]
    fn a_sample_is_due_a_second_after_the_last_one() {
        let first = Sample { stamp: 1000, monotonic_ns: 0, wall_ns: 0 };
        let far = Sample { stamp: 251_000, monotonic_ns: 10_000_000, wall_ns: 0 };
        let near = Sample { stamp: 2000, monotonic_ns: 40_000, wall_ns: 0 };
        assert_eq!(first.due(None), 1_001_000);
        assert_eq!(far.due(Some(first)), 251_000 + 25_000_000);
        assert_eq!(near.due(Some(first)), 1_002_000);
    }

    #[test]
    fn samples_that_make_no_sense_date_all_the_same() {
        let ends = Sample { stamp: u64::MAX, monotonic_ns: u64::MAX, wall_ns: i64::MAX };
        let zero = Sample::default();
        for (from, to) in [(zero, ends), (ends, zero), (ends, ends)] {
            for stamp in [0, 1, u64::MAX / 2, u64::MAX] {
                let date = from.date(to, stamp);
                assert!(date.monotonic_ns >= from.monotonic_ns);
            }
        }
    }

    #[test]
    fn a_sample_tells_the_time_of_the_kernel() {
        for source in [Source::Counter, Source::Vdso, Source::SystemCall] {
            let before_ns = clock::now_ns();
            let first = source.sample();
            let stamp = source.stamp();
            let second = source.sample();
            let after_ns = clock::now_ns();
            let date_ns = first.date(second, stamp).monotonic_ns;
            assert!(before_ns <= date_ns && date_ns <= after_ns, "{source:?}");
            assert_eq!(Source::numbered(source as u32), Some(source));
        }
    }
}
