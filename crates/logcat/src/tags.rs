//! The file `event-log-tags`: names and values' meanings of binary events, a line each.
//!
//! ```text
//!   30014 am_proc_start (User|1|5),(PID|1|5),(UID|1|5),(Process Name|3)   # a remark
//!   number name         what the values are, see [`crate::event`]
//! ```

use std::collections::HashMap;
use std::fmt;

/// What is known of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its name.
    pub name: String,
    /// What its values are; empty if the file does not say.
    pub format: String,
}

/// Events by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Tags(HashMap<u32, Tag>);

/// A line that is none of a tags file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// From 1.
    pub line: usize,
}

impl fmt::Display for BadLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {} is not a number, a name and descriptions of values", self.line)
    }
}

impl std::error::Error for BadLine {}

impl Tags {
    /// Reads a file's text. The first of two lines with one number counts.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Tags, BadLine> {
        let mut tags = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (number, tag) = parse_line(line).ok_or(BadLine { line: index + 1 })?;
            tags.entry(number).or_insert(tag);
        }
        Ok(Tags(tags))
    }

    /// The event of this number.
    pub fn find(&self, number: u32) -> Option<&Tag> {
        self.0.get(&number)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Tag)> {
        self.0.iter().map(|(number, tag)| (*number, tag))
    }
}

fn parse_line(line: &str) -> Option<(u32, Tag)> {
    let line = line.split('#').next()?.trim();
    let (number, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let (name, format) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_.-@,".contains(letter);
    if name.is_empty() || !name.chars().all(is_of_name) {
        return None;
    }
    let tag = Tag { name: name.to_owned(), format: format.trim().to_owned() };
    Some((number.parse().ok()?, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file() {
        let text = "# event tags\n\n42 answer (to life the universe etc|3)\n  314\tpi  # no \
            values\n\
                    30014 am_proc_start (User|1|5),(PID|1|5)\n42 other\n";
        let tags = Tags::parse(text).unwrap();
        let tag = |name: &str, format: &str| Tag { name: name.into(), format: format.into() };
        assert_eq!(tags.find(42), Some(&tag("answer", "(to life the universe etc|3)")));
        assert_eq!(tags.find(314), Some(&tag("pi", "")));
        assert_eq!(tags.find(30014), Some(&tag("am_proc_start", "(User|1|5),(PID|1|5)")));
        assert_eq!(tags.find(1), None);
        assert_eq!(tags.iter().map(|(number, _)| number).max(), Some(30014));
    }

    #[test]
    fn lines_that_are_wrong_are_told() {
        for wrong in ["x name", "1", "99999999999 name", "1 na(me", "-1 name", "1 #name"] {
            assert_eq!(Tags::parse(&format!("# one\n{wrong}\n")).unwrap_err(), BadLine { line: 2 });
        }
    }
}
