//! One log entry, and what of it is shown.

use crate::event;
use crate::tags::Tags;
pub use baton_log::Buffer;
use baton_log::{Content, Record};
use std::borrow::Cow;
use std::time::Duration;

/// What is read when no buffer is named.
pub const DEFAULT_BUFFERS: [Buffer; 3] = [Buffer::Main, Buffer::System, Buffer::Crash];

/// How urgent. Any byte may come; those that Android names have constants.
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
    /// S: above all that is said.
    pub const SILENT: Level = Level(8);

    /// Its letter; `?` for those that have none.
    pub fn letter(self) -> char {
        match self.0 {
            number @ 2..=8 => char::from(b"VDIWEFS"[usize::from(number - 2)]),
            _ => '?',
        }
    }

    /// By its letter, of either case.
    pub fn lettered(letter: char) -> Option<Level> {
        let index = "VDIWEFS".find(letter.to_ascii_uppercase())?;
        Some(Level(index as u8 + 2))
    }
}

/// What was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Words. They end at their first NUL.
    Text {
        /// How urgent.
        level: Level,
        /// Who says it, as it calls itself.
        tag: Vec<u8>,
        /// What is said.
        message: Vec<u8>,
    },
    /// An event: the number that the tags file explains, and values in [`event`]'s encoding.
    Event {
        /// Which event.
        tag: u32,
        /// Its values.
        payload: Vec<u8>,
    },
}

/// One log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it was logged.
    pub buffer: Buffer,
    /// Since 1970.
    pub wall: Duration,
    /// Since the machine's start.
    pub monotonic: Duration,
    /// The writer's user.
    pub uid: u32,
    /// The writer's process.
    pub pid: u32,
    /// The writer's thread.
    pub tid: u32,
    /// What was logged.
    pub body: Body,
}

/// What filters look at and lines are made of: words, whatever the entry was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// Events are at INFO.
    pub level: Level,
    /// An event without a name is called by its number, as `[2722]`.
    pub tag: Cow<'a, [u8]>,
    /// An event's values as words.
    pub message: Cow<'a, [u8]>,
}

impl From<&Record<'_>> for Entry {
    /// The writer's process and user are those that the reader has found out, the thread is what
    /// the writer says.
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
    /// Its words; `None` for an event whose values make no sense, which Android does not show
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
