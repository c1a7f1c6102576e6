//! The text of entries: `<log/logprint.h>`.

use crate::ffi::{INVALID, bytes, guard, string};
use crate::tags::EventTagMap;
use baton_logcat::entry::{Body, Buffer, Entry, Level, Shown};
use baton_logcat::event::{self, Style};
use baton_logcat::filter::Filter;
use baton_logcat::format::{Format, Verb, named_zone};
use baton_logcat::stamp::{Clock, Precision};
use baton_logcat::wire::{HEADER_BYTES, Parts};
use jiff::tz::TimeZone;
use std::borrow::Cow;
use std::ffi::{c_char, c_int, c_long};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The names of `AndroidLogPrintFormat`, from 1.
const WORDS: [&[u8]; 18] = [
    b"brief",
    b"process",
    b"tag",
    b"thread",
    b"raw",
    b"time",
    b"threadtime",
    b"long",
    b"color",
    b"usec",
    b"printable",
    b"year",
    b"zone",
    b"epoch",
    b"monotonic",
    b"uid",
    b"descriptive",
    b"nsec",
];
const ZONE: c_int = 13;
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

/// The time zone that was named in place of a format. It applies to all formats, as in Android's
/// liblog.
static NAMED_ZONE: Mutex<Option<TimeZone>> = Mutex::new(None);
/// Whether descriptions are shown. It applies to all formats, as events are formatted without one.
static DESCRIPTIVE: AtomicBool = AtomicBool::new(false);

/// `android_log_format`'s type, of which programs know only a pointer.
#[derive(Debug)]
pub struct LogFormat {
    format: Format,
    filter: Filter,
}

/// `AndroidLogEntry`
#[repr(C)]
#[derive(Debug)]
pub struct LogEntry {
    seconds: libc::time_t,
    nanoseconds: c_long,
    priority: c_int,
    uid: i32,
    pid: i32,
    tid: i32,
    tag: *const c_char,
    tag_bytes: usize,
    message_bytes: usize,
    message: *const c_char,
}

fn zone() -> TimeZone {
    let named = NAMED_ZONE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    named.unwrap_or_else(TimeZone::system)
}

/// Makes a format: `brief`, without filters.
#[unsafe(no_mangle)]
pub extern "C" fn android_log_format_new() -> *mut LogFormat {
    guard(std::ptr::null_mut(), || {
        DESCRIPTIVE.store(false, Ordering::Relaxed);
        let format = Format::new(Verb::Brief, TimeZone::UTC);
        Box::into_raw(Box::new(LogFormat { format, filter: Filter::default() }))
    })
}

/// Frees a format.
///
/// # Safety
/// `format` is null, or was made by [`android_log_format_new`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_format_free(format: *mut LogFormat) {
    if !format.is_null() {
        // SAFETY: by this function's contract.
        guard((), || drop(unsafe { Box::from_raw(format) }));
    }
}

/// The number of a format or modifier by its name; 0 if there is none. A time zone's name sets the
/// zone of all formats.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_formatFromString(name: *const c_char) -> c_int {
    guard(0, || {
        // SAFETY: by this function's contract.
        let name = unsafe { string(name) }.unwrap_or_default();
        let name = if name == b"colour" { b"color" } else { name };
        if let Some(at) = WORDS.iter().position(|word| *word == name) {
            return at as c_int + 1;
        }
        let Some(zone) = std::str::from_utf8(name).ok().and_then(named_zone) else { return 0 };
        *NAMED_ZONE.lock().unwrap_or_else(PoisonError::into_inner) = Some(zone);
        ZONE
    })
}

/// Selects a format, or adds a modifier. Returns 1 for a format.
///
/// # Safety
/// `format` is null, or a format that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_setPrintFormat(format: *mut LogFormat, word: c_int) -> c_int {
    guard(INVALID, || {
        // SAFETY: by this function's contract.
        let Some(LogFormat { format, .. }) = (unsafe { format.as_mut() }) else { return INVALID };
        let verb = usize::try_from(word - 1).ok().and_then(|at| VERBS.get(at));
        if let Some(verb) = verb {
            format.verb = *verb;
            return 1;
        }
        let stamp = &mut format.stamp;
        match word {
            9 => format.color = true,
            10 if stamp.precision != Precision::Nano => stamp.precision = Precision::Micro,
            11 => format.printable = true,
            12 => stamp.year = true,
            ZONE => stamp.offset = !stamp.offset,
            14 if stamp.clock != Clock::Monotonic => stamp.clock = Clock::Epoch,
            // `struct AndroidLogEntry` has no monotonic time, so it is shown as seconds since 1970.
            15 => stamp.clock = Clock::Monotonic,
            16 => format.uid = true,
            17 => DESCRIPTIVE.store(true, Ordering::Relaxed),
            18 => stamp.precision = Precision::Nano,
            _ => {}
        }
        0
    })
}

