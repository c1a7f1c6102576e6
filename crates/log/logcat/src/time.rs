//! `-t TIME` and `-T TIME`: `MM-DD hh:mm:ss.mmm` with an optional year before it, or seconds since
//! 1970. The fraction is optional.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use std::time::Duration;

/// A date without a year that is further ahead than this belongs to last year.
const AHEAD: Duration = Duration::from_secs(24 * 3600);

/// Parses a time at the beginning of a text. Returns the time since 1970, and the rest of the text.
/// `now` gives the year of a date without one.
pub fn parse<'a>(text: &'a str, now: Duration, zone: &TimeZone) -> Option<(Duration, &'a str)> {
    let mut rest = text;
    let time = if let Some((month, day)) = leading(&mut rest, date) {
        let clock = clock(&mut rest)?;
        let year = civil(now, zone)?.year();
        let in_year = |year| at(Date::new(year, month, day).ok()?, clock, zone);
        match in_year(year) {
            Some(time) if time <= now + AHEAD => time,
            _ => in_year(year - 1)?,
        }
    } else if let Some((year, (month, day))) = leading(&mut rest, dated) {
        let date = Date::new(year, month, day).ok()?;
        at(date, clock(&mut rest)?, zone)?
    } else {
        let seconds: u64 = number(&mut rest, 1..=19)?;
        Duration::from_secs(seconds)
    };
    let nanoseconds = fraction(&mut rest);
    Some((time + Duration::from_nanos(nanoseconds), rest))
}

/// Calls `read`, and restores the position if that fails.
fn leading<'a, T>(rest: &mut &'a str, read: impl FnOnce(&mut &'a str) -> Option<T>) -> Option<T> {
    let mut ahead = *rest;
    let value = read(&mut ahead)?;
    *rest = ahead;
    Some(value)
}

fn date(rest: &mut &str) -> Option<(i8, i8)> {
    let month = number(rest, 1..=2)?;
    sign(rest, '-')?;
    let day = number(rest, 1..=2)?;
    rest.starts_with(' ').then_some((month, day))
}

fn dated(rest: &mut &str) -> Option<(i16, (i8, i8))> {
    let year = number(rest, 4..=4)?;
    sign(rest, '-')?;
    Some((year, date(rest)?))
}

fn clock(rest: &mut &str) -> Option<(i8, i8, i8)> {
    *rest = rest.trim_start_matches(' ');
    let hour = number(rest, 1..=2)?;
    sign(rest, ':')?;
    let minute = number(rest, 1..=2)?;
    sign(rest, ':')?;
    Some((hour, minute, number(rest, 1..=2)?))
}

fn at(date: Date, (hour, minute, second): (i8, i8, i8), zone: &TimeZone) -> Option<Duration> {
    // A leap second becomes the second before.
    let time = jiff::civil::Time::new(hour, minute, second.min(59), 0).ok()?;
    let time = zone.to_timestamp(DateTime::from_parts(date, time)).ok()?;
    Some(Duration::from_secs(u64::try_from(time.as_second()).ok()?))
}

fn civil(time: Duration, zone: &TimeZone) -> Option<DateTime> {
    let seconds = i64::try_from(time.as_secs()).ok()?;
    Some(zone.to_datetime(jiff::Timestamp::from_second(seconds).ok()?))
}

/// Parses a fraction into nanoseconds. Digits after the ninth are ignored.
fn fraction(rest: &mut &str) -> u64 {
    let Some(digits) = rest.strip_prefix('.') else { return 0 };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    *rest = &digits[end..];
    let nine = format!("{:0<9.9}", &digits[..end]);
    nine.parse().unwrap_or(0)
}

fn sign(rest: &mut &str, sign: char) -> Option<()> {
    *rest = rest.strip_prefix(sign)?;
    Some(())
}

/// Parses a number with this many digits.
fn number<T: std::str::FromStr>(
    rest: &mut &str,
    digits: std::ops::RangeInclusive<usize>,
) -> Option<T> {
    let found = rest.bytes().take(*digits.end()).take_while(u8::is_ascii_digit).count();
    let (number, after) = rest.split_at(found);
    let number = number.parse().ok().filter(|_| digits.contains(&found))?;
    *rest = after;
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-03-10 00:00:00 UTC
    const NOW: Duration = Duration::from_secs(1_710_028_800);

    fn check(text: &str, zone: &TimeZone, expected: Option<(u64, u32, &str)>) {
        let found = parse(text, NOW, zone);
        let found = found.map(|(time, rest)| (time.as_secs(), time.subsec_nanos(), rest));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn times() {
        let utc = TimeZone::UTC;
        check("03-09 12:00:00.123", &utc, Some((1_709_985_600, 123_000_000, "")));
        check("3-9 12:00:00", &utc, Some((1_709_985_600, 0, "")));
        check("03-11 00:00:00.0", &utc, Some((1_710_115_200, 0, "")));
        check("2023-12-31 23:59:59.999999999", &utc, Some((1_704_067_199, 999_999_999, "")));
        check("1710000000.5", &utc, Some((1_710_000_000, 500_000_000, "")));
        check("1710000000.1234567891", &utc, Some((1_710_000_000, 123_456_789, "")));
        check("03-09 12:00:00.123 more", &utc, Some((1_709_985_600, 123_000_000, " more")));
        for wrong in
            ["", "x", "13-01 00:00:00", "02-30 00:00:00.0", "2024-1", "03-09 25:00:00", "-5"]
        {
            let found = parse(wrong, NOW, &utc);
            assert!(found.is_none_or(|(_, rest)| !rest.is_empty()), "{wrong}: {found:?}");
        }
    }

    #[test]
    fn a_date_that_is_to_come_is_of_last_year() {
        check("12-31 00:00:00.0", &TimeZone::UTC, Some((1_703_980_800, 0, "")));
        // This year's is too far ahead, and last year had no such day.
        check("03-12 00:00:00.0", &TimeZone::UTC, Some((1_678_579_200, 0, "")));
    }

    #[test]
    fn times_are_of_their_zone() {
        let tokyo = TimeZone::posix("JST-9").unwrap();
        check("03-09 21:00:00.000", &tokyo, Some((1_709_985_600, 0, "")));
    }
}
