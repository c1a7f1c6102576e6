//! Filters of entries: `ActivityManager:I *:S`.

use crate::entry::Level;
use std::fmt;

/// The least level of each tag that is shown.
#[derive(Clone, Debug)]
pub struct Filter {
    others: Level,
    /// The last rule of a tag counts.
    tags: Vec<(Vec<u8>, Level)>,
}

/// A rule that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule(pub String);

impl fmt::Display for BadRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}' is no filter: one is TAG, or TAG:P with P of V D I W E F S", self.0)
    }
}

impl std::error::Error for BadRule {}

impl Default for Filter {
    /// Shows everything.
    fn default() -> Filter {
        Filter { others: Level::VERBOSE, tags: Vec::new() }
    }
}

/// The level after the colon of a rule.
enum From {
    At(Level),
    /// The default of the tag; for `*`, of all tags.
    Default,
}

impl Filter {
    /// Hides tags without a rule (`-s`).
    pub fn silence(&mut self) {
        self.others = Level::SILENT;
    }

    /// Adds the rules of a text, which are separated by spaces or commas.
    ///
    /// # Errors
    /// The first rule that cannot be parsed. Those before it were added.
    pub fn add(&mut self, rules: &str) -> Result<(), BadRule> {
        rules
            .split([' ', '\t', ','])
            .filter(|rule| !rule.is_empty())
            .try_for_each(|rule| self.add_rule(rule).ok_or_else(|| BadRule(rule.to_owned())))
    }

    fn add_rule(&mut self, rule: &str) -> Option<()> {
        let (tag, from) = match rule.split_once(':') {
            Some((tag, from)) => (tag, parse_from(from.chars().next()?)?),
            None => (rule, From::Default),
        };
        match (tag, from) {
            ("", _) => return None,
            ("*", From::At(level)) => self.others = level,
            ("*", From::Default) => self.others = Level::DEBUG,
            (tag, From::At(level)) => self.tags.push((tag.into(), level)),
            (tag, From::Default) => self.tags.push((tag.into(), Level::VERBOSE)),
        }
        Some(())
    }

    /// Whether an entry with this tag and level is shown.
    pub fn shows(&self, tag: &[u8], level: Level) -> bool {
        let rule = self.tags.iter().rev().find(|(ruled, _)| ruled == tag);
        level >= rule.map_or(self.others, |(_, level)| *level)
    }
}

/// Parses a letter or the number of a level.
fn parse_from(letter: char) -> Option<From> {
    Some(match letter {
        '*' | '1' => From::Default,
        digit @ '2'..='7' => From::At(Level(digit as u8 - b'0')),
        '8' | '9' => From::At(Level::VERBOSE),
        letter => From::At(Level::lettered(letter)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &[&str], shown: &[(&str, char)], hidden: &[(&str, char)]) {
        let mut filter = Filter::default();
        for rule in rules {
            filter.add(rule).unwrap();
        }
        let shows = |(tag, letter): (&str, char)| {
            filter.shows(tag.as_bytes(), Level::lettered(letter).unwrap())
        };
        shown.iter().for_each(|&case| assert!(shows(case), "{rules:?} hides {case:?}"));
        hidden.iter().for_each(|&case| assert!(!shows(case), "{rules:?} shows {case:?}"));
    }

    #[test]
    fn rules() {
        check(&[], &[("Any", 'V')], &[]);
        check(
            &["ActivityManager:I", "*:S"],
            &[("ActivityManager", 'I'), ("ActivityManager", 'F')],
            &[("ActivityManager", 'D'), ("Zygote", 'F')],
        );
        check(&["*:S Tag"], &[("Tag", 'V')], &[("tag", 'F'), ("Tagged", 'F')]);
        check(&["*"], &[("Any", 'D')], &[("Any", 'V')]);
        check(&["*:*"], &[("Any", 'D')], &[("Any", 'V')]);
        check(&["Tag:S"], &[("Other", 'V')], &[("Tag", 'F')]);
        check(
            &["A:w,B:e\tC:3"],
            &[("A", 'W'), ("B", 'E'), ("C", 'D')],
            &[("A", 'I'), ("B", 'W'), ("C", 'V')],
        );
        check(&["A:E", "A:D"], &[("A", 'D')], &[("A", 'V')]);
        check(&["A:warning"], &[("A", 'W')], &[("A", 'I')]);
        check(&["A:*", "B:9"], &[("A", 'V'), ("B", 'V')], &[]);
        check(&["**:E"], &[("Any", 'V')], &[("**", 'W')]);
    }

    #[test]
    fn rules_that_mean_nothing_are_named() {
        for rule in [":I", "Tag:", "Tag:x", "Tag:0"] {
            let said = Filter::default().add(&format!("Good:I {rule}"));
            assert_eq!(said, Err(BadRule(rule.to_owned())));
        }
    }

    #[test]
    fn silence_is_for_tags_without_rules() {
        let mut filter = Filter::default();
        filter.silence();
        filter.add("Tag:D").unwrap();
        assert!(filter.shows(b"Tag", Level::DEBUG) && !filter.shows(b"Tag", Level::VERBOSE));
        assert!(!filter.shows(b"Other", Level::FATAL));
    }
}
