//! The command line of Android's logcat.

use crate::failure::{Failure, Kind};
use crate::stderr::say;
use baton_logcat::entry::{Buffer, DEFAULT_BUFFERS, Entry};
use baton_logcat::filter::Filter;
use baton_logcat::format::{Format, Verb, Word};
use baton_logcat::{size, time};
use clap::Args;
use jiff::tz::TimeZone;
use regex::bytes::Regex;
use std::path::PathBuf;
use std::time::Duration;

/// Environment variable with default filters.
const TAGS_VARIABLE: &str = "ANDROID_LOG_TAGS";
/// Environment variable with the default format.
const FORMAT_VARIABLE: &str = "ANDROID_PRINTF_LOG";
/// The action in messages about a wrong command line.
const TRIED: &str = "show the log";

/// Options of `baton logcat`.
#[derive(Args, Debug, Default)]
#[command(after_help = "\
A FILTERSPEC is TAG:P, with P of V D I W E F for this priority and what is above, and S for none; \
TAG alone \
is TAG:V, *:P is for all other tags, * alone is *:D. Without any, $ANDROID_LOG_TAGS is one, or \
else \
everything is shown.
Formats: brief, process, tag, thread, raw, time, threadtime (the default), long. Modifiers, which \
may be \
added: color, descriptive, epoch, monotonic, printable, uid, usec, nsec, UTC, year, zone, or a \
time zone's \
name. Without -v: $ANDROID_PRINTF_LOG.
A TIME is 'MM-DD hh:mm:ss.mmm', 'YYYY-MM-DD hh:mm:ss.mmm' or seconds since 1970.")]
pub struct LogcatArgs {
    /// Buffers, with commas between them: main, system, radio, events, crash, default, all
    #[arg(short, long = "buffer", value_name = "BUFFER")]
    buffers: Vec<String>,
    /// Format and modifiers of lines, with commas between them
    #[arg(short = 'v', long = "format", value_name = "FORMAT")]
    formats: Vec<String>,
    /// Show what is there, and end
    #[arg(short)]
    pub dump: bool,
    /// Sleep until a buffer is about to overwrite what comes from now on, or for two hours; then
    /// show what is there, and end
    #[arg(long, conflicts_with = "last")]
    pub wrap: bool,
    /// The last so many entries, or those since a time; and end
    #[arg(short = 't', long = "tail", value_name = "COUNT|TIME", allow_hyphen_values = true)]
    tail: Option<String>,
    /// The last so many entries, or those since a time; and go on
    #[arg(short = 'T', value_name = "COUNT|TIME", conflicts_with = "tail")]
    tail_on: Option<String>,
    /// Show nothing but what filterspecs name, as *:S does
    #[arg(short)]
    silent: bool,
    /// Only entries whose message has a match
    #[arg(short = 'e', long, visible_alias = "grep", value_name = "REGEX")]
    regex: Option<String>,
    /// End after so many entries
    #[arg(short, long, visible_alias = "head", value_name = "COUNT", conflicts_with = "tail",
          value_parser = clap::value_parser!(u64).range(1..))]
    max_count: Option<u64>,
    /// With -e and -m: show all entries, count those that match
    #[arg(long, requires = "regex", requires = "max_count")]
    print: bool,
    /// Only this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Only these users, by number, with commas between them
    #[arg(long = "uid", value_name = "UID", value_delimiter = ',')]
    pub uids: Vec<u32>,
    /// A line wherever the entries of another buffer begin
    #[arg(short = 'D', long)]
    pub dividers: bool,
    /// Entries as Android's struct logger_entry, in binary
    #[arg(short = 'B', long, conflicts_with = "json")]
    pub binary: bool,
    /// Entries as Android's LogcatEntryProto, each after its size in 8 bytes
    #[arg(long, conflicts_with_all = ["binary", "json"])]
    pub proto: bool,
    /// Entries, sizes and statistics as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// Write a trace for Perfetto (ui.perfetto.dev) or chrome://tracing to a file, of the time that
    /// -t, -T and -d tell, or until SIGINT or SIGTERM
    #[arg(
        long, value_name = "FILE",
        conflicts_with_all = ["binary", "json", "proto", "file", "clear"]
    )]
    pub trace: Option<PathBuf>,
    /// Append to a file; entries that it has are not repeated
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Begin another file after so many KiB
    #[arg(short, long, value_name = "KBYTES", requires = "file",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub rotate_kbytes: Option<u64>,
    /// Keep so many older files, FILE.1 and so on
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub rotate_count: u32,
    /// Begin the files anew if they were begun under another id, which is kept in FILE.id
    #[arg(long, value_name = "ID", requires = "file")]
    pub id: Option<String>,
    /// Forget what is in the buffers, or with -f what is in the files, and end
    #[arg(short, long)]
    pub clear: bool,
    /// Show how large the buffers are, and end
    #[arg(short = 'g')]
    size: bool,
    /// Set how large the buffers are, as 256K or 4M, and end
    #[arg(short = 'G', value_name = "SIZE", value_parser = parse_size)]
    set_size: Option<u64>,
    /// As -g, or with a size as -G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, num_args = 0..=1,
          require_equals = true, conflicts_with_all = ["size", "set_size"])]
    buffer_size: Option<Option<u64>>,
    /// Show the prune list, which is empty, and end
    #[arg(short, long = "prune", value_name = "LIST", num_args = 0..=1, require_equals = true,
          default_missing_value = "", conflicts_with_all = ["file", "last"])]
    prune: Option<String>,
    /// Set the prune list, to the empty one, and end
    #[arg(short = 'P', value_name = "LIST", conflicts_with_all = ["prune", "file", "last"])]
    set_prune: Option<String>,
    /// Show who logs how much, and end
    #[arg(short = 'S', long, conflicts_with = "file")]
    pub statistics: bool,
    /// Show what was logged before the machine's last start: what the log's directory has of it,
    /// else what `logcat -B -f /dev/pmsg0` has kept in pstore
    #[arg(
        short = 'L', long,
        conflicts_with_all = ["clear", "size", "set_size", "buffer_size", "statistics"]
    )]
    pub last: bool,
    /// Another source for -L: a file with entries in binary
    #[arg(long, value_name = "FILE", requires = "last")]
    pub last_file: Option<PathBuf>,
    /// Names and descriptions of binary events [default: /etc/event-log-tags, else
    /// /system/etc/event-log-tags]
    #[arg(long, value_name = "FILE")]
    pub event_log_tags: Option<PathBuf>,
    /// The log's directory [default: $BATON_LOG_DIR, else the system's or the user's one]
    #[arg(long, value_name = "DIR")]
    log_directory: Option<PathBuf>,
    /// TAG, TAG:PRIORITY or *:PRIORITY
    #[arg(value_name = "FILTERSPEC")]
    filters: Vec<String>,
}