/// Adds the filters of a string. Returns -1 if one cannot be parsed.
///
/// # Safety
/// `format` is null, or a format that no other thread uses; `rules` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_addFilterString(
    format: *mut LogFormat,
    rules: *const c_char,
) -> c_int {
    guard(-1, || {
        // SAFETY: by this function's contract.
        let (format, rules) = unsafe { (format.as_mut(), string(rules)) };
        let rules = rules.and_then(|rules| std::str::from_utf8(rules).ok());
        let added = format.zip(rules).map(|(format, rules)| format.filter.add(rules));
        if matches!(added, Some(Ok(()))) { 0 } else { -1 }
    })
}

/// Adds one filter.
///
/// # Safety
/// That of [`android_log_addFilterString`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_addFilterRule(
    format: *mut LogFormat,
    rule: *const c_char,
) -> c_int {
    // SAFETY: by this function's contract.
    match unsafe { string(rule) } {
        None | Some(b"") => -1,
        // SAFETY: as above.
        Some(_) => unsafe { android_log_addFilterString(format, rule) },
    }
}

/// Whether the filters show this tag with this priority.
///
/// # Safety
/// `format` is null or a format; `tag` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_shouldPrintLine(
    format: *mut LogFormat,
    tag: *const c_char,
    priority: c_int,
) -> c_int {
    guard(1, || {
        // SAFETY: by this function's contract.
        let (format, tag) = unsafe { (format.as_ref(), string(tag)) };
        let shows = format
            .is_none_or(|format| format.filter.shows(tag.unwrap_or_default(), level(priority)));
        shows.into()
    })
}

fn level(priority: c_int) -> Level {
    Level(priority.clamp(0, 255) as u8)
}

/// The header and the payload of a `struct logger_entry`.
///
/// # Safety
/// `entry` is null, or an entry with as many bytes as it says, which no other thread uses.
unsafe fn taken_apart<'a>(entry: *mut u8) -> Option<([u8; HEADER_BYTES], &'a mut [u8])> {
    if entry.is_null() {
        return None;
    }
    // SAFETY: by this function's contract, an entry has at least a header.
    let header: [u8; HEADER_BYTES] = unsafe { std::ptr::read_unaligned(entry.cast()) };
    let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (payload_bytes, header_bytes) = (half(0), half(2));
    if header_bytes < HEADER_BYTES {
        return None;
    }
    // SAFETY: by this function's contract.
    let payload = unsafe { std::slice::from_raw_parts_mut(entry.add(header_bytes), payload_bytes) };
    Some((header, payload))
}

fn fill(entry: &mut LogEntry, header: &[u8; HEADER_BYTES]) {
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    entry.seconds = word(12).into();
    entry.nanoseconds = word(16).into();
    entry.uid = word(24).cast_signed();
    entry.pid = word(4).cast_signed();
    entry.tid = word(8).cast_signed();
}

/// Parses a text. Its strings stay in `from`, where they get NULs. Returns -1 if it is no text.
///
/// # Safety
/// `from` is null, or a `struct logger_entry` with as many bytes as it says, which no other thread
/// uses; `entry` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_processLogBuffer(
    from: *mut u8,
    entry: *mut LogEntry,
) -> c_int {
    guard(-1, || {
        // SAFETY: by this function's contract.
        let (taken, entry) = unsafe { (taken_apart(from), entry.as_mut()) };
        let (Some((header, payload)), Some(entry)) = (taken, entry) else { return -1 };
        let Some(Parts { tag, message }) = Parts::find(payload) else { return -1 };
        fill(entry, &header);
        let is_all_tag = payload[tag.end].is_ascii_graphic() && payload[tag.end] != b':';
        for end in [tag.end, message.end] {
            if let Some(end) = payload.get_mut(end) {
                *end = 0;
            }
        }
        entry.priority = payload[0].into();
        // With its NUL, if it had one.
        entry.tag_bytes = tag.len() + usize::from(!is_all_tag);
        entry.message_bytes = message.len();
        let at = |offset: usize| payload[offset.min(payload.len() - 1)..].as_ptr().cast();
        (entry.tag, entry.message) = (at(tag.start), at(message.start));
        0
    })
}

/// Formats an event into the caller's memory. Returns -1 if its values are broken.
///
/// # Safety
/// `from` is null, or a `struct logger_entry` with as many bytes as it says, which no other thread
/// uses; `entry` is null or writable; `map` is null or a map; `words` has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_processBinaryLogBuffer(
    from: *mut u8,
    entry: *mut LogEntry,
    map: *const EventTagMap,
    words: *mut c_char,
    words_bytes: c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: by this function's contract.
        let (taken, entry, map) = unsafe { (taken_apart(from), entry.as_mut(), map.as_ref()) };
        let (Some((header, payload)), Some(entry)) = (taken, entry) else { return -1 };
        let Ok(room) = usize::try_from(words_bytes) else { return -1 };
        if words.is_null() {
            return -1;
        }
        // SAFETY: as above.
        let room = unsafe { std::slice::from_raw_parts_mut(words.cast::<u8>(), room) };
        fill(entry, &header);
        entry.priority = Level::INFO.0.into();
        put_event(payload, map, room, entry).map_or(-1, |()| 0)
    })
}

