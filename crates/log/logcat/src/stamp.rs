//! The text of times in lines: `11-25 20:21:37.123`.

use crate::entry::Entry;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::Duration;

/// Digits after the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 3
    Milli,
    /// 6
    Micro,
    /// 9
    Nano,
}

/// The clock that is shown, and its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Month, day and time of day.
    Calendar,
    /// Seconds since 1970.
    Epoch,
    /// Seconds since the machine's start.
    Monotonic,
}

/// The parts of a time.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// The clock.
    pub clock: Clock,
    /// Digits after the second.
    pub precision: Precision,
    /// Shows the year of a calendar's time.
    pub year: bool,
    /// Shows the offset of a calendar's time from UTC.
    pub offset: bool,
    /// The zone of a calendar's time.
    pub zone: TimeZone,
}

impl Stamp {
    /// The text of the entry's time.
    pub fn show(&self, entry: &Entry) -> String {
        let time = match self.clock {
            Clock::Monotonic => entry.monotonic,
            Clock::Calendar | Clock::Epoch => entry.wall,
        };
        let fraction = self.fraction(time.subsec_nanos());
        match (self.clock, calendar(time, &self.zone)) {
            (Clock::Monotonic, _) => format!("{:>6}.{fraction}", time.as_secs()),
            (Clock::Calendar, Some((date, offset))) => {
                let date = if self.year { &date[..] } else { &date["yyyy-".len()..] };
                let offset = if self.offset { offset } else { String::new() };
                format!("{date}.{fraction}{offset}")
            }
            // A time beyond the calendar is shown as a number.
            _ => format!("{:>19}.{fraction}", time.as_secs()),
        }
    }

    fn fraction(&self, nanoseconds: u32) -> String {
        match self.precision {
            Precision::Milli => format!("{:03}", nanoseconds / 1_000_000),
            Precision::Micro => format!("{:06}", nanoseconds / 1_000),
            Precision::Nano => format!("{nanoseconds:09}"),
        }
    }
}

/// The date with four digits for the year and the time of day; and the offset from UTC after a
/// space.
fn calendar(time: Duration, zone: &TimeZone) -> Option<(String, String)> {
    let seconds = i64::try_from(time.as_secs()).ok()?;
    let zoned = Timestamp::from_second(seconds).ok()?.to_zoned(zone.clone());
    let (date, clock) = (zoned.date(), zoned.time());
    let date = format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        date.year(),
        date.month(),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second()
    );
    let minutes = zoned.offset().seconds() / 60;
    let sign = if zoned.offset().seconds() < 0 { '-' } else { '+' };
    let offset = format!(" {sign}{:02}{:02}", minutes.abs() / 60, minutes.abs() % 60);
    Some((date, offset))
}