/// The first entry to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The oldest entry.
    Beginning,
    /// The first of the last entries, by their number.
    Last(u64),
    /// The first entry at or after this time since 1970.
    Time(Duration),
}

/// An action about the prune list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Show the list.
    Show,
    /// Set the list.
    Set(String),
}

/// The entries to show.
#[derive(Debug)]
pub struct Selection {
    pub filter: Filter,
    pub regex: Option<Regex>,
    /// Number of entries after which to end.
    pub most: Option<u64>,
    /// Whether entries without a match are shown, without counting them.
    pub others: bool,
}

fn parse_size(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| "a number of bytes, or one with K, M or G".to_owned())
}

fn usage(wrong: impl std::fmt::Display) -> Failure {
    Failure::new(TRIED, wrong).kind(Kind::Usage)
}

impl LogcatArgs {
    /// Whether an entry is of the processes and users that are to be shown.
    pub fn wants(&self, entry: &Entry) -> bool {
        self.pid.is_none_or(|pid| pid == entry.pid)
            && (self.uids.is_empty() || self.uids.contains(&entry.uid))
    }

    /// The chosen buffers.
    pub fn buffers(&self) -> Result<Vec<Buffer>, Failure> {
        let is_between = |letter: char| ",:; \t\n\r\x0c".contains(letter);
        let mut found = Vec::new();
        let names = self.buffers.iter().flat_map(|names| names.split(is_between));
        for name in names.filter(|name| !name.is_empty()) {
            match (name, Buffer::named(name)) {
                ("all", _) => found.extend(Buffer::ALL),
                ("default", _) => found.extend(DEFAULT_BUFFERS),
                (_, Some(buffer)) => found.push(buffer),
                (_, None) => {
                    return Err(usage(format!("there is no buffer '{name}'"))
                        .advice("buffers are main, system, radio, events and crash"));
                }
            }
        }
        if found.is_empty() {
            found.extend(DEFAULT_BUFFERS);
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// The format of lines. `variable` looks up environment variables.
    pub fn format(&self, zone: TimeZone, variable: Variable<'_>) -> Result<Format, Failure> {
        let mut format = Format::new(Verb::ThreadTime, zone);
        let mut verb = false;
        for words in &self.formats {
            let added = format.add(words).map_err(|wrong| {
                usage(wrong).advice("`baton logcat --help` has the formats and modifiers")
            });
            verb |= added? == Word::Verb;
        }
        if let Some(words) = variable(FORMAT_VARIABLE).filter(|_| !verb)
            && let Err(wrong) = format.add(&words)
        {
            say(format_args!("baton: {FORMAT_VARIABLE}: {wrong}"));
        }
        Ok(format)
    }

    /// The entries to show. `variable` looks up environment variables.
    pub fn selection(&self, variable: Variable<'_>) -> Result<Selection, Failure> {
        let mut filter = Filter::default();
        if self.silent {
            filter.silence();
        }
        match &self.filters[..] {
            [] => {
                let rules = variable(TAGS_VARIABLE).unwrap_or_default();
                filter.add(&rules).map_err(|rule| usage(format!("{TAGS_VARIABLE}: {rule}")))?;
            }
            rules => rules.iter().try_for_each(|rules| filter.add(rules)).map_err(usage)?,
        }
        let regex = self.regex.as_deref().map(Regex::new).transpose().map_err(usage)?;
        Ok(Selection { filter, regex, most: self.max_count, others: self.print })
    }

    /// The log's directory.
    pub fn directory(&self) -> PathBuf {
        self.log_directory.clone().unwrap_or_else(baton_log::directory)
    }

    /// The first entry to show; `None` without such an option.
    pub fn from(&self, now: Duration, zone: &TimeZone) -> Result<Option<From>, Failure> {
        let Some(text) = self.tail.as_deref().or(self.tail_on.as_deref()) else { return Ok(None) };
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let count: u64 = text.parse().map_err(usage)?;
            return Ok(Some(From::Last(count.max(1))));
        }
        match time::parse(text, now, zone) {
            Some((time, "")) => Ok(Some(From::Time(time))),
            _ => Err(usage(format!("'{text}' is neither a count nor a time")).advice(
                "a time is 'MM-DD hh:mm:ss.mmm', with a year before it or not, or seconds \
                    since 1970",
            )),
        }
    }

    /// Whether to end after the existing entries.
    pub fn ends(&self) -> bool {
        self.dump || self.wrap || self.tail.is_some() || self.last
    }

    /// The action about the prune list, if any.
    pub fn prune(&self) -> Option<Prune> {
        match (self.set_prune.as_deref(), self.prune.as_deref()) {
            (Some(list), _) => Some(Prune::Set(list.to_owned())),
            (None, Some("")) => Some(Prune::Show),
            (None, Some(list)) => Some(Prune::Set(list.to_owned())),
            (None, None) => None,
        }
    }

    /// The size in bytes that buffers are to have, if any.
    pub fn new_size(&self) -> Option<u64> {
        self.set_size.or(self.buffer_size.flatten())
    }

    /// Whether the sizes are to be shown.
    pub fn shows_size(&self) -> bool {
        self.size || self.buffer_size == Some(None)
    }
}

/// A function that looks up an environment variable.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

#[cfg(test)]
mod tests;
