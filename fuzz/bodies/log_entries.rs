//! Fuzzes logcat's inputs from other programs: binary entries, event payloads and descriptions,
//! tags files, filterspecs, formats, times, lines of an earlier run, syslog datagrams.

use super::input::Input;
use baton_logcat::entry::{Body, Buffer, Entry, Level};
use baton_logcat::event::{self, Style};
use baton_logcat::filter::Filter;
use baton_logcat::format::{Format, Verb};
use baton_logcat::resume::Resume;
use baton_logcat::tags::Tags;
use baton_logcat::wire::{self, Entries, MAX_ENTRY_BYTES};
use baton_logcat::{syslog, time};
use jiff::tz::TimeZone;
use std::time::Duration;

const VERBS: [Verb; 8] = [
    Verb::Brief,
    Verb::Process,
    Verb::Tag,
    Verb::Thread,
    Verb::Raw,
    Verb::Time,
    Verb::ThreadTime,
    Verb::Long,
];

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let verb = input.pick(&VERBS);
    let modifiers = input.u8();
    let split = input.below(64);
    let words = String::from_utf8_lossy(input.bytes(split)).into_owned();
    let rest = input.bytes(data.len());
    words_mean_something_or_nothing(&words);
    let tags = Tags::parse(&format!("0 name {words}\n")).unwrap_or_default();
    let mut format = Format::new(verb, TimeZone::UTC);
    format.printable = modifiers & 1 == 1;
    format.color = modifiers & 2 == 2;
    format.uid = modifiers & 4 == 4;
    for entry in Entries::new(rest).chain(wire::decode(rest).ok().map(|(entry, _)| entry)) {
        come_back(&entry);
        show(&entry, &tags, &format);
    }
    made_of(rest).iter().for_each(|entry| show(entry, &tags, &format));
    payload(rest, words.as_bytes(), 1 + usize::from(modifiers) * 4);
    datagram(rest);
}

fn words_mean_something_or_nothing(words: &str) {
    let utc = TimeZone::UTC;
    let now = Duration::from_secs(1_710_028_800);
    let _ = Filter::default().add(words);
    let _ = Format::new(Verb::Brief, TimeZone::UTC).add(words);
    let _ = Tags::parse(words);
    let _ = baton_logcat::size::parse(words);
    if let Some((_, rest)) = time::parse(words, now, &utc) {
        assert!(words.ends_with(rest));
    }
    let mut resume = Resume::new(now, &utc);
    words.lines().for_each(|line| resume.line(line));
    assert!(resume.from().is_none_or(|from| from <= now + Duration::from_secs(1)));
}

/// Entries that contain these bytes, as a reader may return them.
fn made_of(bytes: &[u8]) -> [Entry; 2] {
    let (tag, message) = bytes.split_at(bytes.len().min(9));
    let level = Level(bytes.first().copied().unwrap_or(4));
    let text = Body::Text { level, tag: tag.into(), message: message.into() };
    let event = Body::Event { tag: 0, payload: bytes.into() };
    [(Buffer::Main, text), (Buffer::Events, event)].map(|(buffer, body)| {
        let (wall, monotonic) = (Duration::from_secs(u64::from(level.0) << 56), Duration::ZERO);
        Entry { buffer, wall, monotonic, uid: 0, pid: 0, tid: 0, body }
    })
}

fn come_back(entry: &Entry) {
    let bytes = wire::encode(entry);
    assert!(bytes.len() <= MAX_ENTRY_BYTES);
    let (again, n_bytes) = wire::decode(&bytes).expect("what was made here");
    assert_eq!(n_bytes, bytes.len());
    assert_eq!(wire::encode(&again), bytes);
}

fn show(entry: &Entry, tags: &Tags, format: &Format) {
    for style in [Style::Plain, Style::Descriptive] {
        let Some(shown) = entry.shown(tags, style) else { continue };
        if matches!(entry.body, Body::Event { .. }) {
            assert!(shown.message.len() <= event::ROOM);
        }
        let lines = format.lines(entry, &shown, &|_| None);
        assert!(lines.ends_with(b"\n"));
        let is_escaped = |byte: &u8| *byte >= b' ' || b"\n\t\x1b".contains(byte);
        // A tag is not escaped, as on Android.
        let plain_tag = shown.tag.iter().all(|byte| byte.is_ascii_graphic());
        assert!(!format.printable || !plain_tag || lines.iter().all(is_escaped));
    }
}

fn payload(bytes: &[u8], description: &[u8], room: usize) {
    let plain = event::print(bytes, Style::Plain, b"", room);
    assert!(plain.as_ref().is_none_or(|text| text.len() <= room));
    let described = event::print(bytes, Style::Descriptive, description, room);
    assert!(described.is_none_or(|text| text.len() <= room));
}

fn datagram(bytes: &[u8]) {
    let message = syslog::parse(bytes);
    assert!(!message.tag.is_empty() && message.text.len() <= bytes.len());
}
