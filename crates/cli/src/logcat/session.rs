//! What is done with each entry that comes: whether it is shown, in which form, where to.

use super::args::Selection;
use super::output::Output;
use baton_logcat::divider::Dividers;
use baton_logcat::entry::{Body, Entry, Shown};
use baton_logcat::format::Format;
use baton_logcat::tags::Tags;
use baton_logcat::wire;
use serde_json::json;
use std::collections::HashMap;
use std::io;

/// In which form entries are shown.
#[derive(Debug)]
pub enum Form {
    Text(Format, Dividers),
    /// `struct logger_entry`.
    Binary,
    /// An object a line.
    Json,
}

/// Whether more entries are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    More,
    Nothing,
}

/// A run of logcat.
#[derive(Debug)]
pub struct Session {
    pub selection: Selection,
    pub form: Form,
    pub tags: Tags,
    /// What users are called.
    pub users: HashMap<u32, String>,
    pub output: Output,
    /// How many have been shown, or have matched.
    counted: u64,
}

impl Session {
    /// Nothing has been shown yet.
    pub fn new(selection: Selection, form: Form, tags: Tags, output: Output) -> Session {
        Session { selection, form, tags, users: HashMap::new(), output, counted: 0 }
    }

    /// Takes an entry.
    pub fn take(&mut self, entry: &Entry) -> io::Result<Wanted> {
        if matches!(self.form, Form::Binary) {
            self.output.put(&wire::encode(entry))?;
            return Ok(self.count(true));
        }
        let style = match &self.form {
            Form::Text(format, _) => format.events,
            _ => baton_logcat::event::Style::Plain,
        };
        let Some(shown) = entry.shown(&self.tags, style) else { return Ok(Wanted::More) };
        if !self.selection.filter.shows(&shown.tag, shown.level) {
            return Ok(Wanted::More);
        }
        let matches =
            self.selection.regex.as_ref().is_none_or(|regex| regex.is_match(&shown.message));
        if matches || self.selection.others {
            let text = match &mut self.form {
                Form::Text(format, dividers) => {
                    let mut text = dividers.before(entry.buffer).unwrap_or_default().into_bytes();
                    text.extend(format.lines(entry, &shown, &|uid| self.users.get(&uid).cloned()));
                    text
                }
                _ => object(entry, &shown),
            };
            self.output.put(&text)?;
        }
        Ok(self.count(matches))
    }

    fn count(&mut self, counts: bool) -> Wanted {
        self.counted += u64::from(counts);
        match self.selection.most.is_some_and(|most| self.counted >= most) {
            true => Wanted::Nothing,
            false => Wanted::More,
        }
    }
}

/// The entry as a line of JSON. What is not UTF-8 has replacement characters.
fn object(entry: &Entry, shown: &Shown<'_>) -> Vec<u8> {
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut object = json!({
        "buffer": entry.buffer.name(),
        "wall_ns": entry.wall.as_nanos() as u64,
        "monotonic_ns": entry.monotonic.as_nanos() as u64,
        "uid": entry.uid,
        "pid": entry.pid,
        "tid": entry.tid,
        "priority": shown.level.letter().to_string(),
        "tag": words(&shown.tag),
        "message": words(&shown.message),
    });
    if let Body::Event { tag, .. } = &entry.body {
        object["event"] = json!(tag);
    }
    (object.to_string() + "\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_logcat::divider::Which;
    use baton_logcat::entry::{Buffer, Level};
    use baton_logcat::filter::Filter;
    use baton_logcat::format::Verb;
    use jiff::tz::TimeZone;
    use regex::bytes::Regex;
    use std::time::Duration;

    fn entry(buffer: Buffer, letter: char, tag: &str, message: &str) -> Entry {
        let level = Level::lettered(letter).unwrap();
        Entry {
            buffer,
            wall: Duration::new(1, 500),
            monotonic: Duration::new(0, 7),
            uid: 1,
            pid: 12,
            tid: 13,
            body: Body::Text { level, tag: tag.into(), message: message.into() },
        }
    }

    fn everything() -> Selection {
        Selection { filter: Filter::default(), regex: None, most: None, others: false }
    }

    /// What a file has after these entries, and how many of them were wanted.
    fn shown(selection: Selection, form: Form, entries: &[Entry]) -> (Vec<u8>, usize) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let output = Output::file(file.path(), None).unwrap();
        let mut session = Session::new(selection, form, Tags::default(), output);
        let mut taken = 0;
        for entry in entries {
            taken += 1;
            if session.take(entry).unwrap() == Wanted::Nothing {
                break;
            }
        }
        session.output.flush().unwrap();
        (std::fs::read(file.path()).unwrap(), taken)
    }

    fn text() -> Form {
        let format = Format::new(Verb::Tag, TimeZone::UTC);
        Form::Text(format, Dividers::new(Which::Beginnings))
    }

    #[test]
    fn entries_that_are_hidden_leave_no_trace() {
        let mut selection = everything();
        selection.filter.add("Seen:I *:S").unwrap();
        let entries = [
            entry(Buffer::Crash, 'F', "Hidden", "x"),
            entry(Buffer::System, 'D', "Seen", "x"),
            entry(Buffer::Main, 'I', "Seen", "words"),
            Entry {
                body: Body::Event { tag: 1, payload: vec![9] },
                ..entry(Buffer::Events, 'I', "", "")
            },
        ];
        let expected = "--------- beginning of main\nI/Seen    : words\n";
        assert_eq!(shown(selection, text(), &entries), (expected.into(), 4));
    }

    #[test]
    fn a_count_is_of_those_that_match() {
        let entries =
            ["a1", "b", "a2", "c", "a3"].map(|words| entry(Buffer::Main, 'I', "T", words));
        let regex = || Some(Regex::new("a.").unwrap());
        let line = |words: &[&str]| {
            let lines = words.iter().map(|words| format!("I/T       : {words}\n"));
            ("--------- beginning of main\n".to_owned() + &lines.collect::<String>()).into_bytes()
        };
        let some = Selection { regex: regex(), most: Some(2), ..everything() };
        assert_eq!(shown(some, text(), &entries), (line(&["a1", "a2"]), 3));
        let others = Selection { regex: regex(), most: Some(2), others: true, ..everything() };
        assert_eq!(shown(others, text(), &entries), (line(&["a1", "b", "a2"]), 3));
        let all = Selection { regex: regex(), ..everything() };
        assert_eq!(shown(all, text(), &entries), (line(&["a1", "a2", "a3"]), 5));
    }

    #[test]
    fn objects() {
        let entries = [entry(Buffer::Main, 'W', "T", "a \"word\"")];
        let (text, _) = shown(everything(), Form::Json, &entries);
        let object: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let expected = json!({
            "buffer": "main", "wall_ns": 1_000_000_500_u64, "monotonic_ns": 7, "uid": 1, "pid": 12,
            "tid": 13, "priority": "W", "tag": "T", "message": "a \"word\"",
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn binary_entries_come_back() {
        let entries = [entry(Buffer::Main, 'W', "T", "one"), entry(Buffer::Crash, 'F', "U", "two")];
        let (text, _) = shown(everything(), Form::Binary, &entries);
        let mut rest = &text[..];
        for entry in entries {
            let (decoded, bytes) = wire::decode(rest).unwrap();
            assert_eq!(decoded, Entry { monotonic: Duration::ZERO, ..entry });
            rest = &rest[bytes..];
        }
        assert!(rest.is_empty());
    }
}
