//! A text on its way to the log.

use ring_log::{Buffer, Priority};
use std::ffi::c_int;

/// `LOG_ID_DEFAULT`.
const DEFAULT_BUFFER: c_int = -1;

/// A text and its priority and tag.
pub(crate) struct Text<'a> {
    pub priority: c_int,
    pub tag: &'a [u8],
    pub message: &'a [u8],
}

/// Writes a text to the log. The buffer of events takes no texts.
pub(crate) fn put(buffer: c_int, text: &Text<'_>) {
    let buffer = match buffer {
        DEFAULT_BUFFER => Some(Buffer::Main),
        number => u8::try_from(number).ok().and_then(Buffer::numbered),
    };
    if let Some(buffer) = buffer.filter(|buffer| *buffer != Buffer::Events) {
        ring_log::write(buffer, priority(text.priority), text.tag, text.message);
    }
}

/// The nearest priority of the log.
fn priority(number: c_int) -> Priority {
    let number = number.clamp(Priority::Verbose as c_int, Priority::Fatal as c_int);
    Priority::numbered(number as u8).unwrap_or(Priority::Fatal)
}
