//! The file `event-log-tags`: a line with name and value descriptions for each binary event.
//!
//! ```text
//!   30014 am_proc_start (User|1|5),(PID|1|5),(UID|1|5),(Process Name|3)   # a remark
//!   number name         what the values are, see [`crate::event`]
//! ```

use std::collections::HashMap;
use std::fmt;

/// The tag of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its name.
    pub name: String,
    /// The descriptions of its values; empty if the file has none.
    pub format: String,
}

/// Tags of events, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Tags(HashMap<u32, Tag>);

/// A line that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The number of the line, from 1.
    pub line: usize,
}

impl fmt::Display for BadLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {} is not a number, a name and descriptions of values", self.line)
    }
}

impl std::error::Error for BadLine {}

impl Tags {
    /// Parses the text of a file. Of two lines with one number the first counts.
    ///
    /// # Errors
    /// The first line that cannot be parsed.
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

    /// The tag with this number.
    pub fn find(&self, number: u32) -> Option<&Tag> {
        self.0.get(&number)
    }

    /// All tags with their numbers.
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