fn put_event(
    payload: &[u8],
    map: Option<&EventTagMap>,
    room: &mut [u8],
    entry: &mut LogEntry,
) -> Option<()> {
    let (number, payload) = payload.split_first_chunk()?;
    let number = u32::from_le_bytes(*number);
    let known = map.and_then(|map| map.tags.find(number));
    let name = known.map_or_else(|| format!("[{number}]"), |tag| tag.name.clone());
    let (tag, room) = room.split_at_mut_checked(name.len() + 1)?;
    tag[..name.len()].copy_from_slice(name.as_bytes());
    tag[name.len()] = 0;
    (entry.tag, entry.tag_bytes) = (tag.as_ptr().cast(), name.len());
    let style = if DESCRIPTIVE.load(Ordering::Relaxed) { Style::Descriptive } else { Style::Plain };
    let description = known.map_or("", |tag| &tag.format);
    // One byte is for the NUL.
    let most = room.len().checked_sub(1).filter(|most| *most > 0)?;
    let text = event::print(payload, style, description.as_bytes(), most)?;
    room[..text.len()].copy_from_slice(&text);
    room[text.len()] = 0;
    (entry.message, entry.message_bytes) = (room.as_ptr().cast(), text.len());
    Some(())
}

/// # Safety
/// The entry's strings have as many bytes as the entry says.
unsafe fn lines(format: &LogFormat, entry: &LogEntry) -> Vec<u8> {
    // SAFETY: by this function's contract.
    let (tag, message) =
        unsafe { (bytes(entry.tag, entry.tag_bytes), bytes(entry.message, entry.message_bytes)) };
    let tag = tag.split(|&byte| byte == 0).next().unwrap_or_default();
    let nanoseconds = entry.nanoseconds.clamp(0, 999_999_999) as u32;
    let time = Duration::new(entry.seconds.max(0).unsigned_abs(), nanoseconds);
    let of = Entry {
        buffer: Buffer::Main,
        wall: time,
        monotonic: time,
        uid: entry.uid.cast_unsigned(),
        pid: entry.pid.cast_unsigned(),
        tid: entry.tid.cast_unsigned(),
        body: Body::Event { tag: 0, payload: Vec::new() },
    };
    let level = level(entry.priority);
    let shown = Shown { level, tag: Cow::Borrowed(tag), message: Cow::Borrowed(message) };
    let mut format = format.format.clone();
    format.stamp.zone = zone();
    format.lines(&of, &shown, &|_| None)
}

/// The lines of an entry: in the caller's memory if they fit, else in memory that the caller frees.
/// Null if there is no memory.
///
/// # Safety
/// `format` and `entry` are null or valid, and the entry's strings have as many bytes as it says;
/// the caller's memory is null or has the given size; `n_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_formatLogLine(
    format: *mut LogFormat,
    room: *mut c_char,
    room_bytes: usize,
    entry: *const LogEntry,
    n_bytes: *mut usize,
) -> *mut c_char {
    guard(std::ptr::null_mut(), || {
        // SAFETY: by this function's contract.
        let Some((format, entry)) = (unsafe { format.as_ref().zip(entry.as_ref()) }) else {
            return std::ptr::null_mut();
        };
        // SAFETY: as above.
        let text = unsafe { lines(format, entry) };
        let fits = !room.is_null() && text.len() < room_bytes;
        // SAFETY: the call only allocates.
        let to = if fits { room } else { unsafe { libc::malloc(text.len() + 1) }.cast() };
        if !to.is_null() {
            // SAFETY: `to` has room for the text and its NUL, and no other code uses it.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
                *to.add(text.len()) = 0;
            }
        }
        // SAFETY: by this function's contract.
        if let Some(n_bytes) = unsafe { n_bytes.as_mut() } {
            *n_bytes = text.len();
        }
        to
    })
}

/// Writes the lines of an entry to a descriptor. Returns their bytes, or -1.
///
/// # Safety
/// `format` and `entry` are null or valid, and the entry's strings have as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn android_log_printLogLine(
    format: *mut LogFormat,
    descriptor: c_int,
    entry: *const LogEntry,
) -> c_int {
    guard(-1, || {
        // SAFETY: by this function's contract.
        let Some((format, entry)) = (unsafe { format.as_ref().zip(entry.as_ref()) }) else {
            return -1;
        };
        // SAFETY: as above.
        let text = unsafe { lines(format, entry) };
        let mut rest = &text[..];
        while !rest.is_empty() {
            // SAFETY: `rest` is a slice of the text.
            let written = unsafe { libc::write(descriptor, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written) => rest = &rest[written.min(rest.len())..],
                Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return -1,
            }
        }
        c_int::try_from(text.len()).unwrap_or(c_int::MAX)
    })
}
