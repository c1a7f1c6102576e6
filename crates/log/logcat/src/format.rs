//! `-v`: the parts of a line.

use crate::event;
use crate::stamp::{Clock, Precision, Stamp};
use jiff::tz::TimeZone;
use std::fmt;

/// The parts of a line around the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `I/Tag     (  123): message`
    Brief,
    /// `I(  123) message  (Tag)`
    Process,
    /// `I/Tag     : message`
    Tag,
    /// `I(  123:  124) message`
    Thread,
    /// `message`
    Raw,
    /// `11-25 20:21:37.123 I/Tag     (  123): message`
    Time,
    /// `11-25 20:21:37.123   123   124 I Tag     : message`
    ThreadTime,
    /// `[ 11-25 20:21:37.123   123:  124 I/Tag      ]`, the message, and an empty line.
    Long,
}

/// The value of `-v`.
#[derive(Clone, Debug)]
pub struct Format {
    /// The parts of a line around the message.
    pub verb: Verb,
    /// The form of the time, for verbs with a time.
    pub stamp: Stamp,
    /// Shows each level in its own colour.
    pub color: bool,
    /// Shows the writer's user.
    pub uid: bool,
    /// Escapes bytes that a terminal would not show.
    pub printable: bool,
    /// The style of binary events.
    pub events: event::Style,
}

/// A word that `-v` does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFormat(pub String);

impl fmt::Display for BadFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}' is no format, no modifier and no time zone", self.0)
    }
}

impl std::error::Error for BadFormat {}

/// The kind of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It selects the parts around the message.
    Verb,
    /// It changes one of these parts.
    Modifier,
}

impl Format {
    /// A format without modifiers, with times in this zone.
    pub fn new(verb: Verb, zone: TimeZone) -> Format {
        let (clock, precision) = (Clock::Calendar, Precision::Milli);
        let stamp = Stamp { clock, precision, year: false, offset: false, zone };
        let events = event::Style::Plain;
        Format { verb, stamp, color: false, uid: false, printable: false, events }
    }

    /// Applies the words of `-v`, which are separated by commas, colons or spaces. Says whether a
    /// verb was among them.
    ///
    /// # Errors
    /// The first unknown word.
    pub fn add(&mut self, words: &str) -> Result<Word, BadFormat> {
        let is_between = |letter: char| ",:; \t\n\r\x0c".contains(letter);
        let mut found = Word::Modifier;
        for word in words.split(is_between).filter(|word| !word.is_empty()) {
            let known = self.add_word(word).ok_or_else(|| BadFormat(word.to_owned()))?;
            if known == Word::Verb {
                found = Word::Verb;
            }
        }
        Ok(found)
    }

    fn add_word(&mut self, word: &str) -> Option<Word> {
        if let Some(verb) = Verb::named(word) {
            self.verb = verb;
            return Some(Word::Verb);
        }
        match word {
            "color" | "colour" => self.color = true,
            "uid" => self.uid = true,
            "printable" => self.printable = true,
            "descriptive" => self.events = event::Style::Descriptive,
            "usec" if self.stamp.precision == Precision::Nano => {}
            "usec" => self.stamp.precision = Precision::Micro,
            "nsec" => self.stamp.precision = Precision::Nano,
            "epoch" if self.stamp.clock == Clock::Monotonic => {}
            "epoch" => self.stamp.clock = Clock::Epoch,
            "monotonic" => self.stamp.clock = Clock::Monotonic,
            "year" => self.stamp.year = true,
            // A second `zone` cancels the first, as on Android.
            "zone" => self.stamp.offset = !self.stamp.offset,
            zone => {
                self.stamp.zone = named_zone(zone)?;
                self.stamp.offset = !self.stamp.offset;
            }
        }
        Some(Word::Modifier)
    }
}

impl Verb {
    fn named(word: &str) -> Option<Verb> {
        Some(match word {
            "brief" => Verb::Brief,
            "process" => Verb::Process,
            "tag" => Verb::Tag,
            "thread" => Verb::Thread,
            "raw" => Verb::Raw,
            "time" => Verb::Time,
            "threadtime" => Verb::ThreadTime,
            "long" => Verb::Long,
            _ => return None,
        })
    }
}

/// A time zone by its name in the zone database, or by rules as in `TZ`.
pub fn named_zone(name: &str) -> Option<TimeZone> {
    match name {
        "UTC" => Some(TimeZone::UTC),
        _ => TimeZone::get(name).or_else(|_| TimeZone::posix(name)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(words: &[&str]) -> Result<Format, BadFormat> {
        let mut format = Format::new(Verb::ThreadTime, TimeZone::UTC);
        words.iter().try_for_each(|words| format.add(words).map(|_| ()))?;
        Ok(format)
    }

    #[test]
    fn words_add_up() {
        let format = format(&["time", "color,usec", "year zone", "uid"]).unwrap();
        assert_eq!((format.verb, format.stamp.precision), (Verb::Time, Precision::Micro));
        assert!(format.color && format.stamp.year && format.stamp.offset && format.uid);
        assert!(!format.printable);
    }

    #[test]
    fn a_zone_is_shown_with_its_offset() {
        assert!(format(&["UTC"]).unwrap().stamp.offset);
        assert!(!format(&["UTC", "zone"]).unwrap().stamp.offset);
        let eastern = format(&["EST5EDT,M3.2.0,M11.1.0"]);
        assert_eq!(
            eastern.unwrap_err(),
            BadFormat("M3.2.0".to_owned()),
            "commas are between words"
        );
        assert!(format(&["JST-9"]).unwrap().stamp.offset);
    }

    #[test]
    fn the_finer_and_the_machines_own_clock_win_in_either_order() {
        for words in [["usec", "nsec"], ["nsec", "usec"]] {
            assert_eq!(format(&words).unwrap().stamp.precision, Precision::Nano);
        }
        for words in [["epoch", "monotonic"], ["monotonic", "epoch"]] {
            assert_eq!(format(&words).unwrap().stamp.clock, Clock::Monotonic);
        }
    }

    #[test]
    fn verbs_are_told_from_modifiers() {
        let mut format = Format::new(Verb::ThreadTime, TimeZone::UTC);
        assert_eq!(format.add("color"), Ok(Word::Modifier));
        assert_eq!(format.add("color,brief"), Ok(Word::Verb));
        assert_eq!(format.add("nonsense/words"), Err(BadFormat("nonsense/words".to_owned())));
    }
}
