//! Finds the time from which to resume a log that an earlier run has written to a file.
//!
//! Lines of `-v time`, `threadtime` and their modifiers begin with a time. Files of other formats
//! are not resumed.

use crate::time;
use jiff::tz::TimeZone;
use std::time::Duration;

/// The latest time of the lines so far.
#[derive(Clone, Debug)]
pub struct Resume<'a> {
    now: Duration,
    zone: &'a TimeZone,
    latest: Option<Duration>,
    /// The finest digit of any time.
    step_ns: u64,
}

impl<'a> Resume<'a> {
    /// Ignores times later than `now`, which come from a clock that was wrong.
    pub fn new(now: Duration, zone: &'a TimeZone) -> Resume<'a> {
        Resume { now, zone, latest: None, step_ns: 1_000_000_000 }
    }

    /// Reads the next line of the file.
    pub fn line(&mut self, line: &str) {
        let Some((time, rest)) = time::parse(line, self.now, self.zone) else { return };
        if !rest.starts_with(' ') || time > self.now {
            return;
        }
        let nanoseconds = u64::from(time.subsec_nanos());
        while self.step_ns > 1 && !nanoseconds.is_multiple_of(self.step_ns) {
            self.step_ns /= 10;
        }
        self.latest = self.latest.max(Some(time));
    }

    /// The earliest time that is not in the file, as far as the digits of its times tell.
    pub fn from(&self) -> Option<Duration> {
        Some(self.latest? + Duration::from_nanos(self.step_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str], expected: Option<(u64, u32)>) {
        let utc = TimeZone::UTC;
        // 2024-03-10 00:00:00 UTC
        let mut resume = Resume::new(Duration::from_secs(1_710_028_800), &utc);
        lines.iter().for_each(|line| resume.line(line));
        assert_eq!(resume.from(), expected.map(|(s, ns)| Duration::new(s, ns)), "{lines:?}");
    }

    #[test]
    fn the_latest_line_tells() {
        let earlier = "03-09 12:00:00.123  1  1 I Tag: words";
        let later = "03-09 12:00:01.100  1  1 I Tag: words";
        check(&[earlier, later, "--------- beginning of main"], Some((1_709_985_601, 101_000_000)));
        check(&[later, earlier], Some((1_709_985_601, 101_000_000)));
        check(&["1710000000.123456  1  1 I Tag: x"], Some((1_710_000_000, 123_457_000)));
    }

    #[test]
    fn lines_without_a_time_tell_nothing() {
        check(&["I/Tag( 1): words", "", "words", "03-09 12:00:00.123: words"], None);
        check(&["03-10 00:00:01.000 of a clock that was ahead"], None);
    }
}
