//! Handles each entry: whether, in which form and where it is shown.

use super::args::Selection;
use super::json;
use super::output::Output;
use baton_logcat::divider::Dividers;
use baton_logcat::entry::{Entry, Shown};
use baton_logcat::format::Format;
use baton_logcat::proto;
use baton_logcat::tags::Tags;
use baton_logcat::wire;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::io;

/// The form of shown entries.
#[derive(Debug)]
pub enum Form {
    Text(Format, Dividers),
    /// `struct logger_entry`.
    Binary,
    /// `LogcatEntryProto`.
    Proto,
    /// One JSON object per line.
    Json,
    /// Events of a trace, with the processes that have been named.
    Trace(BTreeSet<u32>),
}

/// The reason for which a run ended early.
pub enum Ended {
    Output(io::Error),
    Log(Errno),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Output(error)
    }
}

/// Whether the session wants more entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    More,
    Nothing,
}

/// Names of processes and users.
#[derive(Debug, Default)]
pub struct Names {
    pub users: HashMap<u32, String>,
    /// Programs by process id.
    pub programs: HashMap<u32, String>,
}

/// The state of a run of logcat.
#[derive(Debug)]
pub struct Session {
    pub selection: Selection,
    pub form: Form,
    pub tags: Tags,
    pub names: Names,
    pub output: Output,
    /// Number of entries that were shown, or that matched.
    counted: u64,
}

impl Form {
    fn text(&mut self, entry: &Entry, shown: &Shown<'_>, names: &Names) -> Vec<u8> {
        match self {
            Form::Text(format, dividers) => {
                let mut text = dividers.before(entry.buffer).unwrap_or_default().into_bytes();
                text.extend(format.lines(entry, shown, &|uid| names.users.get(&uid).cloned()));
                text
            }
            Form::Trace(named) => {
                let begins = named.is_empty();
                let mut text =
                    if begins { json::TRACE_BEGINS } else { json::TRACE_GOES_ON }.to_owned();
                if named.insert(entry.pid) {
                    let program = names.programs.get(&entry.pid).map_or("?", String::as_str);
                    text += &json::process(entry.pid, program).to_string();
                    text += json::TRACE_GOES_ON;
                }
                (text + &json::instant(entry, shown).to_string()).into_bytes()
            }
            Form::Proto => {
                let program = names.programs.get(&entry.pid).map(String::as_str);
                proto::encode(entry, shown, program)
            }
            Form::Json | Form::Binary => json::object(entry, shown).into_bytes(),
        }
    }
}

impl Session {
    /// A session before its first entry.
    pub fn new(selection: Selection, form: Form, tags: Tags, output: Output) -> Session {
        Session { selection, form, tags, names: Names::default(), output, counted: 0 }
    }

    /// Records the name of a process.
    pub fn add_program(&mut self, pid: u32, program: &str) {
        if matches!(self.form, Form::Trace(_) | Form::Proto)
            && !self.names.programs.contains_key(&pid)
        {
            self.names.programs.insert(pid, program.to_owned());
        }
    }

    /// Handles an entry.
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
            let text = self.form.text(entry, &shown, &self.names);
            self.output.put(&text)?;
        }
        Ok(self.count(matches))
    }

    /// Ends the session.
    pub fn end(&mut self) -> io::Result<()> {
        if let Form::Trace(named) = &self.form {
            let begin = if named.is_empty() { json::TRACE_BEGINS } else { "" };
            self.output.put((begin.to_owned() + json::TRACE_ENDS).as_bytes())?;
        }
        self.output.flush()
    }

    fn count(&mut self, counts: bool) -> Wanted {
        self.counted += u64::from(counts);
        match self.selection.most.is_some_and(|most| self.counted >= most) {
            true => Wanted::Nothing,
            false => Wanted::More,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_logcat::divider::Which;
    use baton_logcat::entry::{Body, Buffer, Level};
    use baton_logcat::filter::Filter;
    use baton_logcat::format::Verb;
    use jiff::tz::TimeZone;
    use regex::bytes::Regex;
    use serde_json::json;
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

    /// The contents of a file after these entries, and the number of entries that were wanted.
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
        session.end().unwrap();
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
    fn traces_are_arrays_that_name_each_process_once() {
        let entries = ["one", "two\nlines"].map(|words| entry(Buffer::Main, 'W', "T", words));
        let (text, _) = shown(everything(), Form::Trace(BTreeSet::new()), &entries);
        let events: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!((&events[0]["ph"], &events[0]["args"]["name"]), (&json!("M"), &json!("?")));
        let name = |event: &serde_json::Value| event["name"].as_str().unwrap().to_owned();
        assert_eq!((name(&events[1]), name(&events[2])), ("T: one".into(), "T: two".into()));
        assert_eq!((&events[2]["ts"], &events[2]["tid"]), (&json!(0.007), &json!(13)));
        let (empty, _) = shown(everything(), Form::Trace(BTreeSet::new()), &[]);
        assert_eq!(serde_json::from_slice::<Vec<serde_json::Value>>(&empty).unwrap().len(), 0);
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
