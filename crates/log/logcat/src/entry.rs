//! A log entry, and the text of it that is shown.

use crate::event;
use crate::tags::Tags;
pub use baton_log::Buffer;
use baton_log::{Content, Record};
use std::borrow::Cow;
use std::time::Duration;

/// The buffers that are read if none is named.
pub const DEFAULT_BUFFERS: [Buffer; 3] = [Buffer::Main, Buffer::System, Buffer::Crash];

/// A priority of an entry. It may be any byte; those with names of Android's have constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u8);

impl Level {
    /// V
    pub const VERBOSE: Level = Level(2);
    /// D
    pub const DEBUG: Level = Level(3);
    /// I
    pub const INFO: Level = Level(4);
    /// W
    pub const WARN: Level = Level(5);
    /// E
    pub const ERROR: Level = Level(6);
    /// F
    pub const FATAL: Level = Level(7);
    /// S: above the levels of all entries.
    pub const SILENT: Level = Level(8);

    /// The letter of the level; `?` if it has none.
    pub fn letter(self) -> char {
        match self.0 {
            number @ 2..=8 => char::from(b"VDIWEFS"[usize::from(number - 2)]),
            _ => '?',
        }
    }

    /// The level with this letter, in either case.
    pub fn lettered(letter: char) -> Option<Level> {
        let index = "VDIWEFS".find(letter.to_ascii_uppercase())?;
        Some(Level(index as u8 + 2))
    }
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A text. Tag and message end at their first NUL.
    Text {
        /// The level of the text.
        level: Level,
        /// The tag, which the writer has chosen.
        tag: Vec<u8>,
        /// The message.
        message: Vec<u8>,
    },
    /// A binary event: a tag number that the tags file explains, and values in [`event`]'s
    /// encoding.
    Event {
        /// The number of the event's tag.
        tag: u32,
        /// The values of the event.
        payload: Vec<u8>,
    },
}

/// A log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The buffer of the entry.
    pub buffer: Buffer,
    /// CLOCK_REALTIME, since 1970.
    pub wall: Duration,
    /// CLOCK_MONOTONIC, since the machine's start.
    pub monotonic: Duration,
    /// The user of the writer.
    pub uid: u32,
    /// The process of the writer.
    pub pid: u32,
    /// The thread of the writer.
    pub tid: u32,
    /// The content of the entry.
    pub body: Body,
}

/// The text of an entry, which filters see and lines are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The level. Events have INFO.
    pub level: Level,
    /// The tag. An event without a name has its number, as `[2722]`.
    pub tag: Cow<'a, [u8]>,
    /// The message. An event has the text of its values.
    pub message: Cow<'a, [u8]>,
}

impl From<&Record<'_>> for Entry {
    /// The process and user are those that the reader has found out; the thread is as the writer
    /// says.
    fn from(record: &Record<'_>) -> Entry {
        let body = match record.content {
            Content::Text { priority, tag, message } => {
                Body::Text { level: priority.into(), tag: tag.into(), message: message.into() }
            }
            Content::Event { tag, payload } => Body::Event { tag, payload: payload.into() },
        };
        Entry {
            buffer: record.buffer,
            wall: Duration::from_nanos(record.moment.wall_ns.max(0).unsigned_abs()),
            monotonic: Duration::from_nanos(record.moment.monotonic_ns),
            uid: record.origin.user,
            pid: record.origin.process,
            tid: record.thread,
            body,
        }
    }
}

impl From<baton_log::Priority> for Level {
    fn from(priority: baton_log::Priority) -> Level {
        Level(priority as u8)
    }
}

impl Entry {
    /// The text of the entry. `None` for an event with broken values, which Android does not show
    /// either.
    pub fn shown<'a>(&'a self, tags: &'a Tags, style: event::Style) -> Option<Shown<'a>> {
        match &self.body {
            Body::Text { level, tag, message } => Some(Shown {
                level: *level,
                tag: Cow::Borrowed(until_nul(tag)),
                message: Cow::Borrowed(until_nul(message)),
            }),
            Body::Event { tag, payload } => {
                let known = tags.find(*tag);
                let (name, room) = match known {
                    Some(tag) => (Cow::Borrowed(tag.name.as_bytes()), event::ROOM),
                    None => {
                        let name = format!("[{tag}]").into_bytes();
                        let room = event::ROOM - name.len() - 1;
                        (Cow::Owned(name), room)
                    }
                };
                let format = known.map_or("", |tag| tag.format.as_str());
                let message = event::print(payload, style, format.as_bytes(), room)?;
                Some(Shown { level: Level::INFO, tag: name, message: Cow::Owned(message) })
            }
        }
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}
