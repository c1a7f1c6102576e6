//! The process's own log, with a writer for each thread that writes.

use crate::buffer::{Buffer, Priority};
use crate::write::logger::{Logger, Options};
use crate::write::writer::Writer;
use std::sync::OnceLock;

static LOGGER: OnceLock<Logger> = OnceLock::new();

thread_local!(static WRITER: Writer = logger().writer());

/// The process's own log. It has default options unless [`set_options`] came first.
pub fn logger() -> &'static Logger {
    if LOGGER.get().is_none() {
        // Made before it is stored: a child of fork that is made meanwhile would wait for ever
        // otherwise.
        set_options(Options::new());
    }
    LOGGER.get().expect("just put there")
}

/// Opens the process's own log with these options. `false`: it was opened before.
pub fn set_options(options: Options) -> bool {
    LOGGER.set(options.open()).is_ok()
}

/// Writes a text to the process's own log: see [`Writer::write`].
#[inline]
pub fn write(buffer: Buffer, priority: Priority, tag: &[u8], message: &[u8]) {
    with_writer(|writer| writer.write(buffer, priority, tag, message));
}

/// Writes an event to the process's own log: see [`Writer::write_event`].
pub fn write_event(buffer: Buffer, tag: u32, payload: &[u8]) {
    with_writer(|writer| writer.write_event(buffer, tag, payload));
}

/// Gets a ring for the calling thread now: see [`Writer::prepare`].
pub fn prepare(buffer: Buffer) -> bool {
    with_writer(|writer| writer.prepare(buffer))
}

#[inline]
fn with_writer<R>(work: impl Fn(&Writer) -> R) -> R {
    // A thread that is ending may have lost its writer.
    WRITER.try_with(&work).unwrap_or_else(|_| work(&logger().writer()))
}
