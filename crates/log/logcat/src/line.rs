//! The lines of an entry: a message between a prefix and a suffix.
//!
//! ```text
//!   color  prefix           line of the message      reset  suffix
//!   ESC[32m I/Tag     (  12): words                  ESC[0m \n
//! ```
//!
//! Each line of a message has both. With `long`, the whole message has them once. Neither is longer
//! than [`MAX_BYTES`]: the end of a long tag is cut.

use crate::entry::{Entry, Level, Shown};
use crate::format::{Format, Verb};
use crate::printable;

/// The bytes that Android has for a prefix or a suffix.
const MAX_BYTES: usize = 127;

/// The name of a user, if it has one that is short enough to be shown.
pub type Names<'a> = &'a dyn Fn(u32) -> Option<String>;

impl Format {
    /// The lines of an entry. `names` returns the name of a user.
    pub fn lines(&self, entry: &Entry, shown: &Shown<'_>, names: Names<'_>) -> Vec<u8> {
        let prefix = self.prefix(entry, shown, names);
        let suffix = self.suffix(shown);
        let mut out = Vec::with_capacity(prefix.len() + shown.message.len() + suffix.len());
        for line in self.parts(&shown.message) {
            out.extend(&prefix);
            match self.printable {
                true => printable::escape(line, &mut out),
                false => out.extend(line),
            }
            out.extend(&suffix);
        }
        out
    }

    /// The parts of the message that have a prefix of their own.
    fn parts<'a>(&self, message: &'a [u8]) -> Vec<&'a [u8]> {
        match (self.verb, message.strip_suffix(b"\n")) {
            (Verb::Long, _) => vec![message],
            (_, without) => without.unwrap_or(message).split(|&byte| byte == b'\n').collect(),
        }
    }

    fn prefix(&self, entry: &Entry, shown: &Shown<'_>, names: Names<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        if self.color {
            out.extend(format!("\x1b[{}m", color(shown.level)).as_bytes());
        }
        let (letter, time) = (shown.level.letter(), || self.stamp.show(entry));
        let user = if self.uid { user(entry.uid, names) } else { String::new() };
        // Signed, as C's `%d` prints them.
        let (pid, tid) = (entry.pid.cast_signed(), entry.tid.cast_signed());
        let mut put = |text: String| out.extend(text.as_bytes());
        match self.verb {
            Verb::Raw => {}
            Verb::Process => put(format!("{letter}({user}{pid:>5}) ")),
            Verb::Thread => put(format!("{letter}({user}{pid:>5}:{tid:>5}) ")),
            Verb::Tag | Verb::Brief => put(format!("{letter}/")),
            Verb::Time => put(format!("{} {letter}/", time())),
            Verb::ThreadTime => {
                let user = user.replacen(':', " ", 1);
                put(format!("{} {user}{pid:>5} {tid:>5} {letter} ", time()));
            }
            Verb::Long => put(format!("[ {} {user}{pid:>5}:{tid:>5} {letter}/", time())),
        }
        if !matches!(self.verb, Verb::Raw | Verb::Process | Verb::Thread) {
            out.extend(&*shown.tag);
            out.resize(out.len() + 8_usize.saturating_sub(shown.tag.len()), b' ');
        }
        match self.verb {
            Verb::Raw | Verb::Process | Verb::Thread => {}
            Verb::Tag | Verb::ThreadTime => out.extend(b": "),
            Verb::Brief | Verb::Time => out.extend(format!("({user}{pid:>5}): ").as_bytes()),
            Verb::Long => out.extend(b" ]\n"),
        }
        out.truncate(MAX_BYTES);
        out
    }

    fn suffix(&self, shown: &Shown<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        if self.color {
            out.extend(b"\x1b[0m");
        }
        match self.verb {
            Verb::Process => {
                out.extend([b"  (", &*shown.tag, b")"].concat());
                out.truncate(MAX_BYTES - 1);
                out.push(b'\n');
            }
            Verb::Long => out.extend(b"\n\n"),
            _ => out.push(b'\n'),
        }
        out
    }
}

/// The number of the terminal's colour.
fn color(level: Level) -> u8 {
    match level {
        Level::DEBUG => 34,
        Level::INFO => 32,
        Level::WARN => 33,
        Level::ERROR | Level::FATAL => 31,
        _ => 39,
    }
}

fn user(uid: u32, names: Names<'_>) -> String {
    match names(uid).filter(|name| name.len() <= 5) {
        Some(name) => format!("{name:>5}:"),
        // No user has a number that is negative in C.
        None if uid.cast_signed() < 0 => " ".repeat(6),
        None => format!("{uid:>5}:"),
    }
}
